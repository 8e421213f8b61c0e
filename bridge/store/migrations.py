"""Ledgers of older versions, brought up to the tables of this one when they are opened.

All steps and the new version number are one transaction: a crash leaves the old ledger or the new
one. What comes out has the tables, indexes and triggers of a new ledger, or it counts as damaged:
the promises hang on them. A step that was released never changes again.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bridge.store.checks import schema_digest
from bridge.store.connection import Database, StoreDamaged
from bridge.store.meta import set_meta

SCHEMA = Path(__file__).with_name("schema.sql")
VERSION = 2

# The statements that lead from each version to the next.
STEPS: Mapping[int, Sequence[str]] = {
    1: (),  # the same tables; from 2 on `meta` must hold a digest of them
}


def lift(database: Database, version: int) -> None:
    with database.transaction() as raw:
        for step in range(version, VERSION):
            for statement in STEPS[step]:
                raw.execute(statement)
        if shape(raw) != _shape_of_a_new_ledger():
            raise StoreDamaged(
                f"the ledger {database.path} of schema {version} does not have the tables and "
                "triggers of that version. It is moved aside and kept."
            )
        set_meta(raw, "schema", schema_digest(raw))
        raw.execute(f"PRAGMA user_version = {VERSION}")


def shape(raw: sqlite3.Connection) -> list[tuple[str, ...]]:
    """What the ledger is made of, comments and line breaks aside, and the moves it allows."""
    things = raw.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    moves = raw.execute("SELECT old, new FROM moves ORDER BY old, new")
    return [*((*row[:3], _plain(row[3])) for row in things), *map(tuple, moves)]


def _shape_of_a_new_ledger() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as raw:
        raw.executescript(SCHEMA.read_text(encoding="utf-8"))
        return shape(raw)


def _plain(sql: str | None) -> str:
    return " ".join(re.sub(r"--[^\n]*", "", sql or "").split())
