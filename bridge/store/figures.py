"""What a look at the agent asks of the store: counts and ages, and the audit."""

from datetime import datetime
from typing import Any

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

_AUDIT = """
SELECT c.key, c.command_id, c.source, c.event_id, c.why, c.rule, c.status, c.reason,
       c.http_status, c.received_at, c.expires_at, c.answered_at,
       p.number AS post, p.began_at, p.ended_at, p.http_status AS post_http_status,
       p.result, p.counted, p.waived
FROM commands AS c LEFT JOIN posts AS p ON p.key = c.key
ORDER BY c.received_at, c.key, p.number
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
    """Base of `Lifecycle`."""

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

    def audit(self) -> list[dict[str, Any]]:
        """Every command with its POSTs, oldest first."""
        with self._database.reading() as raw:
            return [dict(row) for row in raw.execute(_AUDIT)]
