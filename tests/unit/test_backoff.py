"""Delays stay within their bounds, whatever the attempt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core.backoff import full_jitter, imds_delay_s


@settings(max_examples=200, deadline=None)
@given(
    attempt=st.integers(0, 10_000),
    random01=st.floats(0, 1, exclude_max=True),
)
def test_full_jitter_any_attempt_stays_in_bounds(attempt: int, random01: float) -> None:
    """A delay is never zero, never above the cap, and never overflows."""
    delay_s = full_jitter(attempt, random01)

    assert 0.05 <= delay_s <= 30.0


def test_full_jitter_ceiling_doubles_up_to_the_cap() -> None:
    """The widest delay grows with each attempt until the cap holds it."""
    actual = [full_jitter(attempt, 1.0, base_s=1.0, cap_s=10.0) for attempt in range(6)]

    assert actual == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("status", "attempt", "retry_after_s", "expected"),
    [
        (None, 0, None, 0.5),
        (None, 3, None, 4.0),
        (500, 10_000, None, 30.0),
        (400, 0, None, 10.0),
        (410, 0, None, 5.0),
        (410, 1, None, 10.0),
        (410, 2, None, 20.0),
        (410, 10_000, None, 40.0),
        (429, 0, None, 1.0),
        (429, 0, 7.0, 7.0),
        (429, 0, 3600.0, 30.0),
        (429, 5, 2.0, 16.0),
        (429, 0, -5.0, 1.0),
    ],
)
def test_imds_delay_follows_the_status(
    status: int | None, attempt: int, retry_after_s: float | None, expected: float
) -> None:
    """Each kind of failure has its own pace."""
    actual = imds_delay_s(status, attempt, interval_s=0.5, retry_after_s=retry_after_s, cap_s=30.0)

    assert actual == expected
