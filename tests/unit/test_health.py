"""Signs of life: what is overdue, what merely waits, and what systemd hears of it."""

import asyncio
import socket
from pathlib import Path

import pytest

from bridge.health import Pulse, feed_watchdog, problem
from tests.fakes import FakeClock


def test_problem_names_the_loop_that_stands_still() -> None:
    """A loop that turned in time is fine; one that did not is named with how late it is."""
    clock = FakeClock()
    slow, quick = Pulse(clock), Pulse(clock)
    slow.beat(100)
    quick.beat(1)
    clock.pass_s(50)

    assert problem({"poller": slow, "approver": quick}) == "the approver is 19 s overdue"


def test_problem_nothing_when_resting_or_not_yet_begun() -> None:
    """Waiting for work is no standstill, however long."""
    clock = FakeClock()
    resting, fresh = Pulse(clock), Pulse(clock)
    resting.beat(1)
    resting.rest()
    clock.pass_s(10_000)

    assert problem({"intake": resting, "publisher": fresh}) == ""


def test_pulse_slack_covers_a_frozen_vm() -> None:
    """A pause of ten seconds, as host maintenance makes them, restarts nobody."""
    clock = FakeClock()
    pulse = Pulse(clock)
    pulse.beat(1)
    clock.pass_s(11)

    assert pulse.overdue_s <= 0


async def test_watchdog_is_fed_only_while_the_loops_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd hears WATCHDOG=1 until something stands still, and nothing after that."""
    problems = iter(["", "", *["stuck"] * 1_000])
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    asked = 0

    def problem_now() -> str:
        nonlocal asked
        asked += 1
        return next(problems)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        task = asyncio.create_task(feed_watchdog(problem_now))
        async with asyncio.timeout(5):
            while asked < 6:
                await asyncio.sleep(0.005)
        task.cancel()
        heard = []
        while True:
            try:
                heard.append(systemd.recv(100))
            except BlockingIOError:
                break

    assert heard == [b"WATCHDOG=1", b"WATCHDOG=1"]


async def test_watchdog_without_systemd_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens, nothing is sent."""
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)

    await feed_watchdog(lambda: "")
