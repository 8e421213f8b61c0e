"""Steps: every point at which the agent may be hit, numbered as they come. No hooks in the product.

`install` puts proxies around the store's writes, its BEGINs and COMMITs, the POST's connection and
socket, the sink and the acknowledgement of commands. At the chosen step the chosen thing happens.
"""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bridge import app, approver, imds_wire, intake, start_request
from bridge.store import Store, connection, opening

WRITES = (
    "recover",
    "record",
    "accept",
    "answer",
    "replay",
    "begin_post",
    "finish_post",
    "reject_accepted",
    "mark_sent",
    "set_identity",
    "set_sinks",
)
# A process that stood still for longer than this between `sending` and the first byte sends nothing.
FROZEN_S = 0.15


class Clock:
    """The system's clock, whose wall time can be set."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def elapsed_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class Steps:
    """Counts; at step `at` it does `action`, once. `at` 0: never."""

    def __init__(self, action: str, at: int) -> None:
        self.action = action
        self.at = at
        self.count = 0
        self.clock = Clock()

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            self._act()

    def _act(self) -> None:
        match self.action.split():
            case ["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["stop"]:  # whoever started us lets us go on after a while
                os.kill(os.getpid(), signal.SIGSTOP)
            case ["term"]:
                os.kill(os.getpid(), signal.SIGTERM)
            case ["cancel"]:
                _cancel_current()
                os.kill(os.getpid(), signal.SIGTERM)
            case ["clock", hours]:
                self.clock.offset += timedelta(hours=int(hours))
            case unknown:
                raise ValueError(unknown)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result

        return stepping

    def around_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = await function(*args, **kwargs)
            self.step()
            return result

        return stepping


def _cancel_current() -> None:
    """Not the main task: that is what SIGTERM is for."""
    task = asyncio.current_task()
    if task is not None and task.get_name() in {"poller", "intake", "approver"}:
        task.cancel()


class _Wire:
    """The POST's connection: a step before and after the bytes are handed over."""

    def __init__(self, wire: imds_wire.Connection, steps: Steps) -> None:
        self._wire = wire
        self.ask = steps.around(wire.ask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


def install(steps: Steps) -> None:
    """In a process of its own: there is no way back."""
    for name in WRITES:
        setattr(Store, name, steps.around(getattr(Store, name)))
    _step_in_transactions(steps)
    _step_around_the_post(steps)
    vars(app)["SystemClock"] = lambda: steps.clock
    # Only to save time: what is waited for is as it is.
    approver._RETRY_S_MIN = 0.01
    approver._FROZEN_S = FROZEN_S
    intake._LOOK_AGAIN_S = 0.005


def _step_in_transactions(steps: Steps) -> None:
    connect = connection.connect_file

    def on_sql(sql: str) -> None:
        if sql.startswith(("BEGIN", "COMMIT", "PRAGMA wal_checkpoint")):
            steps.step()

    def traced(path: Path) -> sqlite3.Connection:
        raw = connect(path)
        raw.set_trace_callback(on_sql)
        return raw

    opening.connect_file = traced  # type: ignore[attr-defined]


def _step_around_the_post(steps: Steps) -> None:
    one_shot = start_request.StartRequestConnection
    one_shot.post = steps.around_async(one_shot.post)  # type: ignore[method-assign]
    connect = start_request.connect

    async def stepping(*args: Any) -> start_request.StartRequestConnection:
        steps.step()
        made = await connect(*args)
        made._connection = _Wire(made._connection, steps)  # type: ignore[assignment]
        steps.step()
        return made

    start_request.connect = stepping  # type: ignore[assignment]
