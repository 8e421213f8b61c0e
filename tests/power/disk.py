"""A disk in memory that logs every write and sync, and can be told to fail: an APSW VFS.

From the log come all images that a power loss may leave: what was synced is there; each write
since then is there, gone, or torn at a sector. Not modelled: bit rot, a disk that lies about a
sync, and directory entries that are lost (the store syncs the directory itself, SQLite does so
for the WAL).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

SECTOR = 512
PENDING_ALL_SUBSETS = 6
SAMPLES = 64


class Write(NamedTuple):
    name: str
    offset: int
    data: bytes


class Truncate(NamedTuple):
    name: str
    size: int


class Sync(NamedTuple):
    name: str


class Delete(NamedTuple):
    name: str


class Returned(NamedTuple):
    """Not of the disk: so many calls of the store have returned to their caller."""

    calls: int


Change = Write | Truncate
Operation = Change | Sync | Delete | Returned
Image = Mapping[str, bytes]


class Fault(NamedTuple):
    """The n-th operation of a kind fails with a result code, once or for ever."""

    kind: str  # "write", "sync", "open"
    number: int
    error: type[apsw.Error]
    extended: int
    forever: bool = False


class Disk(apsw.VFS):
    """`open_connection()` gives SQLite's files a home in here."""

    def __init__(self, name: str, image: Image | None = None, fault: Fault | None = None) -> None:
        self.vfs_name = name
        self.files = {path: bytearray(content) for path, content in (image or {}).items()}
        self.log: list[Operation] = []
        self.counts = {"write": 0, "sync": 0, "open": 0}
        self.left: Image | None = None
        self._rooms: dict[str, int] = {}
        self._fault = fault
        super().__init__(name, base="")

    def open_connection(self, path: str) -> apsw.Connection:
        return apsw.Connection(path, vfs=self.vfs_name)

    def returned(self, calls: int) -> None:
        self.log.append(Returned(calls))

    def make_room(self, path: str, size: int) -> None:
        """As the agent does behind SQLite's back; twice as bad, for it may lose the sync, too."""
        end = len(self.files[path])
        if size and (path not in self._rooms or self._rooms[path] != end):
            self.files[path].extend(bytes(size))
            self.log.append(Write(path, end, bytes(size)))
            self._rooms[path] = end + size

    def fail(self, fault: Fault) -> None:
        """From now on; `fault.number` counts from here."""
        self.counts[fault.kind] = 0
        self._fault = fault

    def die(self) -> Image:
        """What is on the disk when the process ends. Afterwards nothing fails, nothing counts:
        a connection that cannot be closed in peace makes APSW complain to the world."""
        if self.left is None:
            self.left = {name: bytes(content) for name, content in self.files.items()}
        self._fault = None
        return self.left

    def may_fail(self, kind: str) -> None:
        self.counts[kind] += 1
        fault = self._fault
        if fault is None or fault.kind != kind:
            return
        count = self.counts[kind]
        if count == fault.number or (fault.forever and count > fault.number):
            error = fault.error("told to fail")
            error.extendedresult = fault.extended  # type: ignore[attr-defined] # apsw reads it
            raise error

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.may_fail("open")
        if path not in self.files and not flags[0] & apsw.SQLITE_OPEN_CREATE:
            raise apsw.CantOpenError(path)
        self.files.setdefault(path, bytearray())
        flags[1] = flags[0]
        return _File(self, path)

    def xAccess(self, path: str, flags: int) -> bool:  # noqa: N802
        return path in self.files

    def xDelete(self, path: str, sync: bool) -> None:  # noqa: N802
        if path not in self.files:
            raise apsw.IOError(path)
        del self.files[path]
        self.log.append(Delete(path))

    def excepthook(self, *_: object) -> bool:
        """SQLite goes on after some failures (of a checkpoint, a close); they are meant."""
        return True

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


class _File:
    """What SQLite calls a file: methods that apsw looks up by name."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lock = 0

    def excepthook(self, *_: object) -> bool:
        return True

    @property
    def _content(self) -> bytearray:
        return self._disk.files.setdefault(self._path, bytearray())

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._content[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.may_fail("write")
        _apply(self._content, offset, bytes(data))
        self._disk.log.append(Write(self._path, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        del self._content[size:]
        self._disk.log.append(Truncate(self._path, size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.may_fail("sync")
        self._disk.log.append(Sync(self._path))

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._content)

    def xLock(self, level: int) -> None:  # noqa: N802
        self._lock = level

    def xUnlock(self, level: int) -> None:  # noqa: N802
        self._lock = level

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return self._lock >= apsw.SQLITE_LOCK_RESERVED

    def xFileControl(self, operation: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return SECTOR

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xClose(self) -> None:  # noqa: N802
        pass


def images(log: list[Operation], seed: int, *, every: int = 1) -> Iterator[tuple[int, Image]]:
    """(calls that had returned, what the disk holds) for crashes after each `every`-th operation.

    The same image may come up several times; the caller keeps the strictest demand on it.
    """
    rng = random.Random(seed)
    durable: dict[str, bytearray] = {}
    pending: list[Change] = []
    returned = 0
    for number, operation in enumerate(log):
        match operation:
            case Returned(calls):
                returned = calls
            case Sync(name):
                for waiting in [w for w in pending if w.name == name]:
                    _replay(durable, waiting)
                pending = [w for w in pending if w.name != name]
            case Delete(name):
                durable.pop(name, None)
                pending = [w for w in pending if w.name != name]
            case _:
                durable.setdefault(operation.name, bytearray())
                pending.append(operation)
        if number % every == 0 or isinstance(operation, Returned):
            for kept in _subsets(pending, rng):
                image = {name: bytearray(content) for name, content in durable.items()}
                for write in kept:
                    _replay(image, write)
                yield returned, {name: bytes(content) for name, content in image.items()}


def _subsets(pending: list[Change], rng: random.Random) -> Iterator[list[Change]]:
    """All subsets of a few; of many a sample. In each, one write may be torn."""
    choices: Sequence[int] = range(2 ** len(pending))
    if len(pending) > PENDING_ALL_SUBSETS:
        samples = [rng.getrandbits(len(pending)) for _ in range(SAMPLES)]
        choices = [0, 2 ** len(pending) - 1, *samples]
    for bits in choices:
        kept = [w for index, w in enumerate(pending) if bits >> index & 1]
        yield list(kept)
        torn = [_torn(w, rng) for w in kept]
        if torn != kept:
            yield torn


def _torn(operation: Change, rng: random.Random) -> Change:
    if not isinstance(operation, Write) or len(operation.data) <= SECTOR or rng.random() < 0.5:
        return operation
    sectors = rng.randrange(1, len(operation.data) // SECTOR)
    if rng.random() < 0.5:
        return operation._replace(data=operation.data[: sectors * SECTOR])
    cut = sectors * SECTOR
    return operation._replace(offset=operation.offset + cut, data=operation.data[cut:])


def _replay(files: dict[str, bytearray], operation: Operation) -> None:
    if isinstance(operation, Write):
        _apply(files.setdefault(operation.name, bytearray()), operation.offset, operation.data)
    elif isinstance(operation, Truncate):
        del files.setdefault(operation.name, bytearray())[operation.size :]


def _apply(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data
