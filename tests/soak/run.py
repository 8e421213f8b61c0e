"""`make soak`: a hundred thousand polls with events, approvals, outages and broker restarts.

Usage: python -m tests.soak.run [POLLS]. After a warm-up nothing may grow: RSS by at most 1 MiB,
descriptors, threads and tasks not at all. Prints a table; exits 1 if something grew.
"""

import asyncio
import contextlib
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.mosquitto import Mosquitto
from tests.support.scripted_imds import DROP, RESET, Action, Request, ScriptedImds, answer

POLLS = 100_000
SAMPLES = 40
WARM_UP = 0.4  # SQLite's page cache and the allocator's arenas fill up first
DRIFT_KIB_MAX = 1024
EVENT_POLLS = 200  # a new event every so many polls: scheduled, approved, started, gone
OUTAGE_POLLS = 1_500
RESTARTS = 25
ROOT = "sebridge/v1/rg/web_3"
CONFIG = """
[imds]
endpoint = "{endpoint}"
poll_interval_s = 0.001
requests_per_s_max = 100000
[store]
path = "{folder}/state.db"
[mqtt]
port = {port}
reconnect_s_max = 0.2
[approvals]
answer_timeout_s = 0.5
[http]
listen = ""
[log]
level = "error"
"""


class World:
    """IMDS: the document is a function of how often it was asked for."""

    def __init__(self) -> None:
        self.polls = 0
        self.posts = 0

    def script(self, request: Request) -> bytes | Action:
        if request.path.startswith("/metadata/instance"):
            compute = {"name": "web_3", "vmId": "id-3", "resourceGroupName": "rg"}
            return answer(200, msgspec.json.encode({"compute": compute}))
        if request.method == "POST":
            self.posts += 1
            return answer(200)
        self.polls += 1
        if self.polls % OUTAGE_POLLS < 4:
            return (answer(500), DROP, RESET, answer(200, b"{"))[self.polls % OUTAGE_POLLS]
        return answer(200, msgspec.json.encode(self.document()))

    def document(self) -> dict[str, Any]:
        number, phase = divmod(self.polls, EVENT_POLLS)
        entry = {
            "EventId": self.event_id(),
            "EventType": "Reboot",
            "Resources": ["web_3"],
            "EventStatus": "Scheduled" if phase < EVENT_POLLS // 2 else "Started",
            "NotBefore": "Mon, 19 Sep 2033 18:29:47 GMT" if phase < EVENT_POLLS // 2 else "",
        }
        entries = [entry] if 5 < phase < EVENT_POLLS * 3 // 4 else []
        return {"DocumentIncarnation": number * 4 + phase * 4 // EVENT_POLLS, "Events": entries}

    def event_id(self) -> str:
        return f"602D9444-D2CD-49C7-8624-{self.polls // EVENT_POLLS:012}"


class Sample(NamedTuple):
    polls: int
    rss_kib: int
    descriptors: int
    threads: int
    tasks: int
    objects: int


class Agent:
    def __init__(self, process: asyncio.subprocess.Process, report: Path) -> None:
        self.process = process
        self._report = report

    async def sample(self, polls: int) -> Sample:
        self._report.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(20):
            while not self._report.exists():
                await asyncio.sleep(0.01)
        inside = msgspec.json.decode(self._report.read_bytes())
        proc = Path("/proc", str(self.process.pid))
        rss = next(
            int(line.split()[1])
            for line in (proc / "status").read_text().splitlines()
            if line.startswith("VmRSS")
        )
        descriptors = len(list((proc / "fd").iterdir()))
        return Sample(
            polls, rss, descriptors, inside["threads"], inside["tasks"], inside["objects"]
        )


async def soak(polls: int, folder: Path) -> tuple[list[Sample], World, int]:
    world, restarts = World(), 0
    samples: list[Sample] = []
    (folder / "broker").mkdir()
    with Mosquitto(folder / "broker") as broker:
        async with ScriptedImds(world.script) as imds:
            config = folder / "agent.toml"
            text = CONFIG.format(endpoint=imds.endpoint, folder=folder, port=broker.port)
            config.write_text(text)
            agent = await start(config, folder / "report.json")
            sender = Client(CallbackAPIVersion.VERSION2, client_id="sender")
            sender.reconnect_delay_set(1, 1)
            sender.connect("127.0.0.1", broker.port)
            sender.loop_start()
            try:
                while world.polls < polls:
                    assert agent.process.returncode is None, (folder / "log").read_text()[-2000:]
                    imds.requests.clear()
                    send_command(sender, world)
                    if world.polls * RESTARTS // polls > restarts:
                        restarts += 1
                        await asyncio.to_thread(broker.restart)
                    if world.polls and world.polls * SAMPLES // polls >= len(samples):
                        samples.append(await agent.sample(world.polls))
                    await asyncio.sleep(0.05)
            finally:
                sender.disconnect()
                sender.loop_stop()
                with contextlib.suppress(ProcessLookupError):
                    agent.process.terminate()
                await agent.process.wait()
    return samples, world, restarts


async def start(config: Path, report: Path) -> Agent:
    with config.with_name("log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.soak.child", str(config), str(report),
            stdout=log, stderr=log,
        )  # fmt: skip
    return Agent(process, report)


def send_command(sender: Client, world: World) -> None:
    """Approve whatever is pending, again and again: most of it is a repetition."""
    event_id = world.event_id()
    command = {
        "specversion": "1.0",
        "id": event_id,
        "source": "/soak",
        "type": "io.sebridge.approve.v1",
        "data": {"eventId": event_id},
    }
    sender.publish(f"{ROOT}/commands", msgspec.json.encode(command), qos=1)


def judge(samples: list[Sample]) -> list[str]:
    """What grew after the warm-up."""
    warm = [s for s in samples if s.polls >= WARM_UP * samples[-1].polls]
    third = max(1, len(warm) // 3)
    first, last = warm[:third], warm[-third:]
    grown = []
    # Memory by its median. A POST or a reconnect may hold one thing more for a moment, so the
    # others by their least: what leaks raises that, too.
    for name in ("rss_kib", "descriptors", "threads", "tasks"):
        typical, allowed = (statistics.median, DRIFT_KIB_MAX) if name == "rss_kib" else (min, 0)
        before: float = typical([getattr(s, name) for s in first])
        after: float = typical([getattr(s, name) for s in last])
        print(f"{name:12} {before:10.0f} → {after:10.0f}   allowed growth {allowed}")
        if after - before > allowed:
            grown.append(name)
    return grown


def main() -> int:
    polls = int(sys.argv[1]) if len(sys.argv) > 1 else POLLS
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        samples, world, restarts = asyncio.run(soak(polls, Path(directory)))
    print(f"{'polls':>8} {'RSS KiB':>8} {'fds':>5} {'threads':>8} {'tasks':>6} {'objects':>8}")
    for sample in samples:
        polls_, rss, descriptors, threads, tasks, objects = sample
        print(f"{polls_:8} {rss:8} {descriptors:5} {threads:8} {tasks:6} {objects:8}")
    seconds = time.monotonic() - began
    print(
        f"{world.polls} polls, {world.posts} approvals posted, {restarts} broker restarts, "
        f"{seconds:.0f} s"
    )
    grown = judge(samples)
    print(f"grew: {', '.join(grown)}" if grown else "nothing grew")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
