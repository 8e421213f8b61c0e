"""Hubs, partitions and the events in them: plain memory that outlives connections and restarts.

Knows nothing of links or sockets. A partition only ever grows; readers keep their own position.
"""

import asyncio
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tests.support.eventhubs_server.codec import Symbol, Timestamp
from tests.support.eventhubs_server.messages import (
    PARTITION_KEY,
    Message,
    decode_message,
    encode_annotations,
    encode_message,
)

_SELECTOR = re.compile(
    r"amqp\.annotation\.x-opt-(offset|sequence-number|enqueued-time) (>=?) '(@latest|-?\d+)'"
)


@dataclass(frozen=True)
class StoredEvent:
    """One event as a consumer would see it."""

    partition: str
    sequence_number: int
    offset: str
    enqueued_at: datetime
    partition_key: str | None
    body: bytes
    application_properties: dict[str, Any]
    content_type: str | None
    message_id: Any
    correlation_id: Any
    #: All the message's properties, by AMQP name in snake case.
    properties: dict[str, Any] = field(repr=False)
    #: The whole message as it goes to consumers.
    wire: bytes = field(repr=False)


class Partition:
    def __init__(self, partition_id: str) -> None:
        self.id = partition_id
        self.events: list[StoredEvent] = []
        #: Called after each append.
        self.watchers: set[Callable[[], None]] = set()
        self._next_offset = 0

    def append(self, message: Message, enqueued_at: datetime) -> StoredEvent:
        # Consumers see milliseconds, so milliseconds are all there is.
        enqueued_at = enqueued_at.replace(microsecond=enqueued_at.microsecond // 1000 * 1000)
        offset, sequence_number = str(self._next_offset), len(self.events)
        annotations = message.annotations | {
            Symbol("x-opt-sequence-number"): sequence_number,
            Symbol("x-opt-offset"): offset,
            Symbol("x-opt-enqueued-time"): Timestamp(to_milliseconds(enqueued_at)),
        }
        wire = encode_annotations(annotations) + message.bare
        stored = StoredEvent(
            partition=self.id,
            sequence_number=sequence_number,
            offset=offset,
            enqueued_at=enqueued_at,
            partition_key=message.partition_key,
            body=b"".join(message.data),
            application_properties=message.application_properties,
            content_type=message.properties.get("content_type"),
            message_id=message.properties.get("message_id"),
            correlation_id=message.properties.get("correlation_id"),
            properties=message.properties,
            wire=wire,
        )
        self.events.append(stored)
        # As in the service, offsets grow by size, so that nobody takes one for a sequence number.
        self._next_offset += len(wire)
        for watcher in tuple(self.watchers):
            watcher()
        return stored

    def start_index(self, selector: str | None) -> int:
        """Return where reading starts; ValueError for a selector that the service would not take."""
        if selector is None:
            return 0
        match = _SELECTOR.fullmatch(selector)
        if match is None:
            raise ValueError(f"selector {selector!r} is not understood")
        name, operator, value = match.groups()
        if value == "@latest":
            return len(self.events)
        last_offset = int(self.events[-1].offset) if self.events else -1
        if name == "offset" and int(value) > last_offset:
            # The service's words, as quoted in public questions.
            raise ValueError(
                f"The supplied offset '{value}' is invalid. "
                f"The last offset in the system is '{last_offset}'"
            )
        bound = int(value) + (operator == ">")
        return next(
            (i for i, e in enumerate(self.events) if _annotation(e, name) >= bound),
            len(self.events),
        )


class Hub:
    def __init__(self, name: str, partitions: int, consumer_groups: Iterable[str]) -> None:
        self.name = name
        self.partitions = {str(n): Partition(str(n)) for n in range(partitions)}
        self.consumer_groups = {group.lower() for group in consumer_groups}
        self.created_at = datetime.now(UTC)
        self._round_robin = count()

    def events(self, partition: str | None = None) -> list[StoredEvent]:
        """Return what is stored, by partition and then in order."""
        if partition is not None:
            return list(self.partitions[partition].events)
        return [stored for each in self.partitions.values() for stored in each.events]

    def append(
        self, messages: Iterable[Message], partition: str | None = None
    ) -> list[StoredEvent]:
        """Store what a sender sent together in one partition."""
        batch = list(messages)
        key = batch[0].partition_key if batch else None
        target = self.partitions[partition or self._choose_partition(key)]
        now = datetime.now(UTC)
        return [target.append(message, now) for message in batch]

    def put(
        self,
        body: bytes,
        *,
        partition: str | None = None,
        partition_key: str | None = None,
        application_properties: dict[str, Any] | None = None,
        enqueued_at: datetime | None = None,
        **properties: Any,
    ) -> StoredEvent:
        """Store an event without a client; further keywords are AMQP properties (message_id, ...)."""
        wire = encode_message(
            Message(
                properties=properties,
                application_properties=application_properties or {},
                data=[body],
            )
        )
        message = decode_message(wire)
        if partition_key is not None:
            message.annotations[PARTITION_KEY] = partition_key
        target = self.partitions[partition or self._choose_partition(partition_key)]
        return target.append(message, enqueued_at or datetime.now(UTC))

    async def wait_for(self, number: int, timeout_s: float = 10) -> list[StoredEvent]:
        """Return the events as soon as there are `number` of them."""
        grown = asyncio.Event()
        for partition in self.partitions.values():
            partition.watchers.add(grown.set)
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.events()) < number:
                    grown.clear()
                    await grown.wait()
        finally:
            for partition in self.partitions.values():
                partition.watchers.discard(grown.set)
        return self.events()

    def _choose_partition(self, key: str | None) -> str:
        choice = next(self._round_robin) if key is None else zlib.crc32(key.encode())
        return str(choice % len(self.partitions))


def to_milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _annotation(stored: StoredEvent, name: str) -> int:
    match name:
        case "offset":
            return int(stored.offset)
        case "sequence-number":
            return stored.sequence_number
    return to_milliseconds(stored.enqueued_at)
