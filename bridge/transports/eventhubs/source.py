"""Commands from every partition of the commands hub, from where the ledger says it was read.

Each agent reads the whole hub, so most commands are for other VMs. The position of a command of
ours is committed with its ledger row; the positions of the others are kept now and then, and only
behind everything that was decided. After a crash some come again: the ledger knows their keys.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient

from bridge.config import EventHubs
from bridge.core.addressing import addressee
from bridge.core.commands import Wire
from bridge.eventhubs.client import Namespace
from bridge.eventhubs.messages import partition_key, to_wire
from bridge.eventhubs.receiver import QUIET_S, Receiver, Start
from bridge.transports import Incoming

# Commands that wait for the intake; beyond that the service keeps them.
_COMMANDS_MAX = 16
_TELL_S = 60.0
# Marks a position that is a moment: nothing was read behind it yet.
_MOMENT = "@"

_log = logging.getLogger("sebridge.eventhubs")

Position = tuple[str, str]  # (hub and partition, offset), as the store keeps it


class _Reading(msgspec.Struct):
    """How far one partition has come."""

    source: str  # its name in the store
    read: str  # position of the newest event that was looked at
    kept: str  # position that is durable
    sequence_number: int = -1  # of the newest event that was looked at
    undecided: int = 0  # commands of ours that are not durable yet


class EventHubsSource:
    name = "eventhubs"

    def __init__(
        self,
        config: EventHubs,
        *,
        vm_name: str,
        max_age_s: float,
        payload_bytes_max: int,
        offset: Callable[[str], str | None],
        keep_offsets: Callable[[Collection[Position]], None],
        now: Callable[[], datetime],
        quiet_s: float = QUIET_S,
    ) -> None:
        self._config = config
        self._vm_name = vm_name.casefold()
        self._max_age_s = max_age_s
        self._payload_bytes_max = payload_bytes_max
        self._offset = offset
        self._keep_offsets = keep_offsets
        self._now = now
        self._namespace = Namespace(config)
        self._readings: dict[str, _Reading] = {}
        self._told_at_s = -_TELL_S
        self._queue: asyncio.Queue[Incoming] = asyncio.Queue(_COMMANDS_MAX)
        self._receiver = Receiver(
            self._namespace,
            config.commands_hub,
            config.consumer_group,
            starts=self._starts,
            handle=self._take,
            on_stall=self._on_stall,
            connect_timeout_s=config.connect_timeout_s,
            reconnect_s_max=config.reconnect_s_max,
            quiet_s=quiet_s,
        )

    @property
    def problem(self) -> str:
        return self._receiver.problem

    async def run(self) -> None:
        receiving = asyncio.create_task(self._receiver.run())
        try:
            while not receiving.done():
                await asyncio.wait({receiving}, timeout=self._config.checkpoint_s)
                self.keep_positions()
            await receiving
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def commands(self) -> AsyncIterator[Incoming]:
        while True:
            yield await self._queue.get()

    async def close(self) -> None:
        await self._receiver.close()
        self.keep_positions()
        await self._namespace.close()

    def keep_positions(self) -> None:
        """Make durable how far was read, behind commands that were decided only."""
        ahead = [r for r in self._readings.values() if r.read != r.kept and not r.undecided]
        if ahead:
            self._keep_offsets([(reading.source, reading.read) for reading in ahead])
            for reading in ahead:
                reading.kept = reading.read

    async def _starts(
        self, _: EventHubConsumerClient, partitions: Sequence[str]
    ) -> Mapping[str, Start]:
        """Where this process has come to, or the ledger, or (the first time ever) a moment ago."""
        new = [partition for partition in partitions if partition not in self._readings]
        for partition in new:
            source = f"{self._namespace.host}/{self._config.commands_hub}/{partition}"
            known = self._offset(source)
            self._readings[partition] = _Reading(source, known or self._a_moment_ago(), known or "")
        if new:
            # Durable at once: an agent that is away for long must not skip what came meanwhile.
            self.keep_positions()
        return {partition: _start(self._readings[partition].read) for partition in partitions}

    def _a_moment_ago(self) -> str:
        """Older commands would be refused for their age."""
        return _MOMENT + (self._now() - timedelta(seconds=self._max_age_s)).isoformat()

    async def _take(self, partition: str, event: EventData) -> None:
        reading = self._readings[partition]
        offset, sequence_number = event.offset, event.sequence_number
        if offset is None or sequence_number is None or sequence_number <= reading.sequence_number:
            return  # again, after a reconnect
        wire, addressed_to = self._look_at(event)
        if addressed_to.casefold() == self._vm_name:
            incoming = Incoming(
                wire=wire,
                ack=lambda: _decided(reading, offset),
                position=(reading.source, offset),
            )
            await self._queue.put(incoming)  # cut off here, it comes again
            reading.undecided += 1
        elif not addressed_to:
            self._tell_of_nobodys(event)
        reading.sequence_number, reading.read = sequence_number, offset

    def _look_at(self, event: EventData) -> tuple[Wire, str]:
        """The command and whom it is for. All agents meet this event: none may stumble over it."""
        try:
            wire = to_wire(event)
            vm = addressee(wire, bytes_max=self._payload_bytes_max) or partition_key(event)
        except Exception:  # noqa: BLE001 - whatever a stranger wrote, it is nobody's command
            _log.debug("the event at offset %s cannot be read", event.offset, exc_info=True)
            return Wire(payload=b""), ""
        return wire, vm

    def _tell_of_nobodys(self, event: EventData) -> None:
        """Once a minute: whoever may send to the hub must not fill our disk."""
        now_s = time.monotonic()
        if now_s - self._told_at_s >= _TELL_S:
            self._told_at_s = now_s
            _log.warning(
                "a command at offset %s cannot be read, or names no VM: neither in data.vm nor as "
                "its partition key",
                event.offset,
            )

    def _on_stall(self, partition: str, last_offset: str) -> None:
        """A hub that was made anew refuses the offsets of the old one, for ever."""
        reading = self._readings[partition]
        if _is_beyond(reading.read, last_offset):
            _log.warning(
                "partition %s ends at %s, and the ledger is at %s: the hub was made anew",
                partition,
                last_offset,
                reading.read,
            )
            reading.read, reading.sequence_number = self._a_moment_ago(), -1


def _decided(reading: _Reading, offset: str) -> None:
    reading.undecided -= 1
    reading.kept = offset


def _start(position: str) -> Start:
    if position.startswith(_MOMENT):
        return datetime.fromisoformat(position.removeprefix(_MOMENT))
    return position


def _is_beyond(position: str, last_offset: str) -> bool:
    try:
        return int(position) > int(last_offset)
    except ValueError:  # a moment, or an offset of a replicated namespace
        return False
