"""A second's worth at once, then evenly spaced."""

from itertools import pairwise

import pytest

from bridge.core.pace import Pace


def test_pace_lets_a_seconds_worth_through_and_spaces_the_rest() -> None:
    """Twenty at once are a person's click; the twenty-first waits for its turn."""
    pace = Pace(20.0)

    waits = [pace.wait_s(100.0) for _ in range(25)]

    assert waits[:20] == [0.0] * 20
    assert waits[20:] == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25])


def test_pace_never_exceeds_its_rate_in_the_long_run() -> None:
    """Whoever waits as told uses 60 in the 40/20 s after the burst."""
    pace, now_s, used = Pace(20.0), 0.0, []
    for _ in range(60):
        now_s += pace.wait_s(now_s)
        used.append(now_s)

    assert used[-1] == pytest.approx(2.0)
    assert all(a <= b for a, b in pairwise(used))


def test_pace_rests_and_has_a_seconds_worth_again() -> None:
    """Silence is not saved up for more than a second's worth."""
    pace = Pace(2.0)
    assert [pace.wait_s(0.0) for _ in range(3)] == pytest.approx([0.0, 0.0, 0.5])

    assert [pace.wait_s(60.0) for _ in range(3)] == pytest.approx([0.0, 0.0, 0.5])


def test_pace_below_one_a_second_has_no_burst() -> None:
    """One in ten seconds is one, then ten seconds."""
    pace = Pace(0.1)

    assert [pace.wait_s(0.0) for _ in range(2)] == [0.0, pytest.approx(10.0)]
