"""The n-th write, sync or open fails, n = 1, 2, 3 … until the story passes untouched."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from bridge.errors import StoreError, StoreUnwritable
from bridge.store import Store
from tests.power.adapter import open_store, raw_connection
from tests.power.disk import Disk, Fault, Image
from tests.power.story import NOW, STORY, accept, begin, check_invariants, see, signature

FULL = (apsw.FullError, apsw.SQLITE_FULL)
FSYNC = (apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
WRITE = (apsw.IOError, apsw.SQLITE_IOERR_WRITE)
CANTOPEN = (apsw.CantOpenError, apsw.SQLITE_CANTOPEN)

names = iter(range(1_000_000))


def run_story(disk: Disk) -> tuple[int, StoreError | None]:
    """How many calls returned, and what stopped the story; then the process is gone."""
    returned, store = 0, None
    try:
        store = open_store(disk, "ledger.db", NOW)
        raw_connection(store).execute("PRAGMA wal_autocheckpoint = 24").fetchall()
        for call in STORY:
            call(store)
            returned += 1
    except StoreError as error:
        return returned, error
    finally:
        disk.die()
        if store is not None:
            store.close()
    return returned, None


def expected_signatures() -> list[Any]:
    store = open_store(Disk(f"reference-{next(names)}"), "ledger.db", NOW)
    found = [signature(store)]
    for call in STORY:
        call(store)
        found.append(signature(store))
    store.close()
    return found


@pytest.mark.parametrize(
    "stride", [pytest.param(1, marks=pytest.mark.slow, id="every"), pytest.param(7, id="seventh")]
)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize(
    ("kind", "fault"),
    [("write", FULL), ("write", WRITE), ("sync", FSYNC), ("open", CANTOPEN)],
    ids=["disk-full", "write-error", "fsync-error", "open-error"],
)
def test_a_failing_disk_loses_nothing_and_promises_nothing(
    tmp_path: Path, kind: str, fault: tuple[type[apsw.Error], int], forever: bool, stride: int
) -> None:
    """After the failure a restart finds every call that returned, and none that did not."""
    signatures = expected_signatures()
    number, failures, stopped = 0, 0, True
    while stopped:
        number += stride if kind == "write" else 1
        disk = Disk(f"io-{next(names)}", fault=Fault(kind, number, *fault, forever=forever))
        returned, error = run_story(disk)
        stopped = error is not None or disk.counts[kind] >= number
        failures += error is not None
        reopened = open_image(disk.die(), tmp_path / f"{number}")
        found = signature(reopened)
        check_invariants(reopened)
        reopened.close()

        assert found in signatures[returned : returned + 2], (number, returned, error)

    assert failures > 0


def open_image(image: Image, folder: Path) -> Store:
    folder.mkdir()
    for name, content in image.items():
        (folder / name).write_bytes(content)
    store = Store.open(folder / "ledger.db", now=NOW, vm_id="vm-1")
    assert not store.ledger_lost
    return store


def test_a_full_disk_keeps_the_stream_and_stops_approvals() -> None:
    """After SQLITE_FULL the store goes on in memory: documents are recorded, no POST begins."""
    disk = Disk(f"full-{next(names)}")
    store = open_store(disk, "ledger.db", NOW)
    for call in STORY[:4]:
        call(store)
    disk.fail(Fault("write", 1, *FULL, forever=True))
    with pytest.raises(StoreUnwritable, match="Free space") as caught:
        see(3, 4)(store)
    store.degrade(str(caught.value))
    see(3, 4)(store)

    assert [row.event_id for row in store.batch("a", 9)][-2:] == ["Event-3", "Event-4"]
    with pytest.raises(StoreUnwritable, match="no POST without a durable ledger"):
        begin(1)(store)
    disk.die()
    store.close()


def test_after_a_failed_fsync_the_store_refuses_all_work() -> None:
    """Nobody knows what the disk holds: neither the same call nor another is tried again."""
    disk = Disk(f"fsync-{next(names)}")
    store = open_store(disk, "ledger.db", NOW)
    for call in STORY[:3]:
        call(store)
    disk.fail(Fault("sync", 1, *FSYNC))
    with pytest.raises(StoreError, match="disk failed"):
        accept(1)(store)
    with pytest.raises(StoreError, match="disk failed"):
        accept(1)(store)
    with pytest.raises(StoreError, match="disk failed"):
        store.entries()
    disk.die()
    store.close()
