"""`make bench`: everything in one run, so that ratios compare like with like."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import codec, eventhubs, measure, report
from tests.bench.contestants import AGENT, ROOT, SCRIPT, Contestant, Workshop
from tests.bench.measure import Latency
from tests.support.mosquitto import Mosquitto

RAM_DISK = Path("/dev/shm")
# The broker must not be what is measured: no limits on what it may hold or have in flight.
BROKER = ("allow_anonymous true", "max_queued_messages 0", "max_inflight_messages 0")


async def measure_all(folder: Path, quick: bool) -> report.Figures:
    workshop = Workshop(folder)
    everyone = workshop.contestants()
    present = [c for c in everyone if not c.missing]
    changes, seconds, runs, commands = (30, 10, 2, 30) if quick else (300, 60, 10, 200)
    (folder / "broker").mkdir()
    with Mosquitto(folder / "broker", BROKER) as broker:
        port = broker.port
        say("latency")
        latency = await measure.latency(present, workshop, port, changes)
        fsync = disk(folder)
        memory_latency = await without_disk(present, port, changes)
        say("idle cost")
        idle = await measure.idle(present, workshop, port, seconds)
        say("start")
        start_ms = await measure.start(present, workshop, port, runs)
        say("approval")
        approval = await measure.approval(workshop, port, commands)
        say("drain")
        drain = await measure.drain(workshop, port, 1_000 if quick else 10_000)
    say("Event Hubs")
    eventhubs_mb = await eventhubs.resident(workshop)
    say("codec")
    return report.Figures(
        latency=latency,
        memory_latency=memory_latency,
        fsync=fsync,
        idle=idle,
        eventhubs_mb=eventhubs_mb,
        start_ms=start_ms,
        write=codec.write_cloudevent(),
        read=codec.read_command(),
        drain_a_s=drain,
        approval=approval,
        diff_ms={count: codec.diff_documents(count) for count in (10, 100, 1_000, 10_000)},
        missing={c.name: c.missing for c in everyone if c.missing},
    )


async def without_disk(present: list[Contestant], port: int, changes: int) -> dict[str, Latency]:
    """The agent's ledger in memory: what is left is the program's own time."""
    with tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="sebridge-bench-") as folder:
        workshop = Workshop(Path(folder))
        pair = [Contestant(AGENT, workshop.agent, c.topic) if c.name == AGENT else c
                for c in present if c.name in {AGENT, SCRIPT}]  # fmt: skip
        return await measure.latency(pair, workshop, port, changes)


def disk(folder: Path) -> Latency:
    """What one fsync costs here, now, with nothing else on its way."""
    took_ms = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(200):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began) * 1000)
    return measure.latency_of(took_ms)


def say(what: str) -> None:
    load = os.getloadavg()[0]
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {what} (load {load:.1f})\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a minute, for trying the bench itself"
    )
    parser.add_argument("--write", action="store_true", help="put the figures into docs/")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sebridge-bench-") as folder:
        figures = asyncio.run(measure_all(Path(folder), args.quick))
    text = report.markdown(figures)
    sys.stdout.write(f"{text}\n")
    if args.write:
        report.put(ROOT / "docs" / "performance.md", "bench", text)
        (ROOT / "docs" / "performance.svg").write_text(report.plot(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
