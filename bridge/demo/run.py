"""The demo from its first port to its last process.

One process for the simulators, the broker, the console and the view; one for each VM's agent.
Whatever ends it, Ctrl-C, SIGTERM, the time or a failure, everything is stopped in order: view,
console, agents, simulators, broker, folder.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bridge.config import Config, Console, Mqtt
from bridge.console.server import serve
from bridge.demo import files, words
from bridge.demo.broker import DemoBroker
from bridge.demo.director import Director
from bridge.demo.machines import Machine, stop_all
from bridge.demo.plain import Plain
from bridge.demo.screen import Heading, Screen, is_terminal
from bridge.demo.stage import Stage
from bridge.demo.story import AUDITED, SCALE_SETS, SHORTEN
from bridge.errors import BridgeError
from bridge.feed_choice import make_feed
from bridge.simulator.server import Simulator
from bridge.simulator.server import start as start_simulator
from bridge.simulator.settings import parse_instances

HOST = "127.0.0.1"
_TICK_S = 0.2
_ONLINE_S_MAX = 30.0


async def run(*, headless: bool, duration_s: float, port: int) -> str:
    """Until a signal comes or the time is up; returns a summary of what was seen."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if duration_s > 0:
        loop.call_later(duration_s, stop.set)
    plain = headless or not is_terminal(sys.stdout)
    with tempfile.TemporaryDirectory(prefix="sebridge-", ignore_cleanup_errors=True) as folder:
        demo = Demo(Path(folder), Plain(sys.stdout) if plain else Screen(sys.stdout))
        try:
            await demo.start(port)
            await demo.play(stop)
        finally:
            await demo.stop()
    return demo.summary()


async def start_console(
    host: str, broker_port: int, stop: asyncio.Event
) -> tuple[str, asyncio.Task[None]]:
    """The web console of this fleet: its URL, and the task that serves it until `stop`."""
    mqtt = Mqtt(host=host, port=broker_port, protocol="3.1.1")
    config = Config(mqtt=mqtt, console=Console(listen=f"{host}:0"))
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(config, make_feed(config), stop=stop, on_ready=url.set_result), name="console"
    )
    await asyncio.wait((url, serving), return_when=asyncio.FIRST_COMPLETED)
    if not url.done():
        await serving  # raises what kept it from starting
    return url.result(), serving


class Demo:
    def __init__(self, folder: Path, view: Plain | Screen) -> None:
        self._folder = folder
        self._view = view
        self._began_s = time.monotonic()
        self._machines: dict[str, Machine] = {}
        self._simulators: list[Simulator] = []
        self._heading = Heading(lapse="", places=(), approve="")
        zones = {
            vm.name: vm.zone
            for settings in SCALE_SETS
            for vm in parse_instances(settings.instances, settings.scale_set)
        }
        self._stage = Stage(zones, self._elapsed_s)
        self._broker = DemoBroker(HOST, self._stage.receive)
        self._console: asyncio.Task[None] | None = None
        self._console_stop = asyncio.Event()

    async def start(self, port: int) -> None:
        try:
            await self._broker.start(port)
            for settings in SCALE_SETS:
                self._simulators.append(await start_simulator(settings))
            operator = files.write_operator(self._folder, HOST, self._broker.port)
            self._boot_machines()
        except OSError as error:
            raise BridgeError(f"the demo cannot start: {error}") from error
        port = self._broker.port
        console_url, self._console = await start_console(HOST, port, self._console_stop)
        self._heading = self._make_heading(operator, console_url)
        self._view.open(self._heading)
        self._stage.say("demo", f"{len(self._machines)} agents start, one process for each VM.")

    async def play(self, stop: asyncio.Event) -> None:
        """Until `stop`: let things happen, and show them."""
        worlds = [simulator.world for simulator in self._simulators]
        director = Director(worlds, self._machines, self._stage)
        while not stop.is_set():
            director.step()
            if not director.has_begun and self._elapsed_s() > _ONLINE_S_MAX:
                raise BridgeError(self._explain_silence())
            self._view.draw(self._heading, self._stage, datetime.now(UTC))
            try:
                async with asyncio.timeout(_TICK_S):
                    await stop.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        self._view.close()
        self._console_stop.set()
        if self._console is not None:
            await self._console
        # In a thread: agents say goodbye to the broker, which lives in this loop.
        await asyncio.to_thread(stop_all, self._machines.values())
        for simulator in self._simulators:
            await simulator.stop()
        await self._broker.stop()

    def summary(self) -> str:
        counts = self._stage.counts
        transitions = ("scheduled", "started", "completed", "canceled")
        posted = [
            event_id
            for simulator in self._simulators
            for request in simulator.world.start_requests
            if request.taken
            for event_id in request.event_ids
        ]
        return (
            f"Seen in {words.minutes(self._elapsed_s())}:"
            f" {', '.join(f'{counts[name]} {name}' for name in transitions)}.\n"
            f"Approvals: {counts['approved']} approved, {counts['rejected']} refused,"
            f" {counts['in-doubt']} in doubt.\n"
            f"StartRequests that IMDS got: {len(posted)}, different EventIds in them:"
            f" {len(set(posted))}.\n"
            f"VMs gone: {', '.join(self._stage.gone) or 'none'}."
        )

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def _boot_machines(self) -> None:
        for simulator in self._simulators:
            for vm in simulator.world.fleet.vms:
                endpoint = simulator.endpoint(vm.name)
                config = files.write_agent(self._folder, vm.name, endpoint, HOST, self._broker.port)
                machine = Machine(vm.name, simulator.world, config, self._stage.say)
                self._machines[vm.name] = machine
                machine.boot()

    def _explain_silence(self) -> str:
        """The folder is about to be removed, so the end of a log goes into the message."""
        log = self._folder / f"{AUDITED}.log"
        last = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
        return f"not all agents came online in {_ONLINE_S_MAX:g} s; one said: " + " / ".join(last)

    def _make_heading(self, operator: Path, console_url: str) -> Heading:
        program = _program()
        azure = self._simulators[0].url
        places = [
            ("events", f"mosquitto_sub -p {self._broker.port} -t 'sebridge/#' -v"),
            ("watch", f"{program} watch --config {operator}"),
            ("audit", f"{program} audit --config {self._folder / AUDITED}.toml"),
            ("scale-in", f"curl -d '{{\"count\": 1}}' {azure}/control/scale-in"),
        ]
        places.insert(0, ("console", console_url))
        return Heading(
            lapse=f"Time lapse: for web notices are {SHORTEN:g} times shorter;"
            " spot runs in real time.",
            places=tuple(places),
            approve=f"{program} approve {{event_id}} --config {operator}",
        )


def _program() -> str:
    """How this program was called, as a shell in the same folder would call it again."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{_shorter(Path(sys.executable))} -m bridge"
    return _shorter(called)


def _shorter(path: Path) -> str:
    absolute = str(path.absolute())
    relative = os.path.relpath(absolute)
    if os.sep not in relative:
        relative = f".{os.sep}{relative}"
    return min(absolute, relative, key=len)
