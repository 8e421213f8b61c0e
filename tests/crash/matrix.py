"""Which schedules there are: every step of every behaviour, pairs of kills, other hits."""

import random
from collections.abc import Callable, Iterable, Iterator

from tests.crash.counting_imds import BEHAVIOURS
from tests.crash.promises import check
from tests.crash.runner import Hit, Life, Runner, Schedule

KEYS = {"a", "b"}
# Somewhat above the hundred steps of a whole story; beyond them a hit is never reached.
STEPS_MAX = 125
CLOCK_STEPS = ("clock 1", "clock -1", "clock 87600", "clock -87600")
PAIRED = ("ok", "drop", "error", "busy", "hang")


def singles(behaviours: Iterable[str] = BEHAVIOURS) -> Iterator[Schedule]:
    for behaviour in behaviours:
        for at in range(1, STEPS_MAX + 1):
            yield Schedule(behaviour, (Hit("kill", at),))


def others(behaviours: Iterable[str] = ("ok", "drop")) -> Iterator[Schedule]:
    """SIGTERM, SIGSTOP, a cancelled task and a set clock, at every step."""
    for behaviour in behaviours:
        for action in ("term", "stop", "cancel", *CLOCK_STEPS):
            for at in range(1, STEPS_MAX + 1):
                yield Schedule(behaviour, (Hit(action, at),))


def pairs(seed: int, count: int) -> Iterator[Schedule]:
    """Two kills, in the first life and in the second; each pair once."""
    every = [
        Schedule(behaviour, (Hit("kill", first), Hit("kill", second)))
        for behaviour in PAIRED
        for first in range(1, STEPS_MAX)
        for second in range(1, STEPS_MAX)
    ]
    return iter(random.Random(seed).sample(every, count))


def triples(seed: int, count: int) -> Iterator[Schedule]:
    """A kill, a clock that was set, a kill; with any behaviour."""
    rng = random.Random(seed)
    seen: set[Schedule] = set()
    while len(seen) < count:
        hits = (
            Hit("kill", rng.randint(1, 100)),
            Hit(rng.choice(("kill", "stop", *CLOCK_STEPS)), rng.randint(1, 100)),
            Hit("kill", rng.randint(1, 60)),
        )
        seen.add(Schedule(rng.choice(tuple(BEHAVIOURS)), hits))
    return iter(sorted(seen))


def whole() -> list[Schedule]:
    return [*singles(), *others(), *pairs(1, 2600), *triples(1, 400)]


def sample(every: int) -> list[Schedule]:
    """A part that touches every behaviour, every kind of hit and every region of the story."""
    return [*list(singles())[::every], *list(others())[:: 2 * every], *pairs(2, 25)]


def run_all(schedules: Iterable[Schedule], tell: Callable[[Schedule, list[Life]], None]) -> None:
    """Live through each and check the promises; an AssertionError names the schedule."""
    runner = Runner()
    try:
        for schedule in schedules:
            with runner.run(schedule) as (folder, lives):
                try:
                    assert lives[-1].code == 0, (folder / "log").read_text()[-3000:]
                    check(folder, KEYS)
                except AssertionError as error:
                    raise AssertionError(f"{schedule} {lives}: {error}") from error
                tell(schedule, lives)
    finally:
        runner.close()
