"""Time lapse: simulated time that runs at a multiple of real time and can jump ahead.

It never goes back. The only place of the simulator, next to the rate limit, where real time
enters; tests hand in their own.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# Far enough for any rehearsal, and safely inside what datetime can hold.
LATEST_AT = datetime(9000, 1, 1, tzinfo=UTC)


class ClockError(ValueError):
    """The jump leads out of the calendar."""


class VirtualClock:
    def __init__(self, start_at: datetime, speed: float, monotonic: Callable[[], float]) -> None:
        if start_at.tzinfo is None:
            raise ClockError("the start needs a time zone")
        self._base_at = start_at.astimezone(UTC)
        self._base_s = monotonic()
        self._monotonic = monotonic
        self.speed = speed

    def now(self) -> datetime:
        elapsed_s = (self._monotonic() - self._base_s) * self.speed
        # Compared as seconds first: the sum itself could overflow.
        left_s = (LATEST_AT - self._base_at).total_seconds()
        return self._base_at + timedelta(seconds=min(elapsed_s, left_s))

    def set_speed(self, speed: float) -> None:
        self._rebase(self.now())
        self.speed = speed

    def advance(self, seconds: float) -> None:
        now = self.now()
        if seconds > (LATEST_AT - now).total_seconds():
            raise ClockError(f"{seconds} s ahead is beyond the year {LATEST_AT.year}")
        self._rebase(now + timedelta(seconds=seconds))

    def _rebase(self, at: datetime) -> None:
        self._base_at = at
        self._base_s = self._monotonic()
