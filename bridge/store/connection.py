"""One SQLite connection: pragmas that are read back, transactions, errors with advice.

A commit that returned is on the disk: WAL with synchronous = FULL, checked, not hoped for. After
an I/O error nobody can say what the disk holds, so the connection refuses all further work and
the next start decides from the file.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bridge.errors import StoreError, StoreLocked, StoreUnwritable
from bridge.measures import DISK_S, Histogram
from bridge.store.room import Room

SYNCHRONOUS_FULL = 2
_LEDGER_ERRORS = (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError)
_LOCK_WAIT_S = 1.0  # a predecessor may be closing


class StoreDamaged(StoreError):
    """The file is no database, or a broken one."""


class Database:
    """The connection, on a file or (when `durable` is false) in memory."""

    def __init__(
        self, raw: sqlite3.Connection, path: Path, *, durable: bool = True, problem: str = ""
    ) -> None:
        self.raw = raw
        self.path = path
        self.durable = durable
        self.problem = problem
        self.commits = 0
        self.commit_s = Histogram(DISK_S)
        self._room = Room(wal_of(path))
        self._broken = ""
        self._file: sqlite3.Connection | None = None  # kept after degrade(), for its lock

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self._refuse_broken()
        try:
            self.raw.execute("BEGIN IMMEDIATE")
            yield self.raw
            began_s = time.perf_counter()
            self.raw.execute("COMMIT")
            self.commits += 1
            self.commit_s.observe(time.perf_counter() - began_s)
        except BaseException as error:
            if self.raw.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self.raw.execute("ROLLBACK")
            if isinstance(error, _LEDGER_ERRORS):
                raise self._as_ours(error) from error
            raise

    def checkpoint(self) -> None:
        """Bring everything from the WAL into the file: a WAL that gets lost takes nothing along."""
        with self.reading() as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def make_room(self) -> None:
        if self.durable and not self._broken:
            self._room.make()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For one SELECT: errors become ours."""
        self._refuse_broken()
        try:
            yield self.raw
        except _LEDGER_ERRORS as error:
            raise self._as_ours(error) from error

    def _refuse_broken(self) -> None:
        if self._broken:
            raise StoreError(self._broken)

    def _as_ours(self, error: Exception) -> StoreError:
        """What it means for the callers, once it is known what it means for the file."""
        if not isinstance(error, sqlite3.Error):
            return self.condemn(
                f"the ledger {self.path} holds a row that cannot be read: {error}. Restart: the "
                "file is moved aside and kept."
            )
        translated = translate(error, self.path)
        if isinstance(translated, StoreDamaged):
            self.condemn(str(translated))
        elif _name(error).startswith("SQLITE_IOERR"):
            self._broken = str(translated)
        return translated

    def condemn(self, why: str) -> StoreDamaged:
        """No more work on this file; the next start finds the mark and moves it aside."""
        self._broken = why
        if self.durable:
            with contextlib.suppress(OSError):
                damage_mark(self.path).touch(mode=0o600)
        return StoreDamaged(why)

    def degrade(self, problem: str) -> None:
        """Go on in memory with a copy of everything that was committed."""
        self.problem = problem
        if not self.durable:
            return
        memory = connect_memory()
        with self.reading() as raw:
            raw.backup(memory)
        self._file, self.raw, self.durable = self.raw, memory, False

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self.durable and not self._broken:
                self.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        for raw in (self.raw, self._file):
            if raw is not None:
                with contextlib.suppress(sqlite3.Error):
                    raw.close()


def damage_mark(path: Path) -> Path:
    """A file beside the ledger: found damaged while running, or about to be moved aside."""
    return path.with_name(f"{path.name}-damaged")


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def connect_file(path: Path) -> sqlite3.Connection:
    """Open or create the file, for its owner only, with every guarantee in force."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write the ledger {path}: {error.strerror or error}. Make the directory "
            "writable for this user; until then no approval is sent."
        ) from error
    raw = None
    try:
        raw = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_WAIT_S)
        secure(raw, path)
    except (sqlite3.Error, UnicodeDecodeError, StoreError) as error:
        if raw is not None:
            raw.close()
        if isinstance(error, sqlite3.Error):
            raise translate(error, path) from error
        if isinstance(error, UnicodeDecodeError):  # even SQLite's complaint cannot be read
            raise StoreDamaged(f"the ledger {path} is damaged: {error}") from error
        raise
    return raw


def secure(raw: sqlite3.Connection, path: Path) -> None:
    """From here on one process holds the file, and a commit that returned is on the disk."""
    _set_pragmas(raw)
    _require(raw, path, "locking_mode = EXCLUSIVE", "exclusive")
    _require(raw, path, "journal_mode = WAL", "wal")
    raw.execute("PRAGMA synchronous = FULL")
    _require(raw, path, "synchronous", SYNCHRONOUS_FULL)


def connect_memory() -> sqlite3.Connection:
    raw = sqlite3.connect(":memory:", isolation_level=None)
    _set_pragmas(raw)
    return raw


def sync_directory(directory: Path) -> None:
    """A new or renamed file is safe only once its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    """What SQLite said, as what the caller must do."""
    name = _name(error)
    said = f"{error} [{name or type(error).__name__}]"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreLocked(
            f"another agent holds the ledger {path}: {said}. Stop it, or give this one a "
            "directory of its own."
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StoreUnwritable(
            f"cannot write the ledger {path}: {said}. Free space or make it writable, then "
            "restart; until then no approval is sent."
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "decode to UTF-8" in said:
        return StoreDamaged(
            f"the ledger {path} is damaged: {said}. Restart: the file is moved aside and kept."
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreError(
            f"the disk failed under the ledger {path}: {said}. Look at the kernel log, then "
            "restart: what was committed decides."
        )
    return StoreError(f"the ledger {path} refused: {said}. This is a bug: please report it.")


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


def _set_pragmas(raw: sqlite3.Connection) -> None:
    raw.row_factory = sqlite3.Row
    # The ledger is small; SQLite's own two megabytes would fill up for days and look like a leak.
    raw.execute("PRAGMA cache_size = -512")
    raw.execute("PRAGMA trusted_schema = OFF")
    raw.execute("PRAGMA cell_size_check = ON")
    raw.execute("PRAGMA foreign_keys = ON")
    # Without it INSERT OR REPLACE would delete rows behind the triggers' back.
    raw.execute("PRAGMA recursive_triggers = ON")


def _require(raw: sqlite3.Connection, path: Path, pragma: str, wanted: str | int) -> None:
    row = raw.execute(f"PRAGMA {pragma}").fetchone()
    got = row[0] if row else None
    if got != wanted:
        raise StoreError(
            f"the ledger {path} cannot be kept safely: PRAGMA {pragma} gives {got!r} and not "
            f"{wanted!r}. Put it on a local file system."
        )
