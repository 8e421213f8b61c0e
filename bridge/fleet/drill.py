"""What happens to the fleet, act by act, and the figures of each."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from bridge.errors import BridgeError
from bridge.fleet.machines import Machines
from bridge.fleet.operator import Operator, Tally, approvals
from bridge.fleet.worker import Share

APPROVED = "io.sebridge.approval.approved.v1"
# A fleet has a disk for each VM and this machine has one: its speed would be all that is measured.
RAM_DISK = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
_AGENTS_STARTED_PER_S = 150.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    agents: int
    processes: int
    mqtt: tuple[str, int] | None  # None: a mosquitto of our own, which can be restarted
    steady_s: float
    patience_s: float


class Broker:
    """Somebody's, or our own mosquitto."""

    def __init__(self, folder: Path, address: tuple[str, int] | None) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.is_ours = address is None
        self.host, self.port = address or ("127.0.0.1", _free_port())

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        if not self.is_ours:
            return
        binary = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if binary is None:
            raise BridgeError(
                "no mosquitto here: install it, or name a broker with --mqtt HOST:PORT"
            )
        config = self._folder / "mosquitto.conf"
        lines = (
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            "set_tcp_nodelay true",
            "max_queued_messages 0",
            "max_connections -1",
            "persistence true",
            f"persistence_location {self._folder}/",
            f"user {os.environ.get('USER', 'root')}",
        )
        config.write_text("\n".join([*lines, ""]), encoding="utf-8")
        with (self._folder / "mosquitto.log").open("ab") as log:
            self._process = subprocess.Popen([binary, "-c", str(config)], stdout=log, stderr=log)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(60)


class Drill:
    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._workers: list[subprocess.Popen[bytes]] = []
        self.figures: dict[str, Any] = {"agents": plan.agents, "processes": plan.processes}

    async def run(self) -> dict[str, Any]:
        with _folder() as name:
            folder = Path(name)
            broker = Broker(folder, self._plan.mqtt)
            broker.start()
            try:
                await self._acts(folder, broker)
            finally:
                self._end_workers()
                broker.stop()
        return self.figures

    async def _acts(self, folder: Path, broker: Broker) -> None:
        machines = Machines(self._plan.agents)
        endpoint = await machines.start()
        operator = Operator(broker.host, broker.port)
        await _retry(operator.start)
        await self._start(folder, endpoint, broker, machines, operator)
        await self._steady(broker, machines)
        await self._mass_event(machines, operator, broker, "mass")
        if broker.is_ours:
            await self._storm(machines, operator, broker)
        operator.stop()
        await machines.stop()

    async def _start(
        self, folder: Path, endpoint: str, broker: Broker, machines: Machines, operator: Operator
    ) -> None:
        count, processes = self._plan.agents, self._plan.processes
        self._say(f"starting {count} agents in {processes} processes")
        began = time.monotonic()
        bounds = [count * share // processes for share in range(processes + 1)]
        for first, last in pairwise(bounds):
            self._start_worker(
                Share(
                    first=first,
                    count=last - first,
                    endpoint=endpoint,
                    mqtt_host=broker.host,
                    mqtt_port=broker.port,
                    folder=str(folder),
                    start_s=count / _AGENTS_STARTED_PER_S,
                )
            )
        await self._until(lambda: len(operator.online) == count, "all are online")
        await self._until(lambda: len(machines.polled) == count, "all have polled")
        self.figures["start_s"] = time.monotonic() - began
        for worker in self._workers:
            worker.send_signal(signal.SIGUSR1)

    def _start_worker(self, share: Share) -> None:
        argument = msgspec.json.encode(share).decode()
        command = [sys.executable, "-m", "bridge.fleet.worker", argument]
        self._workers.append(subprocess.Popen(command))

    async def _steady(self, broker: Broker, machines: Machines) -> None:
        self._say(f"steady state for {self._plan.steady_s:g} s")
        pids = [worker.pid for worker in self._workers]
        before = machines.polls, _cpu_s(pids), _cpu_s([broker.pid]), _cpu_s([os.getpid()])
        began = time.monotonic()
        await asyncio.sleep(self._plan.steady_s)
        took_s = time.monotonic() - began
        polls = machines.polls - before[0]
        agents_s, broker_s = _cpu_s(pids) - before[1], _cpu_s([broker.pid]) - before[2]
        self.figures |= {
            "polls_a_s": polls / took_s,
            "polls_kept": polls / took_s / self._plan.agents,
            "agent_cpu_ms_a_poll": agents_s / max(polls, 1) * 1000,
            "agent_cores": agents_s / took_s,
            "broker_cores": broker_s / took_s,
            "driver_cores": (_cpu_s([os.getpid()]) - before[3]) / took_s,
            "kb_an_agent": _resident_kb(pids) / self._plan.agents,
        }

    async def _mass_event(
        self, machines: Machines, operator: Operator, broker: Broker, name: str
    ) -> None:
        count = self._plan.agents
        self._say(f"{name}: every VM gets a Terminate")
        broker_s, messages = _cpu_s([broker.pid]), operator.messages
        tally = operator.begin(machines.terminate_all())
        await self._until(lambda: len(tally.events) == count, f"{name}: all are published")
        await self._until(lambda: len(tally.outcomes) == count, f"{name}: all are answered")
        self.figures |= {
            f"{name}_published_s": tally.last_event_at - machines.changed_at,
            f"{name}_approved_s": tally.last_outcome_at - machines.changed_at,
            f"{name}_broker_cpu_s": _cpu_s([broker.pid]) - broker_s,
            f"{name}_messages": operator.messages - messages,
        }
        self._judge(machines, tally, name)

    def _judge(self, machines: Machines, tally: Tally, name: str) -> None:
        """Lost is what never came; twice is a second POST, or a second id for the same event."""
        ids = [machines.event_id(number) for number in range(self._plan.agents)]
        self.figures |= {
            f"{name}_lost": sum(event_id not in tally.events for event_id in ids),
            f"{name}_twice": sum(len(found) > 1 for found in tally.events.values()),
            f"{name}_approved": approvals(tally)[APPROVED],
            f"{name}_posted_twice": sum(machines.posts[event_id] > 1 for event_id in ids),
            f"{name}_not_posted": sum(machines.posts[event_id] == 0 for event_id in ids),
        }

    async def _storm(self, machines: Machines, operator: Operator, broker: Broker) -> None:
        """The broker restarts while every VM gets its next Terminate."""
        count = self._plan.agents
        self._say("the broker restarts, and every VM gets another Terminate meanwhile")
        operator.stop()
        broker.stop()
        tally = operator.begin(machines.terminate_all())
        await asyncio.sleep(3.0)  # everybody polls it, and nobody can publish
        operator.online.clear()
        began = time.monotonic()
        broker.start()
        await _retry(operator.start)
        await self._until(lambda: len(operator.online) == count, "all are back")
        back = sorted(at - began for at in operator.online.values())
        await self._until(lambda: len(tally.events) == count, "storm: all are published")
        await self._until(lambda: len(tally.outcomes) == count, "storm: all are answered")
        self.figures |= {
            "storm_back_half_s": back[len(back) // 2],
            "storm_back_all_s": back[-1],
            "storm_published_s": tally.last_event_at - began,
            "storm_approved_s": tally.last_outcome_at - began,
        }
        self._judge(machines, tally, "storm")

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._plan.patience_s
        while not condition():
            for worker in self._workers:
                if worker.poll() is not None:
                    raise BridgeError(
                        f"a worker ended with {worker.returncode}: see its lines above"
                    )
            if time.monotonic() > deadline:
                raise BridgeError(f"not within {self._plan.patience_s:g} s: {what}; {self.figures}")
            await asyncio.sleep(0.05)

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()


def _folder() -> tempfile.TemporaryDirectory[str]:
    where = RAM_DISK if RAM_DISK.is_dir() else None
    return tempfile.TemporaryDirectory(prefix="sebridge-fleet-", dir=where)


async def _retry(start: Callable[[], Awaitable[None]]) -> None:
    """A broker that was just started listens in a moment."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            await start()
            return
        await asyncio.sleep(0.1)
    raise BridgeError("the broker does not listen")


def _cpu_s(pids: list[int | None] | list[int]) -> float:
    return sum(_stat(pid) for pid in pids if pid is not None)


def _stat(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _resident_kb(pids: list[int]) -> int:
    return sum(_resident(pid) for pid in pids)


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
