"""When the pauses between connections grow, and when they begin anew."""

import asyncio
from collections.abc import Callable

import pytest

from bridge import reconnecting


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of the row of failures before each pause; the pauses themselves are none."""
    seen: list[int] = []

    def no_pause(attempt: int, _: float, **_limits: float) -> float:
        seen.append(attempt)
        return 0.0

    monkeypatch.setattr(reconnecting, "full_jitter", no_pause)
    return seen


async def keep(serve: Callable[[], bool], rounds: int) -> None:
    closing = asyncio.Event()
    left = iter(range(rounds - 1, -1, -1))

    async def once() -> bool:
        if next(left) == 0:
            closing.set()
        return serve()

    await reconnecting.keep_connected(once, closing, pause_s_max=1.0)


async def test_attempt_that_took_long_and_failed_is_a_failure(
    attempts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out may take longer than a connection must last, and still the pauses grow."""
    monkeypatch.setattr(reconnecting, "STABLE_S", -1.0)

    await keep(lambda: False, rounds=3)

    assert [1, 2, 3] == attempts


async def test_connection_that_lasted_begins_the_pauses_anew(
    attempts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a good connection the next attempt comes at once."""
    monkeypatch.setattr(reconnecting, "STABLE_S", -1.0)
    made = iter([False, False, True, False])

    await keep(lambda: next(made), rounds=4)

    assert [1, 2, 0, 1] == attempts


async def test_connection_that_ends_at_once_is_a_failure(attempts: list[int]) -> None:
    """Two agents with one name do not spin."""
    await keep(lambda: True, rounds=3)

    assert [1, 2, 3] == attempts
