"""From figures to docs/performance.md: the table of goals, the table of figures, the plot."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.bench.codec import Codec
from tests.bench.contestants import AGENT, BASH, FLOOR, NODE, SCRIPT
from tests.bench.measure import Idle, Latency
from tests.bench.plot import Group, bars

TIMES = "\N{MULTIPLICATION SIGN}"
BEGIN, END = "<!-- figures: make {} -->", "<!-- end of figures -->"


class Figures(NamedTuple):
    latency: dict[str, Latency]
    memory_latency: dict[str, Latency]  # with the ledger in memory: the disk's share taken out
    fsync: Latency  # of the disk itself, at the same time
    idle: dict[str, Idle]
    eventhubs_mb: float  # resident, with an identity and a live connection
    start_ms: dict[str, float]
    write: Codec
    read: Codec
    drain_a_s: tuple[float, float]  # ours, raw paho
    approval: Latency
    diff_ms: dict[int, float]
    missing: dict[str, str]  # who could not take part, and why


class Goal(NamedTuple):
    what: str
    goal: str
    found: str
    met: bool


def goals(f: Figures) -> list[Goal]:
    ours, script = f.latency[AGENT], f.latency[SCRIPT]
    idle, start_ms = f.idle[AGENT], f.start_ms[AGENT]
    found = [
        _at_most("change → subscriber, p50, beside the script", 1.6, ours.p50_ms / script.p50_ms),
        _below("change → subscriber, p99", 5.0, ours.p99_ms, "ms"),
        _at_most("CPU of an idle poll, beside the script", 0.7, idle.cpu_ms_a_poll / f.idle[SCRIPT].cpu_ms_a_poll),
        _below("resident memory, all on, over MQTT", 42, idle.resident_mb, "MB"),
        _below("resident memory, Event Hubs with identity", 70, f.eventhubs_mb, "MB"),
        _below("start to first poll", 350, start_ms, "ms"),
        _at_least("build and write a CloudEvent, the SDK's work", 9, f.write.sdk_us / f.write.alike_us),
        _at_least("decode a command, the SDK's work", 9, f.read.sdk_us / f.read.alike_us),
        _at_least("drain 10,000 events, beside raw paho", 0.6, f.drain_a_s[0] / f.drain_a_s[1]),
        _below("command → first byte of the POST, p99", 50, f.approval.p99_ms, "ms"),
        _below("diff of 10,000 events", 40, f.diff_ms[10_000], "ms"),
    ]  # fmt: skip
    if NODE in f.idle:
        ratio = idle.resident_mb / f.idle[NODE].resident_mb
        found.insert(4, _at_most("resident memory, beside Node", 0.65, ratio))
    return found


def _at_most(what: str, limit: float, ratio: float) -> Goal:
    return Goal(what, f"≤ {limit:g}{TIMES}", f"{ratio:.2f}{TIMES}", ratio <= limit)


def _at_least(what: str, limit: float, ratio: float) -> Goal:
    return Goal(what, f"≥ {limit:g}{TIMES}", f"{ratio:.2f}{TIMES}", ratio >= limit)


def _below(what: str, limit: float, value: float, unit: str) -> Goal:
    return Goal(what, f"≤ {limit:g} {unit}", f"{value:.3g} {unit}", value <= limit)


def markdown(f: Figures) -> str:
    names = [name for name in (AGENT, SCRIPT, NODE, BASH, FLOOR) if name in f.latency]
    rows = [
        row("", *names),
        row("---", *("---:" for _ in names)),
        row("change → subscriber, p50 ms", *(f"{f.latency[n].p50_ms:.2f}" for n in names)),
        row("change → subscriber, p99 ms", *(f"{f.latency[n].p99_ms:.2f}" for n in names)),
        row("CPU of an idle poll, ms", *(f"{f.idle[n].cpu_ms_a_poll:.2f}" for n in names)),
        row("resident memory, MB", *(f"{f.idle[n].resident_mb:.0f}" for n in names)),
        row("start to first poll, ms", *(f"{f.start_ms[n]:.0f}" for n in names)),
    ]
    judged = [row("", "goal", "found", ""), row("---", "---:", "---:", "---")]
    judged += [row(g.what, g.goal, g.found, "met" if g.met else "**missed**") for g in goals(f)]
    return "\n".join([_conditions(f), "", *judged, "", *rows, "", _details(f)])


def _conditions(f: Figures) -> str:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()} cores,"
        f" load average at the end {load}. The disk under the ledger at the same time: fsync p50"
        f" {f.fsync.p50_ms:.2f} ms, p99 {f.fsync.p99_ms:.2f} ms; every change waits for one."
    )


def _details(f: Figures) -> str:
    memory, alone = f.memory_latency[AGENT], f.memory_latency[SCRIPT]
    diffs = ", ".join(f"{count:,} events {ms:.3g} ms" for count, ms in f.diff_ms.items())
    missing = "".join(f"\n- {name} did not take part: {why}." for name, why in f.missing.items())
    return f"""\
- With the ledger on a RAM disk, so that the disk's share is gone: p50 {memory.p50_ms:.2f} ms, p99
  {memory.p99_ms:.2f} ms, {memory.p50_ms / alone.p50_ms:.2f}{TIMES} the script in the same minute.
- CloudEvent written: {f.write.alike_us:.1f} µs from ready values, SDK {f.write.sdk_us:.1f} µs; with what the SDK leaves to its
  caller, from the transition on, {f.write.whole_us:.1f} µs ({f.write.sdk_us / f.write.whole_us:.1f}{TIMES}).
- Command decoded: {f.read.alike_us:.1f} µs, SDK {f.read.sdk_us:.1f} µs; with every check that the SDK does not make,
  {f.read.whole_us:.1f} µs ({f.read.sdk_us / f.read.whole_us:.1f}{TIMES}).
- Drain: {f.drain_a_s[0]:.0f} events a second, two messages each, a commit for every hundred; raw paho
  {f.drain_a_s[1]:.0f} with the same messages and window.
- Approval: p50 {f.approval.p50_ms:.1f} ms, p99 {f.approval.p99_ms:.1f} ms, two commits on the way.
- Diff: {diffs}.{missing}"""


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def plot(f: Figures) -> str:
    def group(title: str, unit: str, values: dict[str, float]) -> Group:
        return Group(title, unit, {name: value for name, value in values.items() if name != BASH})

    return bars(
        [
            group("Change at IMDS to message at a subscriber, median", "ms", {n: v.p50_ms for n, v in f.latency.items()}),
            group("CPU of an idle poll", "ms", {n: v.cpu_ms_a_poll for n, v in f.idle.items()}),
            group("Resident memory", "MB", {n: v.resident_mb for n, v in f.idle.items()}),
            group("Start to first poll", "ms", f.start_ms),
        ],
        AGENT,
    )  # fmt: skip


def put(page: Path, target: str, text: str) -> None:
    """Between the two marks of the page; the prose around them stays."""
    begin = BEGIN.format(target)
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(END)
    assert mark, f"{page}: no figures of make {target}"
    page.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}", encoding="utf-8")
