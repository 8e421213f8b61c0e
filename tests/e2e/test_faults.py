"""Faults of the host around a real process: a closed log, a frozen broker, odd surroundings."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.builders import azure_entry

ENTRY = azure_entry()


async def test_closed_log_is_not_fatal(
    agent: Any, imds: Any, observer: Any, until: Callable[..., Any], tmp_path: Path
) -> None:
    """Whoever read the log is gone: events still pass, and the agent stops with 0."""
    reading, writing = os.pipe()
    agent.start_with_log(writing)
    os.close(writing)
    os.close(reading)
    imds.show(ENTRY)
    await until(lambda: observer.of("events"))
    imds.show()
    await until(lambda: len(observer.of("events")) == 2)

    assert agent.stop() == 0


async def test_frozen_broker_does_not_stop_the_polls(
    agent: Any, imds: Any, observer: Any, broker: Any, until: Callable[..., Any]
) -> None:
    """A broker that reads nothing costs no poll, and gets everything once it wakes."""
    agent.start()
    await until(lambda: observer.of("status"))
    broker.signal(signal.SIGSTOP)
    try:
        imds.show(ENTRY)
        for _ in range(5):
            await until(imds.was_polled_twice())
        assert observer.of("events") == []
    finally:
        broker.signal(signal.SIGCONT)
    await until(lambda: observer.of("events"), 30)


async def test_odd_surroundings_change_nothing(
    agent: Any, imds: Any, observer: Any, until: Callable[..., Any], tmp_path: Path
) -> None:
    """Locale C, no time zone data, a fixed hash seed, umask 0: same events, files for the owner."""
    before = os.umask(0)
    try:
        agent.start(LC_ALL="C", LANG="C", PYTHONHASHSEED="0", TZ="Mars/Base", PYTHONTZPATH="")
    finally:
        os.umask(before)
    imds.show(ENTRY | {"Description": "Wartung für die Maschine"})
    (event,) = await until(lambda: observer.of("events"))

    assert event["data"]["event"]["Description"] == "Wartung für die Maschine"
    assert event["data"]["notBefore"] == "2033-09-19T18:29:47.000Z"
    assert agent.stop() == 0
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "state").iterdir()}
    assert set(modes.values()) == {0o600}, modes
