"""What the loops count and time, as plain numbers; `bridge.metrics` turns them into text.

Knows nothing of Prometheus, so that a loop pays an addition and no import. Counts begin at 0 with
each process, as Prometheus expects.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime

from bridge.core.document import KNOWN_TYPES

# Upper bounds in seconds.
_NETWORK_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
# An outage of the broker lasts minutes or hours, and what waited shows here.
_DELIVERY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0)
# An SSD takes a millisecond, a throttled cloud disk a second.
DISK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Histogram:
    """How many values fell into which bucket, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one: above every bound
        self.sum = 0.0

    def observe(self, value: float) -> None:
        # A wall clock may step back between two looks at it.
        value = max(0.0, value)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Counts of values up to each bound, in Prometheus' form."""
        total, buckets = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
        return buckets


class Measures:
    def __init__(self) -> None:
        self.poll_failures = 0
        self.poll_s = Histogram(_NETWORK_S)
        self.transitions: Counter[tuple[str, str]] = Counter()
        self.post_statuses: Counter[str] = Counter()
        self.post_s = Histogram(_NETWORK_S)
        self.answers: Counter[tuple[str, str]] = Counter()
        self.answer_s = Histogram(_DELIVERY_S)
        self.publish_s: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(_DELIVERY_S))

    def changed(self, kind: str, event_type: str) -> None:
        # Azure may invent types, and a label must not grow with what comes from outside.
        self.transitions[kind, event_type if event_type in KNOWN_TYPES else "other"] += 1

    def posted(self, status: int | None, seconds: float) -> None:
        self.post_statuses["error" if status is None else str(status)] += 1
        self.post_s.observe(seconds)

    def answered(self, outcome: str, reason: str, received_at: datetime, now: datetime) -> None:
        self.answers[outcome, reason] += 1
        self.answer_s.observe((now - received_at).total_seconds())

    def replayed(self) -> None:
        self.answers["replay", ""] += 1

    def published(self, sink: str, created_at: Iterable[datetime | None], now: datetime) -> None:
        histogram = self.publish_s[sink]
        for moment in created_at:
            if moment is not None:
                histogram.observe((now - moment).total_seconds())
