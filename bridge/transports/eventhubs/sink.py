"""Events, outcomes and status to one hub, in batches, under the VM's name as the partition key.

One producer, one send at a time: the order of the outbox is the order in the partition. A send
that fails or takes too long costs the producer its connection, because nobody knows what it still
holds; what it held is sent again on the next one, so a message may come twice, under the same id.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

import msgspec
from azure.eventhub import EventData, EventDataBatch
from azure.eventhub.aio import EventHubProducerClient
from azure.eventhub.exceptions import EventDataSendError

from bridge.config import EventHubs
from bridge.core import cloudevents
from bridge.core.cloudevents import CloudEvent
from bridge.errors import BridgeError, SinkRejected, SinkUnavailable
from bridge.eventhubs.client import Namespace
from bridge.eventhubs.messages import to_event_data
from bridge.eventhubs.problems import FAILURES, is_busy, is_too_large
from bridge.reconnecting import keep_connected
from bridge.transports import Outgoing

_CLOSE_S = 2.0

_log = logging.getLogger("sebridge.eventhubs")


class _Gist(msgspec.Struct, frozen=True):
    """What of a status is news; the rest of it counts things."""

    status: str
    approvals: str = ""


class _Status(msgspec.Struct, frozen=True):
    data: _Gist


class EventHubsSink:
    name = "eventhubs"

    def __init__(self, config: EventHubs, *, vm_name: str) -> None:
        self._config = config
        self._vm_name = vm_name
        self._namespace = Namespace(config)
        self._producer: EventHubProducerClient | None = None
        self._sending = asyncio.Lock()
        self._lost = asyncio.Event()
        self._closing = asyncio.Event()
        self._status: CloudEvent | None = None
        self._said: _Gist | None = None
        self._said_at_s = 0.0
        self._careful = False  # after a refusal: one row at a time, to find the one
        self.generation = 0  # connections made so far
        self.problem = "not connected yet"

    @property
    def connected(self) -> bool:
        return self._producer is not None

    async def run(self) -> None:
        await keep_connected(self._serve, self._closing, pause_s_max=self._config.reconnect_s_max)

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        delivered = 0
        try:
            async with self._sending:
                while delivered < len(batch):
                    delivered += await self._send_some(batch[delivered:])
        except SinkUnavailable as error:
            raise SinkUnavailable(str(error), delivered=delivered) from error
        except SinkRejected as error:
            text, permanent = str(error), error.permanent
            raise SinkRejected(text, delivered=delivered, permanent=permanent) from error

    async def publish_status(self, status: CloudEvent) -> None:
        self._status = status
        if self._producer is None or self._was_said_lately(status):
            return  # said on the next connection, or when it is time
        try:
            async with asyncio.timeout(self._config.send_timeout_s), self._sending:
                batch = await self._batch()
                batch.add(to_event_data(cloudevents.encode(status), self._config.content_mode))
                await self._send(batch)
            self._said, self._said_at_s = _gist(status), time.monotonic()
        except (BridgeError, TimeoutError) as error:
            _log.warning("status not published: %s", error or "no time")

    def _was_said_lately(self, status: CloudEvent) -> bool:
        """A hub forgets nothing, so every repetition is read again by whoever reads it back."""
        age_s = time.monotonic() - self._said_at_s
        return _gist(status) == self._said and age_s < self._config.heartbeat_s

    async def close(self) -> None:
        self._closing.set()
        await self._drop()
        await self._namespace.close()

    async def _serve(self) -> bool:
        if not await self._open():
            return False
        await self._lost.wait()
        return True

    async def _open(self) -> bool:
        """Connect as far as the link: credentials, hub and the right to send are good then."""
        try:
            producer = self._namespace.producer(self._config.events_hub)
        except FAILURES as error:
            self._complain(error)
            return False
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                await producer.create_batch()
        except FAILURES as error:
            self._complain(error)
            await _close(producer)
            return False
        self._lost.clear()
        self._said = None
        self._producer, self.problem = producer, ""
        self.generation += 1
        _log.info("connected to hub %s", self._config.events_hub)
        if self._status is not None:
            await self.publish_status(self._status)
        return True

    async def _send_some(self, rows: Sequence[Outgoing]) -> int:
        """As many leading rows as fit into one batch; returns how many those are."""
        batch = await self._batch()
        for number, row in enumerate(rows[:1] if self._careful else rows):
            message = to_event_data(row.cloudevent, self._config.content_mode)
            if not _fits(batch, message):
                if number:
                    break
                raise SinkRejected(_too_large(row, batch.max_size_in_bytes), permanent=True)
        await self._send(batch)
        return len(batch)

    async def _batch(self) -> EventDataBatch:
        if self._producer is None:
            raise SinkUnavailable(f"eventhubs: {self.problem or 'not connected'}")
        # The link is open, so its limit is known and nothing is sent here.
        return await self._producer.create_batch(partition_key=self._vm_name)

    async def _send(self, batch: EventDataBatch) -> None:
        assert self._producer is not None
        try:
            async with asyncio.timeout(self._config.send_timeout_s):
                await self._producer.send_batch(batch, timeout=self._config.send_timeout_s)
        except EventDataSendError as error:
            if is_busy(error):
                raise self._unavailable(error) from error
            alone, self._careful = len(batch) == 1, True
            text = f"eventhubs: {self._namespace.explain(error, self._config.events_hub).text}"
            raise SinkRejected(text, permanent=alone and is_too_large(error)) from error
        except FAILURES as error:
            await self._drop()
            raise self._unavailable(error) from error
        except asyncio.CancelledError:
            await self._drop()
            raise
        self.problem, self._careful = "", False

    def _unavailable(self, error: Exception) -> SinkUnavailable:
        self._complain(error)
        return SinkUnavailable(f"eventhubs: {self.problem}")

    async def _drop(self) -> None:
        producer, self._producer = self._producer, None
        self._lost.set()
        if producer is not None:
            await _close(producer)

    def _complain(self, error: Exception) -> None:
        problem = str(self._namespace.explain(error, self._config.events_hub))
        if problem != self.problem:
            _log.warning("%s", problem)
        self.problem = problem


def _gist(status: CloudEvent) -> _Gist:
    return msgspec.json.decode(cloudevents.encode(status), type=_Status).data


def _fits(batch: EventDataBatch, message: EventData) -> bool:
    try:
        batch.add(message)
    except ValueError:
        return False
    return True


def _too_large(row: Outgoing, bytes_max: int) -> str:
    return (
        f"eventhubs: {len(row.cloudevent)} bytes do not fit into a message of {bytes_max} bytes, "
        "the limit of this namespace's tier"
    )


async def _close(producer: EventHubProducerClient) -> None:
    with contextlib.suppress(TimeoutError, *FAILURES):
        async with asyncio.timeout(_CLOSE_S):
            await producer.close()
