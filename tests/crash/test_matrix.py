"""A sample of the crash matrix; `make test-crash` lives through all of it."""

from pathlib import Path

import pytest

from tests.crash.matrix import KEYS, run_all, sample, whole
from tests.crash.promises import check
from tests.crash.run import SCHEDULES_MIN
from tests.crash.runner import Hit, Life, Runner, Schedule
from tests.crash.scripted import published, statuses


def test_the_matrix_is_large_and_says_nothing_twice() -> None:
    """At least five thousand schedules, all different."""
    schedules = whole()

    assert len(set(schedules)) == len(schedules) >= SCHEDULES_MIN


@pytest.mark.timeout(300)
def test_sampled_schedules_keep_every_promise() -> None:
    """Kills, pairs of kills, SIGTERM, SIGSTOP, cancellation and clock steps, all over the story."""
    lived: list[list[Life]] = []
    run_all(sample(every=25), lambda _, lives: lived.append(lives))

    killed = sum(life.code == -9 for lives in lived for life in lives)
    assert killed > 60


def test_stories_without_a_hit_end_as_imds_answers() -> None:
    """Each behaviour of IMDS leads to its one answer; the harness itself is right."""
    expected = {
        "ok": "approved",
        "slow": "approved",
        "busy": "approved",
        "refuse": "rejected",
        "error": "in-doubt",
        "drop": "in-doubt",
        "reset": "in-doubt",
        "redirect": "in-doubt",
        "garbage": "in-doubt",
        "half": "in-doubt",
        "hang": "in-doubt",
        "gone": "in-doubt",
    }
    runner = Runner()
    try:
        for behaviour, answer in expected.items():
            with runner.run(Schedule(behaviour, (Hit("kill", 0),))) as (folder, lives):
                check(folder, KEYS)
                assert [life.code for life in lives] == [0]
                assert answer in answers_to(folder, "a")
    finally:
        runner.close()


def answers_to(folder: Path, key: str) -> set[str]:
    answers = [e["data"] for e in published(folder) if "idempotencyKey" in e["data"]]
    return {data["status"] for data in answers if data["idempotencyKey"] == key}


def test_frozen_between_sending_and_the_first_byte_sends_nothing() -> None:
    """Stopped at every step of the POST: once `sending` is old, no byte leaves."""
    runner = Runner()
    unsent = 0
    try:
        for at in range(40, 72, 2):
            with runner.run(Schedule("ok", (Hit("stop", at),))) as (folder, _):
                check(folder, KEYS)
                posts = folder / "posts"
                unsent += not posts.exists() and "in-doubt" in statuses(folder)
    finally:
        runner.close()

    assert unsent >= 1
