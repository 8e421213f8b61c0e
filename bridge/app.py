"""The composition root: builds the parts, runs the loops, ends them in order.

start     ledger opened and recovered → READY → who am I? → transports and loops
run       poller, one publisher a sink, intake, approver, heartbeat; one TaskGroup
shutdown  no more polls and commands → a POST under way may finish → outbox drained,
          for a bounded time → offline → transports closed → ledger closed
"""

import asyncio
import contextlib
import logging
import signal
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from bridge import metrics, report, sdnotify, start_request
from bridge.approver import Approver
from bridge.clock import Clock, SystemClock
from bridge.config import Config
from bridge.core import cloudevents, topics
from bridge.core.approvals import Rules
from bridge.core.cloudevents import CloudEvent, StatusData
from bridge.errors import BridgeError, ImdsUnavailable, StoreUnwritable
from bridge.http import HttpServer
from bridge.imds import Identity, ImdsClient
from bridge.intake import Intake
from bridge.poller import Poller
from bridge.publisher import Publisher
from bridge.store import Store
from bridge.transports import CommandSource, Sink
from bridge.version import VERSION

logger = logging.getLogger("sebridge.app")

_IDENTITY_WAIT_S = 10.0  # after that a known VM starts with the identity in its ledger
_DRAIN_S = 5.0
_POST_WAIT_S = 3.0  # of the ten seconds that a stop may take


class Agent:
    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._store = Store.open(config.store.path, now=self._clock.now())
        self._imds = ImdsClient(config.imds, self._clock)
        self._identity: Identity | None = None
        self._sinks: dict[str, Sink] = {}
        self._publishers: dict[str, Publisher] = {}
        self._poller: Poller | None = None
        self._approver: Approver | None = None
        self._command_transport: Sink | None = None
        self._boot_id = uuid.uuid4().hex[:12]
        self._statuses = 0
        self._http = HttpServer(
            config.http,
            healthy=lambda: "",
            ready=self._not_ready,
            metrics=lambda: metrics.render(self.status()),
            status=self.status,
            audit=self._store.audit,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, or something fails that only a restart can mend."""
        try:
            if self._config.http.listen:
                await self._http.start()
            self._recover()
            sdnotify.notify("READY=1")
            async with asyncio.TaskGroup() as group:
                watchdog = group.create_task(self._watchdog(), name="watchdog")
                identity = group.create_task(self._learn_identity(), name="identity")
                stopped = group.create_task(stop.wait(), name="stop")
                await asyncio.wait({identity, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if identity.done():
                    self._build(identity.result())
                    await self._run_loops(group, stop)
                for task in (watchdog, identity, stopped):
                    task.cancel()
        finally:
            sdnotify.notify("STOPPING=1")
            await self._http.close()
            await self._imds.close()
            self._store.close()

    def _recover(self) -> None:
        """Before anything else: what a crash cut short is in doubt, and says so."""
        raw = self._store.identity()
        if raw is None:
            return
        self._identity = Identity.from_json(raw)
        in_doubt = self._make_approver(self._identity).recover()
        if in_doubt:
            logger.warning("recovered", extra={"in_doubt": in_doubt})

    async def _learn_identity(self) -> Identity:
        """From IMDS; a VM that is known may start without it after a while."""
        known, began = self._identity, self._clock.elapsed_s()
        while True:
            try:
                identity = await self._imds.get_identity()
                break
            except ImdsUnavailable as error:
                if known and self._clock.elapsed_s() - began > _IDENTITY_WAIT_S:
                    logger.warning("IMDS is away; using the identity in the ledger")
                    return known
                logger.warning("waiting for IMDS", extra={"why": str(error)})
                await asyncio.sleep(1.0)
        if known and known.vm.vm_id != identity.vm.vm_id:
            logger.warning("the ledger belongs to another VM: starting a new one")
            self._store.close()
            path, vm_id = self._config.store.path, identity.vm.vm_id
            self._store = Store.open(path, now=self._clock.now(), vm_id=vm_id)
        self._store.set_identity(identity.to_json(), identity.vm.vm_id)
        return identity

    def _build(self, identity: Identity) -> None:
        self._identity = identity
        root = topics.fill_root(
            self._config.mqtt.topic_root,
            resource_group=identity.resource_group,
            vm_name=identity.vm.name,
        )
        self._sinks = {name: self._make_sink(name, root) for name in self._config.events.sinks}
        if self._config.commands.source == "mqtt" and "mqtt" not in self._sinks:
            self._command_transport = self._make_sink("mqtt", root)
        else:
            self._command_transport = self._sinks.get("mqtt")
        self._store.set_sinks(tuple(self._sinks))
        self._publishers = {
            name: Publisher(sink, self._store, self._clock) for name, sink in self._sinks.items()
        }
        self._approver = self._make_approver(identity)
        self._poller = Poller(
            self._config.imds,
            self._imds,
            self._store,
            self._clock,
            vm=identity.vm,
            commands_topic=f"{root}/commands",
            own_events_only=self._config.events.scope == "own",
            on_change=self._changed,
        )
        self._intake = Intake(
            self._store,
            self._clock,
            self._rules(identity),
            vm=identity.vm,
            payload_bytes_max=self._config.commands.payload_bytes_max,
            document=self._document,
            on_accept=self._approver.wake,
            on_answer=self._wake_publishers,
        )

    def _make_approver(self, identity: Identity) -> Approver:
        return Approver(
            self._config.approvals,
            self._store,
            self._clock,
            self._rules(identity),
            vm=identity.vm,
            document=self._document,
            connect=self._connect,
            flush=self._flush,
            on_answer=self._wake_publishers,
        )

    def _make_sink(self, name: str, root: str) -> Sink:
        """Transports are imported only where they are used."""
        if name == "stdout":
            from bridge.transports.stdout import StdoutSink  # noqa: PLC0415

            return StdoutSink()
        assert name == "mqtt" and self._identity, name  # noqa: PT018
        from bridge.transports.mqtt import MqttTransport  # noqa: PLC0415

        return MqttTransport(
            self._config.mqtt,
            root=root,
            client_id=self._config.mqtt.client_id or f"sebridge-{self._identity.vm.vm_id}",
            will=lambda: cloudevents.encode(self._status_event("offline")),
            pending=self._store.pending,
            take_commands=self._config.commands.source == "mqtt",
            commands_bytes_max=self._config.commands.payload_bytes_max,
        )

    def _rules(self, identity: Identity) -> Rules:
        approvals, commands = self._config.approvals, self._config.commands
        return Rules(
            vm_name=identity.vm.name,
            max_age_s=commands.max_age_s,
            require_token=commands.require_token,
            mode=approvals.mode,
            multi_vm=approvals.multi_vm,
            fence_first_document=approvals.first_document == "refuse",
            policy=approvals.rules,
        )

    async def _run_loops(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        assert self._poller
        assert self._approver
        first = [self._start(group, "poller", self._poller.run)]
        source = self._command_transport
        if source is not None and self._config.commands.source == "mqtt":
            commands: CommandSource = source  # type: ignore[assignment]
            first.append(self._start(group, "intake", lambda: self._intake.run(commands)))
        then = [self._start(group, "approver", self._approver.run)]
        last = [
            self._start(group, f"publisher {name}", publisher.run)
            for name, publisher in self._publishers.items()
        ]
        transports = {id(sink): sink for sink in (*self._sinks.values(), source) if sink}
        last += [self._start(group, f"transport {s.name}", s.run) for s in transports.values()]
        last.append(self._start(group, "heartbeat", self._heartbeat))
        await stop.wait()
        logger.info("stopping")
        await _cancel(first)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POST_WAIT_S), self._approver.posting:
                pass
        await _cancel(then)
        await self._flush(_DRAIN_S)
        for sink in transports.values():
            await sink.publish_status(self._status_event("offline"))
            await sink.close()
        await _cancel(last)

    def _start(
        self, group: asyncio.TaskGroup, name: str, loop: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        return group.create_task(self._without_disk(loop), name=name)

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

    def _document(self) -> Any:
        return self._poller.document if self._poller else None

    def _changed(self) -> None:
        self._wake_publishers()
        self._intake.approve_by_rule()

    def _wake_publishers(self) -> None:
        for publisher in self._publishers.values():
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
                for publisher in self._publishers.values():
                    await publisher.drained()

    async def _heartbeat(self) -> None:
        assert self._poller
        last, said_at = "", -1e9
        while True:
            status = "blind" if self._poller.is_blind else "online"
            now = self._clock.elapsed_s()
            if status != last or now - said_at >= self._config.events.heartbeat_s:
                last, said_at = status, now
                for sink in self._sinks.values():
                    await sink.publish_status(self._status_event(status))
            await asyncio.sleep(min(1.0, self._config.events.heartbeat_s))

    async def _watchdog(self) -> None:
        interval_s = sdnotify.watchdog_interval_s()
        while interval_s:
            sdnotify.notify("WATCHDOG=1")
            await asyncio.sleep(interval_s)

    def _status_event(self, status: str) -> CloudEvent:
        assert self._identity
        self._statuses += 1
        document = self._poller.last_document if self._poller else None
        data = StatusData(
            status=status,  # type: ignore[arg-type]
            vm=self._identity.vm,
            version=VERSION,
            document_incarnation=document.incarnation if document else None,
            pending=len(self._store.pending()),
            outbox=max((self._store.depth(name) for name in self._sinks), default=0),
            approvals=self._config.approvals.mode if self._store.durable else "refused",
            commands="none" if self._config.commands.source == "none" else "unsigned",
        )
        identifier = f"{self._store.ledger_id}.status.{self._boot_id}.{self._statuses}"
        return cloudevents.from_status(data, identifier=identifier, now=self._clock.now())

    def _not_ready(self) -> str:
        if self._poller is None:
            return "waiting for IMDS to say which VM this is"
        return "" if self._poller.is_ready else f"no good poll: {self._poller.problem}"

    def status(self) -> dict[str, Any]:
        """The whole state, for /status, /metrics and `sebridge status`."""
        return report.snapshot(
            mode=self._config.approvals.mode,
            vm=self._identity.vm if self._identity else None,
            store=self._store,
            poller=self._poller,
            answers=self._imds.statuses,
            sinks=self._sinks,
            publishers=self._publishers,
        )


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run(config: Config) -> None:
    """Run the agent until SIGTERM or SIGINT; a second signal ends it at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            raise SystemExit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await Agent(config).run(stop)
    except* BridgeError as group:
        raise group.exceptions[0] from None
