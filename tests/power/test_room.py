"""Room made in the WAL: commits fit into it, and whatever cuts it short takes nothing along."""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.store import Store
from bridge.store.connection import wal_of
from bridge.store.room import ROOM_BYTES
from tests.power.story import NOW, STORY, accept, begin, finish, see, signature

SMALLEST_PAGE = 512


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.open(path, now=NOW, vm_id="vm-1")
    opened.set_sinks(["a"])
    yield opened
    opened.close()


def size(path: Path) -> int:
    return wal_of(path).stat().st_size


def test_commits_fit_into_the_room(store: Store, path: Path) -> None:
    """The file does not grow, which is what costs a second write."""
    before = size(path)
    store.make_room()
    assert size(path) == before + ROOM_BYTES
    for number in range(5):
        see(number)(store)
        store.make_room()
    assert size(path) == before + ROOM_BYTES


def test_room_is_made_again_when_it_is_used_up(store: Store, path: Path) -> None:
    """Whether it was filled, or went with the checkpoint that precedes a POST."""
    store.make_room()
    left = size(path)
    while size(path) == left:
        see(1, size=6000)(store)
    grown = size(path)
    store.make_room()
    assert size(path) == grown + ROOM_BYTES

    accept(1)(store)
    begin(1)(store)
    assert size(path) == 0
    store.make_room()
    assert size(path) == ROOM_BYTES
    finish(1, 200)(store)
    assert size(path) == ROOM_BYTES


def test_room_has_an_end(store: Store, path: Path) -> None:
    """SQLite begins at the front again at four megabytes, so nothing longer is of use."""
    for _ in range(100):
        with wal_of(path).open("ab") as wal:
            wal.write(bytes(SMALLEST_PAGE))
        store.make_room()
    assert 4 * 1024 * 1024 <= size(path) < 5 * 1024 * 1024


@pytest.mark.parametrize("calls", [1, 2, 6, len(STORY)])
def test_killed_agent_finds_everything(calls: int, path: Path, tmp_path: Path) -> None:
    """File and WAL as they lie there, with room behind, within, or none of it on the disk yet."""
    store = Store.open(path, now=NOW, vm_id="vm-1")
    for call in STORY[:calls]:
        store.make_room()
        call(store)
    promised = signature(store)
    for number, cut in enumerate((0, 1, 4096, ROOM_BYTES // 2)):
        copy = tmp_path / str(number) / "ledger.db"
        copy.parent.mkdir()
        shutil.copy(path, copy)
        content = wal_of(path).read_bytes()
        spare = len(content) - len(content.rstrip(b"\0"))
        wal_of(copy).write_bytes(content[: len(content) - min(cut, spare)])
        found = Store.open(copy, now=NOW, vm_id="vm-1")
        assert not found.ledger_lost
        assert signature(found) == promised
        found.close()
    store.close()


def test_disk_without_room_is_left_as_it_was(store: Store, path: Path) -> None:
    """Half of it is given back at once, and it is not tried again at every poll."""
    before = size(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + ROOM_BYTES // 2, limits[1]))
    try:
        store.make_room()
        assert size(path) == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    store.make_room()
    assert size(path) == before
    see(1)(store)
    store.make_room()
    assert size(path) > before + ROOM_BYTES


def test_ledger_in_memory_needs_none(tmp_path: Path) -> None:
    """Nor one whose disk was given up."""
    path = tmp_path / "missing" / "ledger.db"
    path.parent.write_text("not a directory")
    store = Store.open(path, now=NOW, vm_id="vm-1")
    assert not store.durable
    store.make_room()
    store.close()
