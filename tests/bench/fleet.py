"""`make bench-fleet`: fleets of growing size, one after the other; table and curve of docs/scaling.md."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from tests.bench.contestants import ROOT
from tests.bench.growth import Curve, curves
from tests.bench.report import put, row

SIZES = (500, 1_000, 2_500, 5_000)
ROWS = {
    "polls a second, of one an agent": ("polls_kept", ".3f"),
    "all online and polling, s": ("start_s", ".0f"),
    "agents' CPU a poll, ms": ("agent_cpu_ms_a_poll", ".2f"),
    "agents' CPU, cores": ("agent_cores", ".2f"),
    "driver's CPU (IMDS of all, operator), cores": ("driver_cores", ".2f"),
    "broker's CPU at rest, cores": ("broker_cores", ".3f"),
    "memory an agent, KB": ("kb_an_agent", ".0f"),
    "mass event: all published, s": ("mass_published_s", ".1f"),
    "mass event: all approved, s": ("mass_approved_s", ".1f"),
    "mass event: broker's CPU, s": ("mass_broker_cpu_s", ".2f"),
    "broker restart: half are back, s": ("storm_back_half_s", ".1f"),
    "broker restart: all are back, s": ("storm_back_all_s", ".1f"),
    "and all of the outage is published, s": ("storm_published_s", ".1f"),
    "and approved, s": ("storm_approved_s", ".1f"),
}
FAULTS = ("lost", "twice", "posted_twice", "not_posted")
ACTS = ("mass", "storm")


def measure(size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bridge", "simulate", "--fleet", str(size), "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def table(found: list[dict[str, Any]], load: float) -> str:
    faults = [
        "/".join(str(sum(one[f"{act}_{fault}"] for act in ACTS)) for fault in FAULTS)
        for one in found
    ]
    circumstances = (
        f"{datetime.now(UTC):%Y-%m-%d}, one run for each size, {os.cpu_count()} cores for "
        f"everything (agents, IMDS, operator, broker), load average at the end {load:.1f}."
    )
    lines = [
        row("agents", *(f"{one['agents']:,}" for one in found)),
        row("---", *("---:" for _ in found)),
        *(
            row(title, *(format(one[name], form) for one in found))
            for title, (name, form) in ROWS.items()
        ),
        row("lost, twice, posted twice, not posted", *faults),
        "",
        circumstances,
    ]
    return "\n".join(lines)


def main() -> None:
    found = []
    for size in SIZES:
        sys.stderr.write(f"{size} agents\n")
        found.append(measure(size))
    text = table(found, os.getloadavg()[0])
    sys.stdout.write(f"{text}\n")
    put(ROOT / "docs" / "scaling.md", "bench-fleet", text)
    drawn = [
        Curve("all approved", "approved", [one["mass_approved_s"] for one in found]),
        Curve("all published", "published", [one["mass_published_s"] for one in found]),
    ]
    (ROOT / "docs" / "scaling.svg").write_text(curves(SIZES, drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
