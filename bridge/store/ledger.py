"""Single steps on the rows of commands and approvals; `Store` makes transactions of them."""

import sqlite3
from datetime import datetime
from typing import Any

import msgspec

from bridge.core.approvals import Approve, Entry, State
from bridge.errors import StoreError
from bridge.store.rows import CommandRow, command_row, to_text


def find_command(db: sqlite3.Connection, key: str) -> CommandRow | None:
    row = db.execute("SELECT * FROM commands WHERE key = ?", (key,)).fetchone()
    return None if row is None else command_row(row)


def require_command(db: sqlite3.Connection, key: str) -> CommandRow:
    command = find_command(db, key)
    if command is None:
        raise StoreError(f"the ledger has no command {key!r}")
    return command


def insert_command(db: sqlite3.Connection, command: CommandRow) -> None:
    values = msgspec.structs.asdict(command)
    for name in ("received_at", "expires_at", "answered_at"):
        if values[name] is not None:
            values[name] = to_text(values[name])
    db.execute(
        "INSERT INTO commands (key, fingerprint, command_id, source, event_id, why, rule, status,"
        " reason, http_status, received_at, expires_at, answered_at, answer, reply_topic,"
        " correlation) VALUES (:key, :fingerprint, :command_id, :source, :event_id, :why, :rule,"
        " :status, :reason, :http_status, :received_at, :expires_at, :answered_at, :answer,"
        " :reply_topic, :correlation)",
        values,
    )


def count_accepted(db: sqlite3.Connection, since: datetime) -> int:
    """What is answered at once expires at once; what was found good has some time to live."""
    (number,) = db.execute(
        "SELECT count(*) FROM commands WHERE received_at > ? AND expires_at > received_at",
        (to_text(since),),
    ).fetchone()
    return int(number)


def hold(db: sqlite3.Connection, key: str, approve: Approve, now: datetime) -> None:
    """Give the event to this command: it is new, was refused before, or its doubt is overridden."""
    scheduled_event = approve.scheduled_event
    found = db.execute(
        "SELECT state FROM approvals WHERE event_id = ?", (scheduled_event.key,)
    ).fetchone()
    values = (
        scheduled_event.event_id,
        key,
        scheduled_event.event_type,
        msgspec.json.encode(scheduled_event.resources).decode(),
        int(approve.overrides_doubt),
        to_text(now),
        scheduled_event.key,
    )
    if found is None:
        db.execute(
            "INSERT INTO approvals (azure_event_id, key, event_type, resources, override,"
            " updated_at, event_id, state) VALUES (?, ?, ?, ?, ?, ?, ?, 'accepted')",
            values,
        )
        return
    if found["state"] not in {"rejected", "in-doubt"}:
        raise StoreError(f"event {scheduled_event.event_id} is {found['state']} already")
    if approve.overrides_doubt:
        waive(db, scheduled_event.key)
    db.execute(
        "UPDATE approvals SET azure_event_id = ?, key = ?, event_type = ?, resources = ?,"
        " override = ?, updated_at = ?, state = 'accepted', http_status = NULL"
        " WHERE event_id = ?",
        values,
    )


def waive(db: sqlite3.Connection, event_id: str) -> None:
    """While the event is still in doubt: its POST no longer stands in the way of another."""
    db.execute(
        "UPDATE posts SET waived = 1 WHERE event_id = ? AND counted = 1 AND waived = 0",
        (event_id.casefold(),),
    )


def move(
    db: sqlite3.Connection,
    event_id: str,
    old: State,
    new: State,
    now: datetime,
    *,
    http_status: int | None = None,
    override: bool = False,
) -> Any:
    """Compare and set; gives back the approvals row as it is now."""
    rows = db.execute(
        "UPDATE approvals SET state = ?, http_status = ?, override = max(override, ?),"
        " updated_at = ? WHERE event_id = ? AND state = ? RETURNING *",
        (new, http_status, int(override), to_text(now), event_id.casefold(), old),
    ).fetchall()
    if len(rows) != 1:
        raise StoreError(f"event {event_id} is not {old}, so it cannot become {new}")
    return rows[0]


def resting_state(db: sqlite3.Connection, event_id: str) -> State:
    """Where an approval goes that came to nothing: an overridden doubt remains a doubt."""
    row = db.execute(
        "SELECT override FROM approvals WHERE event_id = ?", (event_id.casefold(),)
    ).fetchone()
    return "in-doubt" if row and row["override"] else "rejected"


def to_entry(row: Any) -> Entry:
    return Entry(event_id=row["azure_event_id"], state=row["state"], key=row["key"])
