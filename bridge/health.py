"""Do the loops still turn? Each says by when it will turn again; /healthz and the watchdog look.

A loop that waits for work owes nothing. One that hangs in an await without a limit is found here,
and systemd or Kubernetes restarts the process: the ledger makes that safe at any moment.
"""

import asyncio
from collections.abc import Callable, Mapping

from bridge import sdnotify
from bridge.clock import Clock

# A frozen VM or a slow disk makes every loop late; that alone is no reason to restart.
_SLACK_S = 30.0


class Pulse:
    """One loop's sign of life."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_at_s: float | None = None

    def beat(self, within_s: float = 0.0) -> None:
        """The loop turned, and will again `within_s` at the latest."""
        self._due_at_s = self._clock.elapsed_s() + within_s + _SLACK_S

    def rest(self) -> None:
        """The loop waits to be woken."""
        self._due_at_s = None

    @property
    def overdue_s(self) -> float:
        return 0.0 if self._due_at_s is None else self._clock.elapsed_s() - self._due_at_s


def problem(pulses: Mapping[str, Pulse]) -> str:
    """Which loops stand still; empty when all turn."""
    late = {name: pulse.overdue_s for name, pulse in pulses.items() if pulse.overdue_s > 0}
    return "; ".join(f"the {name} is {seconds:.0f} s overdue" for name, seconds in late.items())


async def feed_watchdog(problem_now: Callable[[], str]) -> None:
    """Keep systemd calm as long as there is reason to."""
    interval_s = sdnotify.watchdog_interval_s()
    while interval_s:
        if not problem_now():
            sdnotify.notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)
