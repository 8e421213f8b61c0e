"""Everything that turns, once it is known which VM this is: built, started, and ended in order.

shutdown  no more polls and commands → a POST under way may finish → outbox drained,
          for a bounded time → offline → transports closed
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bridge import start_request
from bridge.approver import Approver
from bridge.assembly import Assembly
from bridge.clock import Clock
from bridge.config import Config
from bridge.core import cloudevents
from bridge.core.approvals import Rules
from bridge.core.document import Document
from bridge.errors import StoreUnwritable
from bridge.health import Pulse
from bridge.imds import Identity, ImdsClient
from bridge.intake import Intake, Verify
from bridge.measures import Measures
from bridge.poller import Poller
from bridge.presence import Presence
from bridge.publisher import Publisher
from bridge.store import Store
from bridge.transports import ConnectedSource, Sink

logger = logging.getLogger("sebridge.loops")

# Of the ten seconds that a stop may take:
_POST_WAIT_S = 3.0
_DRAIN_S = 4.0
_GOODBYE_S = 1.5


class Loops:
    def __init__(
        self,
        config: Config,
        identity: Identity,
        store: Store,
        imds: ImdsClient,
        clock: Clock,
        *,
        measures: Measures,
        verify: Verify | None,
        confirm_identity: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._imds = imds
        self._confirm_identity = confirm_identity
        vm, rules = identity.vm, _rules(config, identity.vm.name)
        assembly = Assembly(config, identity, store)
        self.poller = Poller(
            config.imds,
            imds,
            store,
            clock,
            vm=vm,
            commands_topic=assembly.commands_topic,
            own_events_only=config.events.scope == "own",
            on_news=self._wake_publishers,
            on_change=self._changed,
            measures=measures,
        )
        self.sinks: dict[str, Sink] = {}
        self.presence = Presence(config, store, clock, vm=vm, poller=self.poller, sinks=self.sinks)
        self.sinks |= assembly.sinks(
            offline=lambda: cloudevents.encode(self.presence.cloudevent("offline")),
            caught_up=self._caught_up,
        )
        self.source: ConnectedSource | None = assembly.source(self.sinks, clock)
        store.set_sinks(tuple(self.sinks))
        self.publishers = {
            name: Publisher(sink, store, clock, measures) for name, sink in self.sinks.items()
        }
        self.approver = Approver(
            config.approvals,
            store,
            clock,
            rules,
            vm=vm,
            document=self._document,
            connect=self._connect,
            flush=self._flush,
            on_answer=self._settled,
            measures=measures,
        )
        self.intake = Intake(
            store,
            clock,
            rules,
            vm=vm,
            payload_bytes_max=config.commands.payload_bytes_max,
            per_s_max=config.commands.per_s_max,
            verify=verify,
            document=self._document,
            on_accept=self.approver.wake,
            on_answer=self._wake_publishers,
            measures=measures,
        )

    @property
    def pulses(self) -> dict[str, Pulse]:
        publishers = {f"publisher {name}": p.pulse for name, p in self.publishers.items()}
        return {
            "poller": self.poller.pulse,
            "intake": self.intake.pulse,
            "approver": self.approver.pulse,
            "presence": self.presence.pulse,
            **publishers,
        }

    @property
    def _transports(self) -> list[Sink | ConnectedSource]:
        """Every connection once: with MQTT the source is the sink."""
        every: list[Sink | ConnectedSource] = list(self.sinks.values())
        if self.source is not None and all(self.source is not each for each in every):
            every.append(self.source)
        return every

    async def run(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        start, source = self._starter(group), self.source
        first = [start("poller", self._poll)]
        if source is not None:
            first.append(start("intake", lambda: self.intake.run(source)))
        then = [start("approver", self.approver.run)]
        last = [start(f"publisher {name}", p.run) for name, p in self.publishers.items()]
        last += [start(f"transport {each.name}", each.run) for each in self._transports]
        last.append(start("presence", self.presence.run))
        await stop.wait()
        logger.info("stopping")
        await _cancel(first)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POST_WAIT_S), self.approver.posting:
                pass
        await _cancel(then)
        await self._flush(_DRAIN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self.presence.say("offline")
                await asyncio.gather(*(each.close() for each in self._transports))
        await _cancel(last)

    async def _poll(self) -> None:
        """Without a document nothing is decided: not before it is sure whose events these are."""
        await self._confirm_identity()
        await self.poller.run()

    def _starter(
        self, group: asyncio.TaskGroup
    ) -> Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]:
        return lambda name, loop: group.create_task(self._without_disk(loop), name=name)

    async def _without_disk(self, loop: Callable[[], Awaitable[None]]) -> None:
        """A disk that takes no more writes stops approvals, not the stream."""
        while True:
            try:
                return await loop()
            except StoreUnwritable as error:
                if not self._store.durable:
                    raise
                logger.exception("the ledger cannot be written: approvals are off")
                self._store.degrade(str(error))

    def _document(self) -> Document | None:
        return self.poller.document

    def _changed(self) -> None:
        self.intake.approve_by_rule()
        self.approver.wake()  # what waited for a fresh document can go now

    def _settled(self) -> None:
        self.poller.confirm_settled()
        self._wake_publishers()

    async def _caught_up(self) -> None:
        """The document is known, and MQTT has what was announced of it."""
        await self.poller.polled.wait()
        await self.publishers["mqtt"].drained()

    def _wake_publishers(self) -> None:
        for publisher in self.publishers.values():
            publisher.wake()

    async def _connect(self) -> start_request.StartRequestConnection:
        connection = await start_request.connect(
            self._config.imds.endpoint,
            self._imds.api_version,
            self._config.approvals.connect_timeout_s,
        )
        self._imds.spend_token()  # the POST never waits, but the next poll may
        return connection

    async def _flush(self, seconds: float) -> None:
        """What is announced leaves before what is done; a dead broker costs `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(p.drained() for p in self.publishers.values()))


def _rules(config: Config, vm_name: str) -> Rules:
    return Rules(
        vm_name=vm_name,
        max_age_s=config.commands.max_age_s,
        signed_lifetime_s_max=config.commands.signed_lifetime_s_max,
        per_minute_max=config.approvals.per_minute_max,
        require_token=config.commands.require_token,
        mode=config.approvals.mode,
        multi_vm=config.approvals.multi_vm,
        fence_first_document=config.approvals.first_document == "refuse",
        policy=config.approvals.rules,
    )


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
