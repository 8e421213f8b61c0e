"""The agent's sign of life for the Azure guest agent: `service.heartbeat_file`.

Written by the agent itself, so that a process that hangs or is gone cannot look well. A short
blindness is no news: the first answer of IMDS alone may take two minutes.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from bridge.clock import Clock
from bridge.service import files, heartbeat

logger = logging.getLogger("sebridge.guest")

# The guest agent calls a heartbeat older than ten minutes unresponsive.
_INTERVAL_S = 60.0
_LOOK_S = 1.0


class GuestHeartbeat:
    def __init__(
        self, path: str, clock: Clock, problem: Callable[[], str], *, patience_s: float
    ) -> None:
        self._path = Path(path) if path else None
        self._clock = clock
        self._problem = problem
        self._patience_s = patience_s
        self._fine_at_s = clock.elapsed_s()
        self._said: tuple[heartbeat.Readiness, str] | None = None
        self._said_at_s = 0.0

    async def run(self) -> None:
        while self._path:
            self.step()
            await asyncio.sleep(_LOOK_S)

    def step(self) -> None:
        """Write if something changed, or if it is time."""
        problem, now_s = self._problem(), self._clock.elapsed_s()
        if not problem:
            self._fine_at_s = now_s
        is_ready = now_s - self._fine_at_s <= self._patience_s
        news: tuple[heartbeat.Readiness, str]
        news = ("Ready" if is_ready else "NotReady", problem or "polling Scheduled Events")
        if news != self._said or now_s - self._said_at_s >= _INTERVAL_S:
            self._said, self._said_at_s = news, now_s
            self._write(*news)

    def stop(self) -> None:
        """The last word of an orderly end."""
        self._write("NotReady", "the agent is stopped")

    def _write(self, readiness: heartbeat.Readiness, message: str) -> None:
        if self._path is None:
            return
        try:
            files.write(self._path, heartbeat.render(readiness, message), 0o600)
        except OSError as error:
            logger.warning(
                "cannot write service.heartbeat_file: is the disk full?",
                extra={"path": str(self._path), "why": error.strerror or str(error)},
            )
