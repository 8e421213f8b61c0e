"""The publishing half of the store: documents, pending events, the outbox and its cursors."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from bridge.core import cloudevents
from bridge.core.cloudevents import Channel, CloudEvent
from bridge.errors import StoreError
from bridge.store.lifecycle import Lifecycle
from bridge.store.meta import get_meta, set_meta
from bridge.store.rows import (
    Confirmation,
    Draft,
    ParkedRow,
    Position,
    outgoing_row,
    pending_row,
    to_text,
)
from bridge.transports import Outgoing


class Outbox(Lifecycle):
    """Base of `Store`; each public method is one transaction."""

    def identity(self) -> bytes | None:
        with self._database.reading() as raw:
            return get_meta(raw, "identity")

    def set_identity(self, raw: bytes, vm_id: str) -> None:
        with self._database.transaction() as db:
            set_meta(db, "identity", raw)
            set_meta(db, "vm_id", vm_id.encode())

    def snapshot(self) -> bytes | None:
        """The last document, as IMDS sent it."""
        with self._database.reading() as raw:
            return get_meta(raw, "snapshot")

    def record(
        self,
        raw_document: bytes,
        drafts: Sequence[Draft],
        confirmed: Sequence[Confirmation],
        now: datetime,
    ) -> None:
        """A new document and all it means: what changed, and which approvals took effect."""
        with self._database.transaction() as db:
            set_meta(db, "snapshot", raw_document)
            for draft in drafts:
                final = self._put(
                    db,
                    draft.cloudevent,
                    channel=draft.channel,
                    event_id=draft.event_id,
                    ends=draft.ends,
                    now=now,
                )
                _keep_pending(db, draft, final)
            for confirmation in confirmed:
                self._confirm(db, confirmation, now)

    def confirm(self, confirmed: Sequence[Confirmation], now: datetime) -> None:
        """Approvals took effect, and no document will tell of it any more."""
        with self._database.transaction() as db:
            for confirmation in confirmed:
                self._confirm(db, confirmation, now)

    def tokens(self) -> dict[str, str]:
        rows = self._all("SELECT event_id, token FROM pending")
        return {row["event_id"]: row["token"] for row in rows}

    def fenced(self) -> frozenset[str]:
        rows = self._all("SELECT event_id FROM pending WHERE fenced = 1")
        return frozenset(row["event_id"] for row in rows)

    def foreign(self) -> frozenset[str]:
        """Pending events that run, and not because we asked, as was published last."""
        with self._database.reading() as raw:
            rows = raw.execute("SELECT event_id, newest FROM pending WHERE newest IS NOT NULL")
            states = [(row["event_id"], cloudevents.approval_state(row["newest"])) for row in rows]
        return frozenset(event_id for event_id, state in states if state == "foreign")

    def pending(self) -> list[Outgoing]:
        """The newest CloudEvent of every pending event, oldest first."""
        with self._database.reading() as raw:
            rows = raw.execute("SELECT newest FROM pending WHERE newest IS NOT NULL").fetchall()
            found = [pending_row(row["newest"]) for row in rows]
        return sorted(found, key=lambda outgoing: outgoing.sequence)

    def set_sinks(self, names: Collection[str]) -> None:
        """A new sink gets everything that is still there; one that went holds nothing back."""
        with self._database.transaction() as db:
            known = {row["sink"] for row in db.execute("SELECT sink FROM cursors")}
            start = db.execute("SELECT min(sequence) - 1 FROM outbox").fetchone()[0]
            if start is None:
                start = int(get_meta(db, "sequence") or 0)
            for name in known.difference(names):
                db.execute("DELETE FROM cursors WHERE sink = ?", (name,))
            for name in set(names).difference(known):
                db.execute("INSERT INTO cursors VALUES (?, ?)", (name, start))
            _trim(db)

    def batch(self, sink: str, limit: int) -> list[Outgoing]:
        rows = self._all(
            "SELECT * FROM outbox WHERE sequence > (SELECT sequence FROM cursors WHERE sink = ?)"
            " ORDER BY sequence LIMIT ?",
            sink,
            limit,
        )
        return [outgoing_row(row) for row in rows]

    def mark_sent(self, sink: str, sequence: int) -> None:
        with self._database.transaction() as db:
            _advance(db, sink, sequence)

    def park(self, sink: str, sequence: int, reason: str, now: datetime) -> None:
        """The sink can never take this row: keep it for the operator and go on behind it."""
        with self._database.transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO parked SELECT ?, sequence, ?, cloudevent, ?"
                " FROM outbox WHERE sequence = ?",
                (sink, reason, to_text(now), sequence),
            )
            _advance(db, sink, sequence)

    def parked(self) -> list[ParkedRow]:
        with self._database.reading() as raw:
            rows = raw.execute("SELECT * FROM parked ORDER BY sequence, sink").fetchall()
            return [msgspec.convert(dict(row), ParkedRow) for row in rows]

    def depth(self, sink: str) -> int:
        rows = self._all(
            "SELECT count(*) FROM outbox"
            " WHERE sequence > (SELECT sequence FROM cursors WHERE sink = ?)",
            sink,
        )
        return int(rows[0][0])

    def oldest(self, sink: str) -> str | None:
        """When the first row that this sink lacks was made."""
        rows = self._all(
            "SELECT created_at FROM outbox"
            " WHERE sequence > (SELECT sequence FROM cursors WHERE sink = ?)"
            " ORDER BY sequence LIMIT 1",
            sink,
        )
        return rows[0]["created_at"] if rows else None

    def offset(self, source: str) -> str | None:
        rows = self._all("SELECT position FROM offsets WHERE source = ?", source)
        return rows[0]["position"] if rows else None

    def keep_offsets(self, positions: Collection[Position]) -> None:
        """How far sources were read without a command for this VM: now and then, not each time."""
        with self._database.transaction() as db:
            for position in positions:
                keep_position(db, position)

    def _all(self, sql: str, *values: object) -> list[Any]:
        with self._database.reading() as raw:
            return raw.execute(sql, values).fetchall()

    def _next_sequence(self, db: sqlite3.Connection) -> int:
        """Nobody else counts in this file. What a rollback takes back is not used again."""
        self._sequence += 1
        set_meta(db, "sequence", str(self._sequence).encode())
        return self._sequence

    def _put(
        self,
        db: sqlite3.Connection,
        draft: CloudEvent,
        *,
        channel: Channel,
        event_id: str,
        now: datetime,
        ends: bool = False,
        reply_topic: str = "",
        correlation: bytes | None = None,
    ) -> bytes:
        """Stamp a draft, put it at the end of the outbox, and give back its final bytes."""
        sequence = self._next_sequence(db)
        stamped = cloudevents.stamp(draft, ledger_id=self.ledger_id, sequence=sequence)
        outgoing = Outgoing(
            sequence=sequence,
            channel=channel,
            event_id=event_id,
            cloudevent=cloudevents.encode(stamped),
            ends=ends,
            reply_topic=reply_topic,
            correlation=correlation,
        )
        insert_outgoing(db, outgoing, now)
        return outgoing.cloudevent

    def _confirm(self, db: sqlite3.Connection, confirmation: Confirmation, now: datetime) -> None:
        """Only what is known to have been posted; a POST on its way gets its answer first."""
        confirmed = db.execute(
            "UPDATE approvals SET state = 'confirmed', updated_at = ?"
            " WHERE event_id = ? AND state IN ('approved', 'in-doubt') RETURNING *",
            (to_text(now), confirmation.event_id.casefold()),
        ).fetchone()
        if confirmed is None:
            return
        command = db.execute(
            "SELECT reply_topic, correlation FROM commands WHERE key = ?", (confirmed["key"],)
        ).fetchone()
        self._put(
            db,
            confirmation.cloudevent,
            channel="outcomes",
            event_id=confirmed["azure_event_id"],
            reply_topic=command["reply_topic"],
            correlation=command["correlation"],
            now=now,
        )


def insert_outgoing(db: sqlite3.Connection, outgoing: Outgoing, now: datetime) -> None:
    db.execute(
        "INSERT INTO outbox (sequence, channel, event_id, ends, cloudevent, reply_topic,"
        " correlation, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            outgoing.sequence,
            outgoing.channel,
            outgoing.event_id,
            int(outgoing.ends),
            outgoing.cloudevent,
            outgoing.reply_topic,
            outgoing.correlation,
            to_text(now),
        ),
    )


def keep_position(db: sqlite3.Connection, position: Position | None) -> None:
    if position is not None:
        db.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?)", position)


def _keep_pending(db: sqlite3.Connection, draft: Draft, final: bytes) -> None:
    event_id = draft.event_id.casefold()
    if draft.ends:
        db.execute("DELETE FROM pending WHERE event_id = ?", (event_id,))
    else:
        db.execute(
            "INSERT OR REPLACE INTO pending (event_id, token, fenced, newest) VALUES (?, ?, ?, ?)",
            (event_id, draft.token, int(draft.fenced), final),
        )


def _advance(db: sqlite3.Connection, sink: str, sequence: int) -> None:
    moved = db.execute(
        "UPDATE cursors SET sequence = max(sequence, ?) WHERE sink = ?", (sequence, sink)
    )
    if moved.rowcount != 1:
        raise StoreError(f"sink {sink!r} has no cursor: set_sinks() comes first")
    _trim(db)


def _trim(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM outbox WHERE sequence <= (SELECT min(sequence) FROM cursors)")
