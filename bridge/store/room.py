"""Room in the WAL before it is needed.

A commit that makes the file longer is two writes to the disk, its own and the file system's; one
that overwrites what is there is one. So the WAL is made longer at a quiet moment, with zeros: to
SQLite they are what any old content is, frames that do not fit. An error of the disk that our fsync
meets may be told to SQLite as well, at its next; it is an error of that disk either way.
"""

import contextlib
import os
from pathlib import Path

ROOM_BYTES = 256 * 1024  # nine changes; a POST begins by emptying the WAL, and the room goes too
_FILE_BYTES_MAX = 4 * 1024 * 1024  # here SQLite begins at the front again


class Room:
    def __init__(self, wal: Path) -> None:
        self._wal = wal
        self._left_at: int | None = None  # the file's size when we saw it last

    def make(self) -> None:
        """Not within a transaction. A favour, no promise: a disk that has no room is left alone."""
        with contextlib.suppress(OSError):
            size = self._wal.stat().st_size
            if size == self._left_at or size >= _FILE_BYTES_MAX:
                return
            self._left_at = size
            self._left_at += _lengthen(self._wal, size)


def _lengthen(path: Path, size: int) -> int:
    """By how much it was: all or nothing."""
    lengthened = 0
    with path.open("r+b", buffering=0) as wal:
        try:
            if os.pwrite(wal.fileno(), bytes(ROOM_BYTES), size) == ROOM_BYTES:
                os.fsync(wal.fileno())
                lengthened = ROOM_BYTES
        finally:
            if not lengthened:
                wal.truncate(size)
    return lengthened
