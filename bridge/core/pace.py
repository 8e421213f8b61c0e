"""How fast is fast enough: a second's worth at once, then evenly spaced."""


class Pace:
    """The leaky bucket that ATM calls GCRA: one number, and time as an argument."""

    def __init__(self, per_s: float) -> None:
        self._spacing_s = 1.0 / per_s
        self._burst_s = max(0.0, 1.0 - self._spacing_s)
        self._due_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Take one; returns how long to wait before using it."""
        self._due_s = max(self._due_s, now_s)
        wait_s = max(0.0, self._due_s - self._burst_s - now_s)
        self._due_s += self._spacing_s
        return wait_s
