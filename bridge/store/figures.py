"""What a look at the agent asks of the store: counts and ages, no rows."""

from datetime import datetime

import msgspec

from bridge.measures import Histogram
from bridge.store.connection import Database

_APPROVALS = """
SELECT state, count(*) AS count, min(updated_at) AS since FROM approvals GROUP BY state
"""
_SINKS = """
SELECT c.sink, count(o.sequence) AS outbox, min(o.created_at) AS oldest,
       (SELECT count(*) FROM parked AS p WHERE p.sink = c.sink) AS parked
FROM cursors AS c LEFT JOIN outbox AS o ON o.sequence > c.sequence GROUP BY c.sink
"""


class SinkFigures(msgspec.Struct, frozen=True, kw_only=True):
    outbox: int = 0  # rows that it has not acknowledged
    oldest: datetime | None = None  # when the first of them was made
    parked: int = 0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    approvals: dict[str, int]  # by state
    in_doubt_since: datetime | None  # the oldest doubt
    sinks: dict[str, SinkFigures]


class WithFigures:
    """Base of `Outbox`."""

    _database: Database

    @property
    def commit_s(self) -> Histogram:
        """How long commits took until they were on the disk."""
        return self._database.commit_s

    def figures(self) -> Figures:
        with self._database.reading() as raw:
            approvals = raw.execute(_APPROVALS).fetchall()
            sinks = raw.execute(_SINKS).fetchall()
        since = {row["state"]: row["since"] for row in approvals}
        return Figures(
            approvals={row["state"]: row["count"] for row in approvals},
            in_doubt_since=msgspec.convert(since.get("in-doubt"), datetime | None),
            sinks={row["sink"]: msgspec.convert(dict(row), SinkFigures) for row in sinks},
        )
