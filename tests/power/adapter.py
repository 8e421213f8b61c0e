"""The real store on an APSW connection: just enough of sqlite3's interface for `Database`.

Errors of APSW come out as sqlite3's, with the names that `translate` looks at.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import apsw

from bridge.errors import StoreError
from bridge.store import Store
from bridge.store.connection import Database, secure, translate
from bridge.store.opening import prepare
from tests.power.disk import Disk


class Row(dict[str, Any]):
    """By name and by number, as sqlite3.Row."""

    def __getitem__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())


class Result:
    def __init__(self, connection: apsw.Connection, cursor: apsw.Cursor) -> None:
        self._rows = [Row(zip(_names(cursor), row, strict=True)) for row in cursor]
        self.rowcount = connection.changes()
        self.lastrowid = connection.last_insert_rowid()

    def fetchone(self) -> Row | None:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)


class Connection:
    row_factory: Any = None

    def __init__(self, raw: apsw.Connection) -> None:
        self.raw = raw

    @property
    def in_transaction(self) -> bool:
        return self.raw.in_transaction

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Result:
        with _as_sqlite3():
            return Result(self.raw, self.raw.execute(sql, values or None))

    def executescript(self, sql: str) -> None:
        with _as_sqlite3():
            for _ in self.raw.execute(sql):
                pass

    def backup(self, target: sqlite3.Connection) -> None:
        """Through the serialised form: two libraries share no memory."""
        with _as_sqlite3():
            content = bytearray(self.raw.serialize("main"))
        content[18:20] = b"\1\1"  # no WAL in memory
        target.deserialize(bytes(content))

    def close(self) -> None:
        with _as_sqlite3():
            self.raw.close()


def open_store(disk: Disk, path: str, now: datetime) -> Store:
    """As `Store.open` does for a good file: the same pragmas, the same preparation."""
    raw = None
    try:
        with _as_sqlite3():
            raw = Connection(disk.open_connection(path))
        connection = cast("sqlite3.Connection", raw)
        secure(connection, Path(path))
        database = Database(connection, Path(path))
        prepare(database, now, "vm-1", lost=False)
    except (sqlite3.Error, StoreError) as error:
        disk.die()
        if raw is not None:
            raw.close()
        if isinstance(error, sqlite3.Error):
            raise translate(error, Path(path)) from error
        raise
    return Store(database)


def raw_connection(store: Store) -> apsw.Connection:
    return cast("Connection", store._database.raw).raw


def _names(cursor: apsw.Cursor) -> list[str]:
    try:
        return [column[0] for column in cursor.get_description()]
    except apsw.ExecutionCompleteError:
        return []


@contextlib.contextmanager
def _as_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        kind = {
            "ConstraintError": sqlite3.IntegrityError,
            "CorruptError": sqlite3.DatabaseError,
            "NotADBError": sqlite3.DatabaseError,
        }.get(type(error).__name__, sqlite3.OperationalError)
        translated = kind(str(error))
        translated.sqlite_errorname = _error_name(error)
        raise translated from error


def _error_name(error: apsw.Error) -> str:
    extended = getattr(error, "extendedresult", 0)
    names = apsw.mapping_extended_result_codes | apsw.mapping_result_codes
    return str(names.get(extended) or names.get(extended & 0xFF, ""))
