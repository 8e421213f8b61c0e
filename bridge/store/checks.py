"""Is the ledger whole? Asked once at every start, before anything is done with it.

SQLite keeps no checksum of its pages, so a flipped bit may leave a file that it can read and
that says something else. Whatever could let a second POST pass is found here: rows that do not
belong together, a state that no row of `posts` explains, tables or triggers that are not those
the ledger was made with. A ledger that was found damaged while running says so in a file beside
it, so that the next start does not run into the same row.
"""

import hashlib
import sqlite3
from pathlib import Path

from bridge.store.connection import Database, StoreDamaged, damage_mark
from bridge.store.meta import get_meta

# Each finds rows that no sequence of legal moves can have left behind.
_CONTRADICTIONS = {
    "an approval is in no known state": """
        SELECT 1 FROM approvals WHERE state NOT IN (SELECT new FROM moves)""",
    "an approval was posted, and no POST is on record": """
        SELECT 1 FROM approvals AS a WHERE state IN ('sending', 'approved', 'in-doubt', 'confirmed')
        AND NOT EXISTS (SELECT 1 FROM posts WHERE event_id = a.event_id AND counted = 1)""",
    "a POST may have counted, and its approval does not say so": """
        SELECT 1 FROM posts AS p JOIN approvals AS a USING (event_id)
        WHERE p.counted = 1 AND p.waived = 0
        AND a.state NOT IN ('sending', 'approved', 'in-doubt', 'confirmed')""",
    "a POST does not count, and IMDS never refused it": """
        SELECT 1 FROM posts WHERE counted = 0
        AND (http_status IS NULL OR http_status NOT IN (400, 403, 404, 405, 429))""",
    "a POST was overridden, and nobody said so": """
        SELECT 1 FROM posts AS p JOIN approvals AS a USING (event_id)
        WHERE p.waived = 1 AND a.override <> 1""",
    "the last sequence number is none, or behind the outbox": """
        SELECT 1 WHERE NOT EXISTS (
          SELECT 1 FROM meta WHERE name = 'sequence' AND CAST(value AS TEXT) NOT GLOB '*[^0-9]*'
          AND CAST(value AS INTEGER) >= (SELECT coalesce(max(sequence), 1) FROM outbox))""",
    "facts about the ledger are missing or unreadable": """
        SELECT 1 WHERE (SELECT count(*) FROM meta WHERE name IN
          ('ledger_id', 'ledger_lost', 'vm_id', 'sequence', 'created_at')) <> 5
        OR EXISTS (SELECT 1 FROM meta WHERE name IN ('ledger_id', 'ledger_lost', 'vm_id')
          AND CAST(value AS TEXT) GLOB '*[^ -~]*')""",
}


def check(database: Database) -> None:
    """Raise StoreDamaged unless everything fits together."""
    if database.durable and damage_mark(database.path).exists():
        raise _damaged(database.path, "it was found damaged before")
    with database.reading() as raw:
        problems = [row[0] for row in raw.execute("PRAGMA quick_check(5)")]
        if problems != ["ok"]:
            raise _damaged(database.path, "; ".join(problems))
        if get_meta(raw, "schema") != schema_digest(raw):
            raise _damaged(database.path, "its tables or triggers have changed")
        if raw.execute("PRAGMA foreign_key_check").fetchone():
            raise _damaged(database.path, "rows that belong together do not match")
        for problem, query in _CONTRADICTIONS.items():
            if raw.execute(query).fetchone():
                raise _damaged(database.path, problem)


def schema_digest(raw: sqlite3.Connection) -> bytes:
    """Of the tables, indexes and triggers as they are in the file."""
    rows = raw.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    return hashlib.sha256(repr([tuple(row) for row in rows]).encode()).hexdigest().encode()


def _damaged(path: Path, why: str) -> StoreDamaged:
    return StoreDamaged(f"the ledger {path} is damaged: {why}. It is moved aside and kept.")
