"""What agents publish to Event Hubs, for a consumer.

A hub retains no state, it keeps a log: so a bounded time is read back first and folded into what is
pending now and how each agent is, and only what comes after that is handed on as news. Nothing that
arrives is trusted; what does not look like a message of an agent is passed over.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient
from azure.eventhub.exceptions import EventDataSendError

from bridge.config import EventHubs
from bridge.core.cloudevents import STATUS_TYPE
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.eventhubs.client import Namespace
from bridge.eventhubs.messages import from_command, to_structured
from bridge.eventhubs.problems import FAILURES, is_busy
from bridge.eventhubs.receiver import Receiver, Start
from bridge.feeds import FeedChannel, Received

_EVENTS, _OUTCOMES = "io.sebridge.event.", "io.sebridge.approval."
_ENDINGS = tuple(f"{_EVENTS}{end}.v1" for end in ("completed", "canceled", "ended"))
# Reading back is the common case, and each round trip brings this many events a partition.
_PREFETCH = 2_000
_READING_BACK = "still reading back what is pending: eventhubs.lookback_s says how far"
# Events that wait for a slow reader; beyond that the service keeps them.
_QUEUE_MAX = 1_000


class _Head(msgspec.Struct, frozen=True):
    source: str
    type: str
    subject: str = ""  # the EventId


class _Place(msgspec.Struct, frozen=True):
    """The newest event of a partition that was looked at."""

    offset: str
    sequence_number: int


_head = msgspec.json.Decoder(_Head)


class EventHubsSender:
    """The half of a feed that sends: for consumers that read another transport."""

    problem = ""  # a connection is made for each command: they are few
    settle_s = 0.0

    def __init__(self, config: EventHubs) -> None:
        self._config = config
        self._namespace = Namespace(config)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def received(self) -> AsyncIterator[Received]:
        await asyncio.Event().wait()
        yield Received(channel="status", agent="", payload=b"")  # never: makes this a generator

    async def send(self, topic: str, vm_name: str, command: bytes) -> None:
        hub = self._config.commands_hub
        if topic != hub:  # it came over the wire
            raise SinkRejected(f"{topic!r} is not the commands hub {hub}", permanent=True)
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                await self._send(hub, vm_name, command)
        except EventDataSendError as error:
            kind = SinkUnavailable if is_busy(error) else SinkRejected
            raise kind(str(self._namespace.explain(error, hub))) from error
        except FAILURES as error:
            raise SinkUnavailable(str(self._namespace.explain(error, hub))) from error

    async def close(self) -> None:
        await self._namespace.close()

    async def _send(self, hub: str, vm_name: str, command: bytes) -> None:
        producer = self._namespace.producer(hub)
        try:
            await producer.send_event(
                from_command(command),
                partition_key=vm_name,
                timeout=self._config.send_timeout_s,
            )
        finally:
            with contextlib.suppress(*FAILURES):
                await producer.close()


class EventHubsFeed:
    settle_s = 20.0  # a day of a small fleet is read back in that time

    def __init__(self, config: EventHubs) -> None:
        self._config = config
        self._namespace = Namespace(config)
        self._queue: asyncio.Queue[Received] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._read_to: dict[str, _Place] = {}
        self._read_back_to: dict[str, int] = {}  # partition: sequence number where news begins
        self._statuses: dict[str, Received] = {}
        self._pending: dict[tuple[str, str], Received] = {}
        self._is_caught_up = False
        self._sender = EventHubsSender(config)
        self._receiver = Receiver(
            self._namespace,
            config.events_hub,
            config.events_consumer_group,
            starts=self._starts,
            handle=self._take,
            connect_timeout_s=config.connect_timeout_s,
            reconnect_s_max=config.reconnect_s_max,
            prefetch=_PREFETCH,
        )

    @property
    def problem(self) -> str:
        if not self._receiver.connected:
            return self._receiver.problem
        return "" if self._is_caught_up else _READING_BACK

    async def run(self) -> None:
        await self._receiver.run()

    async def received(self) -> AsyncIterator[Received]:
        while True:
            received = await self._queue.get()
            self._has_room.set()
            yield received

    async def send(self, topic: str, vm_name: str, command: bytes) -> None:
        await self._sender.send(topic, vm_name, command)

    async def close(self) -> None:
        await self._receiver.close()
        await self._sender.close()
        await self._namespace.close()

    async def _starts(
        self, client: EventHubConsumerClient, partitions: Sequence[str]
    ) -> Mapping[str, Start]:
        since = datetime.now(UTC) - timedelta(seconds=self._config.lookback_s)
        if not self._is_caught_up:
            known = await asyncio.gather(*map(client.get_partition_properties, partitions))
            self._read_back_to = {
                each["id"]: each["last_enqueued_sequence_number"]
                for each in known
                if _has_events_since(each, since) and not self._was_read(each)
            }
            self._look_if_caught_up()
        read = self._read_to
        return {p: read[p].offset if p in read else since for p in partitions}

    def _was_read(self, properties: Mapping[str, Any]) -> bool:
        place = self._read_to.get(properties["id"])
        return place is not None and (
            place.sequence_number >= properties["last_enqueued_sequence_number"]
        )

    async def _take(self, partition: str, event: EventData) -> None:
        offset, sequence_number = event.offset, event.sequence_number
        if offset is None or sequence_number is None:
            return
        for received in _read(event):
            if self._is_caught_up:
                await self._put(received)
            else:
                self._fold(received)
        self._read_to[partition] = _Place(offset, sequence_number)
        if sequence_number >= self._read_back_to.get(partition, sequence_number + 1):
            del self._read_back_to[partition]
            self._look_if_caught_up()

    async def _put(self, received: Received) -> None:
        while self._queue.qsize() >= _QUEUE_MAX:
            self._has_room.clear()
            await self._has_room.wait()
        self._queue.put_nowait(received)

    def _fold(self, received: Received) -> None:
        """The newest word of each agent, as a broker with retained messages would have it."""
        key = (received.agent, received.event_id)
        if received.channel == "status":
            self._statuses[received.agent] = received
        elif received.channel == "pending" and received.payload:
            self._pending[key] = received
        elif received.channel == "pending":
            self._pending.pop(key, None)

    def _look_if_caught_up(self) -> None:
        if self._read_back_to:
            return
        self._is_caught_up = True
        for received in (*self._statuses.values(), *self._pending.values()):
            self._queue.put_nowait(received)
        self._statuses.clear()
        self._pending.clear()


def _has_events_since(properties: Mapping[str, Any], since: datetime) -> bool:
    return not properties["is_empty"] and properties["last_enqueued_time_utc"] > since


def _read(event: EventData) -> list[Received]:
    """What MQTT would have brought: an event also is the newest word on what is pending."""
    payload = to_structured(event)
    try:
        head = _head.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    channel = _channel(head.type)
    if channel is None or not head.source:
        return []
    received = [Received(channel=channel, agent=head.source, payload=payload)]
    if channel == "events" and head.subject:
        newest = b"" if head.type in _ENDINGS else payload
        received.append(
            Received(channel="pending", agent=head.source, payload=newest, event_id=head.subject)
        )
    return received


def _channel(type_: str) -> FeedChannel | None:
    if type_.startswith(_EVENTS):
        return "events"
    if type_.startswith(_OUTCOMES):
        return "outcomes"
    return "status" if type_ == STATUS_TYPE else None
