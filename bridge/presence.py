"""Presence: the agent tells the bus that it is online, blind or offline, now and every heartbeat.

Status describes a moment, so it bypasses the outbox: an old one is worth nothing.
"""

import asyncio
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from bridge.clock import Clock
from bridge.config import Config
from bridge.core import cloudevents
from bridge.core.cloudevents import CloudEvent, StatusData, Vm
from bridge.health import Pulse
from bridge.poller import Poller
from bridge.store import Store
from bridge.transports import Sink
from bridge.version import VERSION

Status = Literal["online", "offline", "blind"]

# How soon a change from online to blind, or back, is told.
_LOOK_S = 1.0


class Presence:
    def __init__(
        self,
        config: Config,
        store: Store,
        clock: Clock,
        *,
        vm: Vm,
        poller: Poller,
        sinks: Mapping[str, Sink],
    ) -> None:
        self._heartbeat_s = config.events.heartbeat_s
        self._mode = config.approvals.mode
        self._commands = config.commands.trust
        self._store = store
        self._clock = clock
        self._vm = vm
        self._poller = poller
        self._sinks = sinks
        self._boot_id = uuid.uuid4().hex[:12]
        self._count = 0
        self._said: Status | None = None
        self._said_at_s = 0.0
        self.pulse = Pulse(clock)

    async def run(self) -> None:
        while True:
            self.pulse.beat(_LOOK_S)
            await self.step()
            await asyncio.sleep(min(_LOOK_S, self._heartbeat_s))

    async def step(self) -> None:
        """Say something if it is new, or if it is time."""
        status: Status = "blind" if self._poller.is_blind else "online"
        now_s = self._clock.elapsed_s()
        if status != self._said or now_s - self._said_at_s >= self._heartbeat_s:
            self._said, self._said_at_s = status, now_s
            await self.say(status)

    async def say(self, status: Status) -> None:
        """To every sink at once: a slow one delays no other, and is given up by its own limits."""
        event = self.cloudevent(status)
        await asyncio.gather(*(sink.publish_status(event) for sink in self._sinks.values()))

    def cloudevent(self, status: Status) -> CloudEvent:
        self._count += 1
        document, age_s = self._poller.last_document, self._poller.age_s
        now = self._clock.now()
        data = StatusData(
            status=status,
            vm=self._vm,
            version=VERSION,
            last_poll="" if age_s is None else cloudevents.rfc3339(now - timedelta(seconds=age_s)),
            document_incarnation=document.incarnation if document else None,
            pending=len(self._store.pending()),
            outbox=max((self._store.depth(name) for name in self._sinks), default=0),
            approvals=self._mode if self._store.durable else "refused",
            commands=self._commands,
        )
        identifier = f"{self._store.ledger_id}.status.{self._boot_id}.{self._count}"
        return cloudevents.from_status(data, identifier=identifier, now=now)
