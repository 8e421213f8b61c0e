"""Facts about the ledger itself, by name: see the table `meta` in schema.sql."""

import sqlite3


def get_meta(raw: sqlite3.Connection, name: str) -> bytes | None:
    row = raw.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else bytes(row[0])


def set_meta(raw: sqlite3.Connection, name: str, value: bytes) -> None:
    raw.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
