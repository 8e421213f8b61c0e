"""Time, in one place: the wall clock for what others read, the boot clock for durations."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware UTC: for timestamps, expiry and NotBefore only."""
        ...

    def elapsed_s(self) -> float:
        """Seconds that never go back, and that count while the VM is frozen."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        # CLOCK_MONOTONIC stands still while a VM is paused; CLOCK_BOOTTIME does not.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
