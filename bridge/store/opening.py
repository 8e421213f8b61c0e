"""Opening the ledger, whatever is found: nothing, a good file, a broken one, another VM's.

Nothing is ever deleted: what cannot be used is moved aside, and the ledger that replaces it
knows that history was lost, also if the process dies between the two: the mark of damage is there
before the old file goes, and goes after the new one is there.
"""

import contextlib
import re
import secrets
import shutil
import sqlite3
import tempfile
from datetime import datetime
from pathlib import Path

from bridge.errors import StoreError, StoreUnwritable
from bridge.store.checks import check, schema_digest
from bridge.store.connection import (
    Database,
    StoreDamaged,
    connect_file,
    connect_memory,
    damage_mark,
    sync_directory,
    translate,
    wal_of,
)
from bridge.store.meta import get_meta, set_meta
from bridge.store.migrations import SCHEMA, VERSION, lift
from bridge.store.rows import to_text

SEQUENCES_PER_S = 1_000_000
_RAM_DISK = Path("/dev/shm")  # noqa: S108 - a private directory is made in it


class _OtherVm(Exception):
    def __init__(self, vm_id: str) -> None:
        super().__init__(vm_id)
        self.vm_id = vm_id


def open_database(path: Path, *, now: datetime, vm_id: str) -> Database:
    try:
        return _open_file_or_replace(path, now, vm_id)
    except StoreUnwritable as error:
        return _open_memory(path, now, vm_id, str(error))


def new_ledger_id() -> str:
    return secrets.token_hex(6)


def _open_file_or_replace(path: Path, now: datetime, vm_id: str) -> Database:
    try:
        return _open_file(path, now, vm_id)
    except StoreDamaged:
        _move_aside(path, f"corrupt-{now:%Y%m%dT%H%M%S}")
    except _OtherVm as other:
        _move_aside(path, f"vm-{_plain(other.vm_id)}")
    return _open_file(path, now, vm_id)


def _open_file(path: Path, now: datetime, vm_id: str) -> Database:
    database = Database(connect_file(path), path)
    try:
        prepare(database, now, vm_id, lost=damage_mark(path).exists())
    except BaseException:
        database.close()
        raise
    return database


def _open_memory(path: Path, now: datetime, vm_id: str, problem: str) -> Database:
    raw, lost = connect_memory(), damage_mark(path).exists()
    if path.exists() and not lost:
        try:
            copy_into(path, raw)
        except (OSError, sqlite3.Error, StoreError):
            raw, lost = connect_memory(), True
    database = Database(raw, path, durable=False, problem=problem)
    try:
        prepare(database, now, vm_id, lost=lost)
    except (StoreDamaged, _OtherVm):
        database = Database(connect_memory(), path, durable=False, problem=problem)
        prepare(database, now, vm_id, lost=True)
    with database.transaction() as memory:
        set_meta(memory, "ledger_id", new_ledger_id().encode())
    return database


def copy_into(path: Path, memory: sqlite3.Connection) -> None:
    """Read file and WAL without writing beside them: on a copy, in RAM where possible."""
    with tempfile.TemporaryDirectory(dir=_RAM_DISK if _RAM_DISK.is_dir() else None) as directory:
        copy = Path(directory, "ledger")
        shutil.copyfile(path, copy)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(wal_of(path), wal_of(copy))
        source = connect_file(copy)
        try:
            source.backup(memory)
        finally:
            source.close()


def prepare(database: Database, now: datetime, vm_id: str, *, lost: bool) -> None:
    """Create or check the tables, and prove with a first write that there can be others."""
    with database.reading() as raw:
        version = raw.execute("PRAGMA user_version").fetchone()[0]
        tables = raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if version > VERSION:
        raise StoreError(
            f"the ledger {database.path} was written by a newer sebridge (schema {version}, "
            f"this one knows {VERSION}). Install that version again."
        )
    if version == 0 and tables:
        raise StoreError(f"{database.path} is a database, but not a ledger. Name another file.")
    if version == 0:
        _create(database, now, vm_id, lost=lost)
    elif version < VERSION:
        lift(database, version)
    check(database)
    with database.transaction() as raw:
        known = (get_meta(raw, "vm_id") or b"").decode()
        if known and vm_id and known != vm_id:
            raise _OtherVm(known)
        # What was published from memory while the disk was full must not be numbered again.
        last = max(int(get_meta(raw, "sequence") or 0), first_sequence(now) - 1)
        set_meta(raw, "sequence", str(last).encode())
        set_meta(raw, "vm_id", (vm_id or known).encode())
        set_meta(raw, "opened_at", to_text(now).encode())


def first_sequence(now: datetime) -> int:
    """Ahead of any ledger that was lost before."""
    return int(now.timestamp()) * SEQUENCES_PER_S + 1


def _create(database: Database, now: datetime, vm_id: str, *, lost: bool) -> None:
    schema = SCHEMA.read_text(encoding="utf-8")
    raw = database.raw
    try:
        # executescript() commits what is open, so the script opens the transaction itself.
        raw.executescript(f"BEGIN IMMEDIATE;\n{schema}")
        set_meta(raw, "ledger_id", new_ledger_id().encode())
        set_meta(raw, "ledger_lost", b"1" if lost else b"0")
        set_meta(raw, "sequence", str(first_sequence(now) - 1).encode())
        set_meta(raw, "vm_id", vm_id.encode())
        set_meta(raw, "created_at", to_text(now).encode())
        set_meta(raw, "schema", schema_digest(raw))
        raw.execute(f"PRAGMA user_version = {VERSION}")
        raw.execute("COMMIT")
    except sqlite3.Error as error:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise translate(error, database.path) from error
    if lost and database.durable:
        _unmark(database.path)


def _unmark(path: Path) -> None:
    mark = damage_mark(path)
    try:
        mark.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreUnwritable(
            f"cannot remove {mark}: {error.strerror}. Remove it yourself and restart; until then "
            "no approval is sent."
        ) from error


def _move_aside(path: Path, label: str) -> None:
    target = _free_name(path.with_name(f"{path.name}.{label}"))
    try:
        damage_mark(path).touch(mode=0o600)
        sync_directory(path.parent)
        path.replace(target)
        with contextlib.suppress(FileNotFoundError):
            wal_of(path).replace(wal_of(target))
        sync_directory(path.parent)
    except OSError as error:
        raise StoreUnwritable(
            f"cannot move the unusable ledger {path} to {target}: {error.strerror}. Move it "
            "yourself and restart; until then no approval is sent."
        ) from error


def _free_name(wanted: Path) -> Path:
    target, number = wanted, 1
    while target.exists():
        number += 1
        target = wanted.with_name(f"{wanted.name}.{number}")
    return target


def _plain(vm_id: str) -> str:
    return re.sub(r"[^0-9A-Za-z-]", "_", vm_id)[:64]
