"""The measurements that need processes: latency, idle cost, start, approval, drain."""

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bridge.core.cloudevents import ApprovalInfo, Vm, from_transition
from bridge.core.diff import Transition
from bridge.core.document import decode
from bridge.store import Draft, Store
from tests.bench.contestants import (
    Contestant,
    EndedEarly,
    Workshop,
    cpu_s,
    resident_mb,
    running,
)
from tests.bench.fake_imds import IDENTITY, FakeImds, scheduled_event
from tests.bench.raw_mqtt import Client

WAIT_S = 20.0
ROOT_TOPIC = "sebridge/v1/rg/web_3"
VM = Vm(name="web_3", vm_id=IDENTITY["compute"]["vmId"])
WINDOW = 20  # mqtt.inflight_max
ROUNDS = 5
DRAINS = 3
WARM_UP = 10  # changes: connections, caches and lazy imports


class Latency(NamedTuple):
    p50_ms: float
    p99_ms: float


class Idle(NamedTuple):
    cpu_ms_a_poll: float
    resident_mb: float


async def until(condition: Callable[[], object], what: str, seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        await asyncio.sleep(0.005)


async def latency(
    contestants: list[Contestant], workshop: Workshop, port: int, changes: int
) -> dict[str, Latency]:
    """From the changed document leaving IMDS to its message at a subscriber.

    In turns: a machine that is slower for a minute is slower for all of them. The p99 is the
    median of the rounds', or the one time that the host stands still would speak for all.
    """
    rounds: dict[str, list[list[float]]] = {contestant.name: [] for contestant in contestants}
    for _ in range(ROUNDS):
        for contestant in contestants:
            turn = await _turn(contestant, workshop, port, changes // ROUNDS)
            rounds[contestant.name].append(turn)
    return {name: _over_rounds(found) for name, found in rounds.items()}


def _over_rounds(rounds: list[list[float]]) -> Latency:
    each = [latency_of(found) for found in rounds]
    p50_ms = statistics.median([took_ms for found in rounds for took_ms in found])
    return Latency(p50_ms, statistics.median([one.p99_ms for one in each]))


def latency_of(took_ms: list[float]) -> Latency:
    return Latency(statistics.median(took_ms), statistics.quantiles(took_ms, n=100)[98])


async def _turn(contestant: Contestant, workshop: Workshop, port: int, changes: int) -> list[float]:
    imds, seen = FakeImds(), dict[bytes, float]()
    endpoint = await imds.start()

    def note(_: str, payload: bytes) -> None:
        mark = payload.partition(b"change-")[2][:8]
        seen.setdefault(mark, time.perf_counter())

    client = await Client.open(port, contestant.topic, note)
    took_ms = []
    with running(contestant.command(endpoint, port, 0.05), workshop.folder):
        for number in range(changes + WARM_UP):
            mark = b"%08d" % number
            imds.set([scheduled_event(1, f"change-{mark.decode()}")])
            await until(lambda mark=mark: mark in seen, f"{contestant.name}: {mark!r}")  # type: ignore[misc]
            assert imds.changed_at is not None
            took_ms.append((seen[mark] - imds.changed_at) * 1000)
    client.close()
    imds.stop()
    return took_ms[WARM_UP:]


async def idle(
    contestants: list[Contestant], workshop: Workshop, port: int, seconds: float
) -> dict[str, Idle]:
    """All of them side by side, one poll a second, nothing happening."""
    worlds: list[tuple[Contestant, FakeImds, int]] = []
    with contextlib.ExitStack() as stack:
        for contestant in contestants:
            imds = FakeImds()
            command = contestant.command(await imds.start(), port, 1.0)
            worlds.append(
                (contestant, imds, stack.enter_context(running(command, workshop.folder)).pid)
            )
        await asyncio.sleep(8)  # starting is measured apart
        before = [(cpu_s(pid), imds.polls) for _, imds, pid in worlds]
        await asyncio.sleep(seconds)
        found = {}
        for (contestant, imds, pid), (cpu_before_s, polls) in zip(worlds, before, strict=True):
            cpu_ms = (cpu_s(pid) - cpu_before_s) * 1000 / (imds.polls - polls)
            found[contestant.name] = Idle(cpu_ms, resident_mb(pid))
    for _, imds, _ in worlds:
        imds.stop()
    return found


async def start(
    contestants: list[Contestant], workshop: Workshop, port: int, runs: int
) -> dict[str, float]:
    """Milliseconds from fork to the first poll, in turns."""
    took_ms: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for _ in range(runs + 1):
        for contestant in contestants:
            took_ms[contestant.name].append(await _start(contestant, workshop, port))
    return {name: statistics.median(found[1:]) for name, found in took_ms.items()}  # 1st compiles


async def _start(contestant: Contestant, workshop: Workshop, port: int) -> float:
    imds = FakeImds()
    command = contestant.command(await imds.start(), port, 1.0)
    began = time.perf_counter()
    with running(command, workshop.folder):
        await until(lambda: imds.first_poll_at, f"{contestant.name} polls")
    assert imds.first_poll_at is not None
    imds.stop()
    return (imds.first_poll_at - began) * 1000


async def approval(workshop: Workshop, port: int, commands: int) -> Latency:
    """From a command given to the broker to the first byte of its POST at IMDS."""
    imds, outcomes = FakeImds(), list[str]()
    events = [scheduled_event(number) for number in range(commands)]
    client = await Client.open(port, f"{ROOT_TOPIC}/#", lambda topic, _: outcomes.append(topic))
    took_ms = []
    with running(workshop.agent(await imds.start(), port, 0.2), workshop.folder):
        imds.set(events)
        await until(lambda: outcomes.count(f"{ROOT_TOPIC}/events") == commands, "announcements")
        for number, event in enumerate(events):
            event_id = event["EventId"]
            began = time.perf_counter()
            client.publish(f"{ROOT_TOPIC}/commands", _command(number, event_id))
            await until(lambda: outcomes.count(f"{ROOT_TOPIC}/outcomes") > number, "an outcome")  # noqa: B023
            took_ms.append((imds.posted_at[event_id] - began) * 1000)
            await asyncio.sleep(1 / 15)  # below commands.per_s_max, or the pace is measured
    client.close()
    imds.stop()
    return latency_of(took_ms)


def _command(number: int, event_id: str) -> bytes:
    return json.dumps(
        {
            "specversion": "1.0",
            "id": f"bench-{number}",
            "source": "/bench",
            "type": "io.sebridge.approve.v1",
            "time": datetime.now(UTC).isoformat(),
            "data": {"eventId": event_id},
        }
    ).encode()


async def drain(workshop: Workshop, port: int, events: int) -> tuple[float, float]:
    """Events a second, for the agent after an outage and for paho alone with the same messages.

    The best of three each, in turns: whatever else the machine does can only slow them down.
    """
    rates = [await _drain(workshop, port, events, number) for number in range(DRAINS)]
    return max(ours for ours, _ in rates), max(theirs for _, theirs in rates)


async def _drain(workshop: Workshop, port: int, events: int, number: int) -> tuple[float, float]:
    folder = workshop.folder / f"drain{number}"
    folder.mkdir()
    messages = folder / "messages.jsonl"
    imds = FakeImds()
    imds.set([scheduled_event(1)])
    _fill(folder, messages, imds.document, events)
    agent = workshop.agent_on(folder, await imds.start(), port, 1.0)
    ours = await _rate(workshop, agent, port, events)
    imds.stop()
    peer = Path(__file__).parent / "peers" / "raw_paho.py"
    raw = [str(workshop.python), str(peer), str(port), str(WINDOW), str(messages)]
    theirs = await _rate(workshop, raw, port, events)
    return ours, theirs


def _fill(folder: Path, messages: Path, raw_document: bytes, events: int) -> None:
    """A ledger as an outage leaves it: one event that changed so many times."""
    now = datetime.now(UTC)
    document = decode(raw_document)
    transition = Transition(kind="updated", scheduled_event=document.scheduled_events[0])
    cloudevent = from_transition(
        transition,
        document,
        vm=VM,
        leader=True,
        approval=ApprovalInfo(topic=f"{ROOT_TOPIC}/commands", token="t" * 22, state="none"),
        now=now,
    )
    event_id = transition.scheduled_event.event_id
    draft = Draft(cloudevent=cloudevent, event_id=event_id, token="t" * 22)
    store = Store.open(folder / "state.db", now=now)
    store.set_sinks(["mqtt"])
    store.record(raw_document, [draft] * events, [], now)
    with messages.open("w") as file:
        for row in store.batch("mqtt", events):
            for topic, retain in (
                (f"{ROOT_TOPIC}/events", False),
                (f"{ROOT_TOPIC}/pending/{event_id}", True),
            ):
                file.write(json.dumps([topic, row.cloudevent.decode(), retain]) + "\n")
    store.close()


async def _rate(workshop: Workshop, command: list[str], port: int, events: int) -> float:
    arrived: list[float] = []
    client = await Client.open(
        port, f"{ROOT_TOPIC}/events", lambda *_: arrived.append(time.perf_counter())
    )
    with contextlib.suppress(EndedEarly), running(command, workshop.folder):
        await until(lambda: len(arrived) >= events, "the last event", 300)
    client.close()
    assert len(arrived) >= events, f"{len(arrived)} of {events} events came"
    return (events - 1) / (arrived[events - 1] - arrived[0])
