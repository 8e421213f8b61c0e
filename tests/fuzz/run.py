"""`make fuzz`: a million nearly real inputs for every decoder, spread over the cores.

python -m tests.fuzz.run [--cases N] [--seed N] [--jobs N]
python -m tests.fuzz.run --target NAME --seed N --case N     shows one input again

Ends with 1 if a decoder raised, believed a forgery, or needed more than LIMIT_MS of processor time
for an input of at most 64 KiB.
"""

import argparse
import os
import random
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.fuzz.mutator import mutate
from tests.fuzz.targets import TARGETS, Target

LIMIT_MS = 5.0
BLOCK = 5_000
# Every so many cases a mutated bomb: 64 KiB made to keep a decoder busy.
BOMB_EVERY = 40
# A slow case is tried again: the collector and other processes must not be blamed on a decoder.
TRIES = 5


@dataclass
class Tally:
    cases: int = 0
    taken: int = 0
    worst_ms: float = 0.0
    worst_case: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.cases += other.cases
        self.taken += other.taken
        self.findings += other.findings
        if other.worst_ms > self.worst_ms:
            self.worst_ms, self.worst_case = other.worst_ms, other.worst_case


def make(target: Target, seed: int, case: int) -> bytes:
    rng = random.Random(f"{seed}/{case}")
    is_bomb = target.bombs and case % BOMB_EVERY == 0
    return mutate(target.bombs if is_bomb else target.seeds, rng)


def run_block(name: str, seed: int, first: int, count: int) -> Tally:
    target, tally = TARGETS[name], Tally(cases=count)
    for case in range(first, first + count):
        raw = make(target, seed, case)
        try:
            tally.taken += target.run(raw)
            spent_ms = _spent_ms(target, raw)
        except Exception:  # noqa: BLE001  # whatever it is, it is a finding
            where = f"{name!r} --seed {seed} --case {case}"
            tally.findings.append(f"{where}\n{traceback.format_exc(limit=-3)}")
            continue
        if spent_ms > tally.worst_ms:
            tally.worst_ms, tally.worst_case = spent_ms, case
        if spent_ms > LIMIT_MS:
            tally.findings.append(f"{name!r} --seed {seed} --case {case}: {spent_ms:.1f} ms")
    return tally


def _spent_ms(target: Target, raw: bytes) -> float:
    best = float("inf")
    for _ in range(TRIES):
        began = time.thread_time()
        target.run(raw)
        best = min(best, (time.thread_time() - began) * 1000)
        if best < LIMIT_MS / 5:
            break
    return best


def blocks(cases: int) -> Iterator[tuple[str, int, int]]:
    for name, target in TARGETS.items():
        mine = -(-cases * target.share // 100)
        for first in range(0, mine, BLOCK):
            yield name, first, min(BLOCK, mine - first)


def run_all(cases: int, seed: int, jobs: int) -> dict[str, Tally]:
    tallies = {name: Tally() for name in TARGETS}
    with ProcessPoolExecutor(jobs) as pool:
        work = [
            (name, pool.submit(run_block, name, seed, first, count))
            for name, first, count in blocks(cases)
        ]
        for name, future in work:
            tallies[name].add(future.result())
    return tallies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--case", type=int)
    args = parser.parse_args()
    if args.target and args.case is not None:
        raw = make(TARGETS[args.target], args.seed, args.case)
        sys.stdout.buffer.write(raw)
        TARGETS[args.target].run(raw)
        return 0
    began = time.monotonic()
    tallies = run_all(args.cases, args.seed, args.jobs)
    print(f"{'TARGET':<20} {'CASES':>9} {'TAKEN':>8} {'WORST ms':>9}  CASE")
    for name, tally in tallies.items():
        worst = f"{tally.worst_ms:>9.2f}  {tally.worst_case}"
        print(f"{name:<20} {tally.cases:>9,} {tally.taken:>8,} {worst}")
    findings = [finding for tally in tallies.values() for finding in tally.findings]
    total = sum(tally.cases for tally in tallies.values())
    seconds = time.monotonic() - began
    print(f"{total:,} cases, seed {args.seed}, {seconds:.0f} s, {len(findings)} findings")
    for finding in findings[:20]:
        print(f"\n--target {finding}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
