"""The composition root: builds the parts, runs the loops, ends them in order.

start     ledger opened and recovered → READY → who am I? → transports and loops
run       poller, one publisher a sink, intake, approver, presence; one TaskGroup
shutdown  the loops end in their order (loops.py) → ledger closed
"""

import asyncio
import logging
import math
import os
import signal
from typing import Any

from bridge import health, metrics, report, sdnotify
from bridge.approver import cut_short
from bridge.assembly import load_verify
from bridge.clock import Clock, SystemClock
from bridge.config import Config
from bridge.errors import BridgeError, ImdsUnavailable, StoreError
from bridge.guest_heartbeat import GuestHeartbeat
from bridge.http import HttpServer
from bridge.imds import Identity, ImdsClient
from bridge.loops import Loops
from bridge.measures import Measures
from bridge.store import Store

logger = logging.getLogger("sebridge.app")

_IDENTITY_WAIT_S = 10.0  # after that a known VM starts with the identity in its ledger


class Agent:
    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._verify = load_verify(config.commands)
        self._store = Store.open(config.store.path, now=self._clock.now())
        self._imds = ImdsClient(config.imds, self._clock)
        self._identity: Identity | None = None
        self._is_confirmed = False  # by IMDS, in this life
        self._loops: Loops | None = None
        self._measures = Measures()
        self._http = HttpServer(
            config.http,
            healthy=self._not_healthy,
            ready=self._not_ready,
            metrics=self._metrics,
            status=self.status,
            audit=self._audit,
        )
        self._guest = GuestHeartbeat(
            config.service.heartbeat_file,
            self._clock,
            lambda: self._not_healthy() or self._not_ready(),
            patience_s=config.imds.first_timeout_s,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, or something fails that only a restart can mend."""
        try:
            if self._config.http.listen:
                await self._http.start()
            self._recover()
            self._guest.step()
            sdnotify.notify("READY=1")
            async with asyncio.TaskGroup() as group:
                watchdog = group.create_task(health.feed_watchdog(self._not_healthy))
                guest = group.create_task(self._guest.run(), name="guest heartbeat")
                identity = group.create_task(self._learn_identity(), name="identity")
                stopped = group.create_task(stop.wait(), name="stop")
                await asyncio.wait({identity, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if identity.done():
                    self._identity = identity.result()
                    self._loops = Loops(
                        self._config,
                        self._identity,
                        self._store,
                        self._imds,
                        self._clock,
                        measures=self._measures,
                        verify=self._verify,
                        confirm_identity=self._confirm_identity,
                    )
                    await self._loops.run(group, stop)
                for task in (watchdog, guest, identity, stopped):
                    task.cancel()
        finally:
            sdnotify.notify("STOPPING=1")
            self._guest.stop()
            await self._http.close()
            await self._imds.close()
            self._store.close()

    def status(self) -> dict[str, Any]:
        """The whole state, for /status, /metrics and `sebridge status`."""
        return report.snapshot(
            mode=self._config.approvals.mode,
            commands=self._config.commands.trust,
            vm=self._identity.vm if self._identity else None,
            store=self._store,
            poller=self._loops.poller if self._loops else None,
            answers=self._imds.statuses,
            sinks=self._loops.sinks if self._loops else {},
            publishers=self._loops.publishers if self._loops else {},
            now=self._clock.now(),
            source=self._loops.source if self._loops else None,
        )

    def _metrics(self) -> bytes:
        return metrics.render(self.status(), self._measures, self._store.commit_s)

    def _audit(self) -> list[dict[str, Any]]:
        return self._store.audit()

    def _recover(self) -> None:
        """Before anything else: what a crash cut short is in doubt, and says so."""
        raw = self._store.identity()
        if raw is None:
            return
        try:
            self._identity = Identity.from_json(raw)
        except StoreError as error:
            raise self._store.condemn(str(error)) from error
        if not self._store.durable:
            return  # an answer from memory would be forgotten, and another given at the next start
        vm, now = self._identity.vm, self._clock.now()
        in_doubt = self._store.recover(now, lambda row: cut_short(row, vm, now))
        if in_doubt:
            logger.warning("recovered", extra={"in_doubt": in_doubt})
            self._measures.answers["in-doubt", "in-doubt"] += in_doubt

    async def _learn_identity(self) -> Identity:
        """From IMDS; a VM that is known may start without it after a while."""
        known = self._identity
        identity = await self._ask_identity(_IDENTITY_WAIT_S if known else math.inf)
        if identity is None:
            assert known is not None
            logger.warning("IMDS is away; using the identity in the ledger")
            return known
        if known and known.vm.vm_id != identity.vm.vm_id:
            logger.warning("the ledger belongs to another VM: starting a new one")
            self._store.close()
            path, vm_id = self._config.store.path, identity.vm.vm_id
            self._store = Store.open(path, now=self._clock.now(), vm_id=vm_id)
        self._store.set_identity(identity.to_json(), identity.vm.vm_id)
        self._is_confirmed = True
        return identity

    async def _ask_identity(self, patience_s: float) -> Identity | None:
        """What IMDS says, or None when it says nothing for so long."""
        began, told = self._clock.elapsed_s(), ""
        while True:
            try:
                return await self._imds.get_identity()
            except ImdsUnavailable as error:
                if self._clock.elapsed_s() - began > patience_s:
                    return None
                if told != str(error):
                    told = str(error)
                    logger.warning("waiting for IMDS", extra={"why": told})
                await asyncio.sleep(1.0)

    async def _confirm_identity(self) -> None:
        """Before the first poll: in a copied image the ledger names another VM, whose events may
        well stand in this one's document."""
        if self._is_confirmed:
            return
        known, identity = self._identity, await self._ask_identity(math.inf)
        assert known is not None
        assert identity is not None
        if (identity.vm.vm_id, identity.vm.name) != (known.vm.vm_id, known.vm.name):
            raise StoreError(
                f"the ledger {self._config.store.path} is of VM {known.vm.name} {known.vm.vm_id}, "
                f"and this is {identity.vm.name} {identity.vm.vm_id}. Restart: what is another "
                "VM's is moved aside."
            )
        self._is_confirmed = True

    def _not_healthy(self) -> str:
        return health.problem(self._loops.pulses) if self._loops else ""

    def _not_ready(self) -> str:
        if self._loops is None:
            return "waiting for IMDS to say which VM this is"
        poller = self._loops.poller
        return "" if poller.is_ready else f"no good poll: {poller.problem}"


async def run(config: Config) -> None:
    """Run the agent until SIGTERM or SIGINT; a second signal ends it at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)  # the ledger is safe at any moment; whoever asks twice is in a hurry
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await Agent(config).run(stop)
    except* BridgeError as group:
        raise group.exceptions[0] from None
