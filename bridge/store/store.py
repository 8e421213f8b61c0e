"""The store: commands, approvals and POSTs, on top of the outbox.

Each public method is one transaction, so a crash leaves either all of it or none. The triggers
of schema.sql check every move again.
"""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from bridge.core import cloudevents
from bridge.core.approvals import REFUSED_STATUSES, Approve, Entry, State
from bridge.core.cloudevents import CloudEvent
from bridge.core.commands import Command
from bridge.errors import StoreError, StoreUnwritable
from bridge.store.ledger import (
    count_accepted,
    find_command,
    hold,
    insert_command,
    move,
    require_command,
    resting_state,
    to_entry,
    waive,
)
from bridge.store.opening import open_database
from bridge.store.outbox import Outbox, insert_outgoing, keep_position
from bridge.store.rows import (
    AcceptedRow,
    CommandRow,
    Position,
    PostState,
    accepted_row,
    to_text,
)
from bridge.transports import Outgoing

UNCOUNTED_STATUSES = REFUSED_STATUSES | {429}


class Store(Outbox):
    @classmethod
    def open(cls, path: Path | str, *, now: datetime, vm_id: str = "") -> Self:
        return cls(open_database(Path(path), now=now, vm_id=vm_id))

    def recover(self, now: datetime, outcome: Callable[[CommandRow], CloudEvent]) -> int:
        """After a crash: a POST that had begun may have counted, and its sender is told so."""
        with self._database.transaction() as db:
            stranded = db.execute("SELECT * FROM approvals WHERE state = 'sending'").fetchall()
            for row in stranded:
                db.execute(
                    "UPDATE posts SET ended_at = ?, result = 'crash'"
                    " WHERE event_id = ? AND ended_at IS NULL",
                    (to_text(now), row["event_id"]),
                )
                move(db, row["event_id"], "sending", "in-doubt", now)
                draft = outcome(require_command(db, row["key"]))
                self._settle(db, row, draft, now, status="in-doubt", reason="in-doubt")
        return len(stranded)

    def entries(self) -> dict[str, Entry]:
        rows = self._all("SELECT * FROM approvals")
        return {row["event_id"]: to_entry(row) for row in rows}

    def entry(self, event_id: str) -> Entry | None:
        rows = self._all("SELECT * FROM approvals WHERE event_id = ?", event_id.casefold())
        return to_entry(rows[0]) if rows else None

    def command(self, key: str) -> CommandRow | None:
        with self._database.reading() as raw:
            return find_command(raw, key)

    def accepted_since(self, moment: datetime) -> int:
        """How many commands were found good since then. Others are answered as they come."""
        with self._database.reading() as raw:
            return count_accepted(raw, moment)

    def accept(
        self,
        command: Command,
        approve: Approve,
        *,
        received_at: datetime,
        expires_at: datetime,
        reply_topic: str = "",
        correlation: bytes | None = None,
        position: Position | None = None,
    ) -> None:
        with self._database.transaction() as db:
            row = CommandRow(
                key=command.key,
                fingerprint=command.fingerprint,
                command_id=command.id,
                source=command.source,
                event_id=command.event_id,
                why=command.reason,
                rule=approve.rule,
                status="",
                reason="",
                http_status=None,
                received_at=received_at,
                expires_at=expires_at,
                answered_at=None,
                answer=None,
                reply_topic=reply_topic,
                correlation=correlation,
            )
            insert_command(db, row)
            hold(db, command.key, approve, received_at)
            keep_position(db, position)

    def answer(
        self,
        *,
        key: str,
        fingerprint: str,
        command_id: str,
        source: str,
        event_id: str,
        why: str,
        status: str,
        reason: str,
        rule: str,
        cloudevent: CloudEvent,
        received_at: datetime,
        answered_at: datetime | None = None,
        reply_topic: str = "",
        correlation: bytes | None = None,
        position: Position | None = None,
    ) -> None:
        """Answer at once. A key that is known keeps its first command and its first answer."""
        with self._database.transaction() as db:
            final = self._put(
                db,
                cloudevent,
                channel="outcomes",
                event_id=event_id,
                reply_topic=reply_topic,
                correlation=correlation,
                now=answered_at or received_at,
            )
            if find_command(db, key) is None:
                row = CommandRow(
                    key=key,
                    fingerprint=fingerprint,
                    command_id=command_id,
                    source=source,
                    event_id=event_id,
                    why=why,
                    rule=rule,
                    status=status,
                    reason=reason,
                    http_status=None,
                    received_at=received_at,
                    expires_at=received_at,
                    answered_at=answered_at or received_at,
                    answer=final,
                    reply_topic=reply_topic,
                    correlation=correlation,
                )
                insert_command(db, row)
            keep_position(db, position)

    def replay(
        self,
        key: str,
        *,
        now: datetime,
        reply_topic: str = "",
        correlation: bytes | None = None,
        position: Position | None = None,
    ) -> None:
        """Repeat the stored answer; while there is none, the first command's will do."""
        with self._database.transaction() as db:
            command = require_command(db, key)
            if command.answer is not None:
                outgoing = Outgoing(
                    sequence=self._next_sequence(db),
                    channel="outcomes",
                    event_id=cloudevents.decode(command.answer).subject,
                    cloudevent=cloudevents.as_replay(command.answer),
                    reply_topic=reply_topic,
                    correlation=correlation,
                )
                insert_outgoing(db, outgoing, now)
            keep_position(db, position)

    def accepted(self) -> list[AcceptedRow]:
        return self._in_state("accepted")

    def doubts(self) -> list[AcceptedRow]:
        """Those whose POST may have counted, with the command that held each last."""
        return self._in_state("in-doubt")

    def _in_state(self, state: State) -> list[AcceptedRow]:
        with self._database.reading() as raw:
            rows = raw.execute(
                "SELECT a.* FROM approvals AS a JOIN commands AS c ON c.key = a.key"
                " WHERE a.state = ? ORDER BY c.received_at, a.event_id",
                (state,),
            ).fetchall()
            return [accepted_row(row, require_command(raw, row["key"])) for row in rows]

    def begin_post(self, event_id: str, now: datetime) -> int:
        """Durable before the first byte leaves; never a second time while one may count."""
        if not self.durable:
            raise StoreUnwritable(f"no POST without a durable ledger: {self.problem}")
        with self._database.transaction() as db:
            row = move(db, event_id, "accepted", "sending", now)
            number = db.execute(
                "INSERT INTO posts (event_id, key, began_at) VALUES (?, ?, ?)",
                (row["event_id"], row["key"], to_text(now)),
            ).lastrowid
        # A lost or damaged WAL would take `sending` back, and with it the promise.
        self._database.checkpoint()
        assert number is not None
        return number

    def finish_post(
        self,
        number: int,
        *,
        state: PostState,
        http_status: int | None,
        result: str,
        outcome: CloudEvent | None,
        now: datetime,
        reason: str = "",
    ) -> None:
        refused = http_status in UNCOUNTED_STATUSES
        if state in {"rejected", "accepted"} and not refused:
            raise StoreError(
                f"POST {number} cannot end as {state}: it was not refused, so it may count"
            )
        with self._database.transaction() as db:
            post = db.execute(
                "UPDATE posts SET ended_at = ?, http_status = ?, result = ?, counted = ?"
                " WHERE number = ? AND ended_at IS NULL RETURNING event_id",
                (to_text(now), http_status, result, int(not refused), number),
            ).fetchone()
            if post is None:
                raise StoreError(f"POST {number} has ended already, or never began")
            end = resting_state(db, post["event_id"]) if state == "rejected" else state
            row = move(db, post["event_id"], "sending", end, now, http_status=http_status)
            if state != "accepted":
                self._settle(
                    db, row, outcome, now, status=state, reason=reason, http_status=http_status
                )

    def reject_accepted(
        self, event_id: str, *, reason: str, outcome: CloudEvent | None, now: datetime
    ) -> None:
        with self._database.transaction() as db:
            row = move(db, event_id, "accepted", resting_state(db, event_id), now)
            self._settle(db, row, outcome, now, status="rejected", reason=reason)

    def begin_repost(self, event_id: str, now: datetime) -> None:
        """`in_doubt = "repost"`: the operator's standing word that a doubt may be posted again."""
        with self._database.transaction() as db:
            waive(db, event_id)
            move(db, event_id, "in-doubt", "accepted", now, override=True)

    def _settle(
        self,
        db: sqlite3.Connection,
        approval: Any,
        outcome: CloudEvent | None,
        now: datetime,
        *,
        status: str,
        reason: str,
        http_status: int | None = None,
    ) -> None:
        """Answer the command that holds an approval, unless it has its answer."""
        command = require_command(db, approval["key"])
        if command.answer is not None:
            return
        if outcome is None:
            raise StoreError(f"command {command.key!r} cannot end as {status} without an outcome")
        final = self._put(
            db,
            outcome,
            channel="outcomes",
            event_id=approval["azure_event_id"],
            reply_topic=command.reply_topic,
            correlation=command.correlation,
            now=now,
        )
        db.execute(
            "UPDATE commands SET status = ?, reason = ?, http_status = ?, answered_at = ?,"
            " answer = ? WHERE key = ?",
            (status, reason, http_status, to_text(now), final, command.key),
        )
