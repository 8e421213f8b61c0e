"""Power loss at every write: what a call of the store returned for is on the disk."""

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.store import Store
from tests.power.adapter import open_store, raw_connection
from tests.power.disk import Disk, Image, images
from tests.power.story import NOW, STORY, check_invariants, signature

# A checkpoint after so many pages: several within the story, not none.
CHECKPOINT_PAGES = 24
SEED = 1


def record_story(name: str, pragma: str = "", room: int = 0) -> tuple[Disk, list[Any]]:
    """Run the story on a logging disk; gives the log and the ledger after each call."""
    disk = Disk(name)
    store = open_store(disk, "ledger.db", NOW)
    for sql in (f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}", pragma):
        raw_connection(store).execute(sql).fetchall()
    signatures = [signature(store)]
    disk.returned(0)
    for number, call in enumerate(STORY, start=1):
        disk.make_room("ledger.db-wal", room)
        call(store)
        disk.returned(number)
        signatures.append(signature(store))
    store.close()
    return disk, signatures


def demands(disk: Disk, every: int) -> dict[bytes, int]:
    """Each distinct image by its digest, with the most that may be asked of it."""
    found: dict[bytes, int] = {}
    for returned, image in images(disk.log, SEED, every=every):
        name = digest(image)
        found[name] = max(returned, found.get(name, 0))
    return found


def digest(image: Image) -> bytes:
    summary = hashlib.blake2b(digest_size=16)
    for name in sorted(image):
        summary.update(f"{name}:{len(image[name])}:".encode())
        summary.update(image[name])
    return summary.digest()


def judge(image: Image, returned: int, signatures: list[Any], folder: Path) -> str:
    """'' if the real store, opened on the image, holds all it must and nothing it must not."""
    for old in folder.iterdir():
        old.unlink()
    for name, content in image.items():
        (folder / name).write_bytes(content)
    store = Store.open(folder / "ledger.db", now=NOW, vm_id="vm-1")
    try:
        if store.ledger_lost:
            return "corrupt"
        found = signature(store)
        if found not in signatures[returned : returned + 2]:
            return "lost" if found in signatures[: returned + 1] else "torn"
        check_invariants(store)
    finally:
        store.close()
    return ""


@pytest.fixture
def folder() -> Iterator[Path]:
    """In RAM, and without waiting for a real disk: only the images' content counts here."""
    ram = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=ram) as directory:
        yield Path(directory)


def verdicts(
    name: str, pragma: str, folder: Path, *, every: int, most: int, room: int = 0
) -> dict[str, int]:
    """Twice through all images: once to know them, once to judge some; few are kept in memory."""
    disk, signatures = record_story(name, pragma, room)
    known = demands(disk, every)
    chosen = set(list(known)[:: max(1, len(known) // most)])
    counts: dict[str, int] = {}
    for _, image in images(disk.log, SEED, every=every):
        which = digest(image)
        if which in chosen:
            chosen.remove(which)
            verdict = judge(image, known[which], signatures, folder)
            counts[verdict] = counts.get(verdict, 0) + 1
    return counts


@pytest.mark.parametrize("room", [0, 3000, 64 * 1024])
def test_sampled_power_losses_lose_nothing_that_was_promised(folder: Path, room: int) -> None:
    """Several hundred images: each holds every returned call, at most one more, and is whole."""
    counts = verdicts(f"full-sample-{room}", "", folder, every=5, most=500, room=room)

    assert set(counts) == {""}
    assert counts[""] >= 500


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("room", [0, 64 * 1024])
def test_all_power_losses_lose_nothing_that_was_promised(folder: Path, room: int) -> None:
    """Every crash point, all subsets of up to six unsynced writes, torn sectors."""
    counts = verdicts(f"full-{room}", "", folder, every=1, most=10**9, room=room)

    assert set(counts) == {""}
    assert counts[""] >= 5000


@pytest.mark.parametrize("weaker", ["NORMAL", "OFF"])
def test_a_weaker_synchronous_is_caught(folder: Path, weaker: str) -> None:
    """The test above can fail: without the sync on commit, returned calls are lost."""
    pragma = f"PRAGMA synchronous = {weaker}"
    counts = verdicts(f"weaker-{weaker}", pragma, folder, every=40, most=40)

    assert sum(counts.values()) - counts.get("", 0) > 5


def test_the_story_uses_every_writing_call(tmp_path: Path) -> None:
    """A new public method of the store must be added to the story, or named here."""
    reading = {
        "audit", "batch", "command", "depth", "entries", "entry", "fenced",
        "identity", "ledger_id", "offset", "oldest", "parked", "pending", "snapshot", "tokens",
        "accepted", "doubts", "foreign", "durable", "problem", "open", "close", "degrade", "condemn", "figures", "commit_s", "accepted_since",
        "commits", "make_room",
    }  # fmt: skip
    called: set[str] = set()

    class Spy:
        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            called.add(name)
            return getattr(self._store, name)

    store = Store.open(tmp_path / "ledger.db", now=NOW)
    for call in STORY:
        call(Spy(store))  # type: ignore[arg-type]
    store.close()
    public = {name for name in dir(Store) if not name.startswith("_")}

    assert public - reading == called - reading
