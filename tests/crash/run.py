"""`make test-crash`: the whole crash matrix on all cores; prints what was lived through.

Usage: python -m tests.crash.run [WORKERS]. Exits 1 with the schedule that broke a promise.
"""

import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.crash.matrix import run_all, whole
from tests.crash.runner import Life, Schedule

SCHEDULES_MIN = 5_000


def work(number: int, workers: int, results: "multiprocessing.Queue[object]") -> None:
    def tell(schedule: Schedule, lives: list[Life]) -> None:
        results.put((schedule, len(lives)))

    try:
        run_all(whole()[number::workers], tell)
    except (AssertionError, TimeoutError) as error:
        results.put(f"{type(error).__name__}: {error}")
    results.put(None)


def main() -> int:
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else (os.cpu_count() or 2)
    fork = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[object] = fork.Queue()
    began = time.monotonic()
    processes = [fork.Process(target=work, args=(n, workers, results)) for n in range(workers)]
    for process in processes:
        process.start()
    done, broken, lives = Counter[str](), [], 0
    seen: set[Schedule] = set()
    running = workers
    while running:
        match results.get():
            case None:
                running -= 1
            case str() as problem:
                broken.append(problem)
            case (Schedule() as schedule, int() as count):
                seen.add(schedule)
                lives += count
                done[f"{schedule.behaviour:9} {_kind(schedule)}"] += 1
                if len(seen) % 500 == 0:
                    print(f"{len(seen)} schedules …", flush=True)
    for process in processes:
        process.join()
    for name, count in sorted(done.items()):
        print(f"{count:6}  {name}")
    seconds = time.monotonic() - began
    print(f"{len(seen)} distinct schedules, {lives} lives, {len(broken)} broken, {seconds:.0f} s")
    print("\n".join(broken))
    return 1 if broken or len(seen) < SCHEDULES_MIN else 0


def _kind(schedule: Schedule) -> str:
    return " + ".join(hit.action.split()[0] for hit in schedule.hits)


if __name__ == "__main__":
    sys.exit(main())
