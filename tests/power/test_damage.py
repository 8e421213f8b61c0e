"""Damaged files: every flipped bit is found or harmless, and none leads to a second POST."""

import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bridge.clock import SystemClock
from bridge.config import Imds
from bridge.core.approvals import Approve, Rules, Situation
from bridge.core.commands import Command
from bridge.core.decide import decide
from bridge.core.document import Document, ScheduledEvent
from bridge.errors import StoreError
from bridge.poller import Poller
from bridge.store import Store
from tests.power.story import NOW, STORY, VM, accept, begin, draft, recover, scheduled_event, see

FLIPS = 1000
POSTED = (1, 2)  # events of the story whose POST may have counted
RULES = Rules(vm_name="vm-1")


@pytest.fixture
def folder() -> Iterator[Path]:
    ram = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=ram) as directory:
        yield Path(directory)


def killed_after(calls: int, folder: Path) -> Path:
    """A ledger whose process was killed after so many calls: file and WAL as they lie there."""
    path = folder / "ledger.db"
    code = (
        "import os, sys\n"
        "from bridge.store import Store\n"
        "from tests.power.story import NOW, STORY\n"
        "store = Store.open(sys.argv[1], now=NOW, vm_id='vm-1')\n"
        f"for call in STORY[:{calls}]: call(store)\n"
        "os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == 9
    return path


def closed_after(calls: int, folder: Path) -> Path:
    path = folder / "ledger.db"
    store = Store.open(path, now=NOW, vm_id="vm-1")
    for call in STORY[:calls]:
        call(store)
    store.close()
    return path


def posts_again(path: Path, numbers: tuple[int, ...]) -> str:
    """What the agent does with a ledger as it finds it: '' refused or unusable, else the harm.

    Start, recover, see the document, get a new command for each event that was posted before.
    """
    try:
        store = Store.open(path, now=NOW, vm_id="vm-1")
    except StoreError:
        return ""
    try:
        recover(store)
        store.set_sinks(["a"])
        if store.snapshot() is None:
            for number in numbers:
                fenced(store, number)
        for number in numbers:
            if harm := try_to_post(store, number):
                return harm
        store.pending(), store.audit(), store.parked()
    except StoreError:
        return ""
    finally:
        store.close()
    return ""


def fenced(store: Store, number: int) -> None:
    """A new ledger sees its first document: what is pending in it is fenced."""
    store.record(b"first", [msgspec.structs.replace(draft(number), fenced=True)], [], NOW)


def try_to_post(store: Store, number: int) -> str:
    event = ScheduledEvent(
        event_id=f"Event-{number}",
        event_type="Reboot",
        resources=("vm-1",),
        event_status="Scheduled",
    )
    command = Command(
        id="new", source="/ops", key=f"new-{number}", fingerprint="n", event_id=event.event_id
    )
    situation = Situation(
        now=NOW,
        document=Document(incarnation=9, scheduled_events=(event,)),
        entry=store.entry(event.key),
        fenced=event.key in store.fenced(),
        ledger_lost=store.ledger_lost,
        durable=store.durable,
    )
    if event.key in {row.event_id for row in store.accepted()}:
        begin(number)(store)
        return f"Event-{number} was found accepted and posted again"
    decision = decide(command, situation, RULES)
    if not isinstance(decision, Approve):
        return ""
    store.accept(command, decision, received_at=NOW, expires_at=NOW)
    begin(number)(store)
    return f"Event-{number} was approved and posted again"


def flip(source: Path, target: Path, offset: int, bit: int) -> None:
    content = bytearray(source.read_bytes())
    content[offset] ^= 1 << bit
    target.write_bytes(content)


def flipped_ledgers(
    original: Path, folder: Path, suffix: str, count: int
) -> Iterator[tuple[int, int, Path]]:
    """The ledger with one bit flipped in the file (or its WAL), so many times."""
    rng = random.Random(7)
    damaged = Path(f"{original}{suffix}")
    offsets = range(damaged.stat().st_size)
    for offset in rng.sample(offsets, min(count, len(offsets))):
        bit = rng.randrange(8)
        for old in folder.iterdir():
            old.unlink()
        path = folder / "ledger.db"
        for each in original.parent.iterdir():
            shutil.copyfile(each, folder / each.name)
        flip(damaged, Path(f"{path}{suffix}"), offset, bit)
        yield offset, bit, path


def harms(original: Path, folder: Path, suffix: str, count: int = FLIPS) -> list[str]:
    return [
        f"byte {offset}, bit {bit}: {harm}"
        for offset, bit, path in flipped_ledgers(original, folder, suffix, count)
        if (harm := posts_again(path, POSTED))
    ]


@pytest.fixture
def original(folder: Path) -> Path:
    (folder / "original").mkdir()
    (folder / "damaged").mkdir()
    return folder / "original"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "count", [FLIPS, pytest.param(10**9, marks=pytest.mark.slow)], ids=["thousand", "every-byte"]
)
def test_a_flipped_bit_in_the_file_never_posts_again(
    folder: Path, original: Path, count: int
) -> None:
    """Single bits of a closed ledger: detected, or without effect on what was posted."""
    path = closed_after(len(STORY), original)

    assert harms(path, folder / "damaged", "", count) == []


def test_an_undamaged_ledger_is_used(folder: Path, original: Path) -> None:
    """The tests here can fail: without damage nothing is refused and nothing moved aside."""
    path = closed_after(len(STORY), original)
    store = Store.open(path, now=NOW, vm_id="vm-1")
    found = (store.pending(), store.audit(), store.parked(), store.entries(), store.accepted())
    store.close()

    assert not store.ledger_lost
    assert [len(part) for part in found] == [1, 8, 1, 4, 0]


def test_a_flipped_bit_in_the_wal_never_posts_again(folder: Path, original: Path) -> None:
    """SQLite drops a damaged WAL from there on; what `sending` needs is in the file by then."""
    path = killed_after(len(STORY) - 3, original)

    assert harms(path, folder / "damaged", "-wal", 500) == []


@pytest.mark.parametrize("calls", [5, 7, 8, 12, 13, 17, 18, 19, 29])
def test_a_lost_wal_never_posts_again(folder: Path, original: Path, calls: int) -> None:
    """The WAL is deleted after a crash (a backup without it): doubts may come back, POSTs not."""
    path = killed_after(calls, original)
    Path(f"{path}-wal").unlink()

    assert posts_again(path, (1,) if calls < 12 else POSTED) == ""


def test_a_lost_wal_does_not_stop_the_stream(folder: Path, original: Path) -> None:
    """Whatever was lost with it, the store opens and records."""
    path = killed_after(len(STORY), original)
    Path(f"{path}-wal").unlink()
    store = Store.open(path, now=NOW, vm_id="vm-1")
    store.set_sinks(["a"])
    see(9)(store)

    assert store.batch("a", 1000)[-1].event_id == "Event-9"
    assert scheduled_event(9).key in store.tokens()
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE approvals SET state = 'sent' WHERE event_id = 'event-1'",
        "UPDATE approvals SET state = 'rejected' WHERE event_id = 'event-1'",
        "UPDATE posts SET counted = 0 WHERE event_id = 'event-1'",
        "UPDATE posts SET waived = 1 WHERE event_id = 'event-1'",
        "UPDATE posts SET event_id = 'event-0' WHERE event_id = 'event-1'",
        "DELETE FROM posts WHERE event_id = 'event-1'",
        "UPDATE commands SET key = 'other' WHERE key = 'key-1'",
        "CREATE TABLE more (x)",
    ],
)
def test_a_ledger_that_contradicts_itself_is_moved_aside(tmp_path: Path, statement: str) -> None:
    """What no legal move can have left behind is damage, also where SQLite sees none."""
    path = closed_after(8, tmp_path)
    db = sqlite3.connect(path, isolation_level=None)
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute(statement)
    for _, sql in triggers:
        db.execute(sql)
    db.close()

    store = Store.open(path, now=NOW, vm_id="vm-1")
    assert store.ledger_lost
    store.close()
    assert len(list(tmp_path.glob("ledger.db.corrupt-*"))) >= 1


def test_the_same_triggers_made_again_are_no_damage(tmp_path: Path) -> None:
    """The check above looks at what they say, not at where they lie in the file."""
    path = closed_after(8, tmp_path)
    db = sqlite3.connect(path, isolation_level=None)
    name, sql = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchone()
    db.execute(f"DROP TRIGGER {name}")
    db.execute(sql)
    db.close()

    store = Store.open(path, now=NOW, vm_id="vm-1")
    assert not store.ledger_lost
    store.close()


def test_a_row_that_cannot_be_read_is_met_once(tmp_path: Path) -> None:
    """The store stops at it; the next start moves the file aside instead of stopping again."""
    path = tmp_path / "ledger.db"
    store = Store.open(path, now=NOW, vm_id="vm-1")
    store.set_sinks(["a"])
    accept(1)(store)
    store._database.raw.execute("UPDATE commands SET received_at = 'some day'")
    with pytest.raises(StoreError, match="cannot be read"):
        store.accepted()
    with pytest.raises(StoreError, match="cannot be read"):
        store.entries()
    store.close()

    second = Store.open(path, now=NOW, vm_id="vm-1")
    assert second.ledger_lost
    second.close()
    third = Store.open(path, now=NOW, vm_id="vm-1")
    assert third.ledger_id == second.ledger_id
    third.close()


def test_a_snapshot_that_is_no_document_is_met_once(tmp_path: Path) -> None:
    """A damaged snapshot must not stop every start."""
    path = tmp_path / "ledger.db"
    store = Store.open(path, now=NOW, vm_id="vm-1")
    store.record(b'{"Events": [', [], [], NOW)
    with pytest.raises(StoreError, match="no document"):
        make_poller(store)
    store.close()

    second = Store.open(path, now=NOW, vm_id="vm-1")
    assert second.ledger_lost
    assert make_poller(second).last_document is None
    second.close()


def make_poller(store: Store) -> Poller:
    return Poller(
        Imds(),
        None,  # type: ignore[arg-type]
        store,
        SystemClock(),
        vm=VM,
        commands_topic="",
        own_events_only=True,
        on_news=lambda: None,
        on_change=lambda: None,
    )
