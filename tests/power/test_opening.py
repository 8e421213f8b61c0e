"""What is found at a start: an older ledger, or one whose replacement was cut short."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bridge.core.approvals import POSTED
from bridge.store import Store
from bridge.store.migrations import STEPS, VERSION, shape
from tests.power.story import NOW, recover, see
from tests.power.test_damage import closed_after, posts_again

LEDGER_V1 = Path(__file__).with_name("ledger_v1.sql").read_text("utf-8")
STATES_V1 = {
    "event-1": "confirmed",
    "event-2": "sending",
    "event-3": "rejected",
    "event-4": "rejected",
    "event-5": "in-doubt",
    "event-6": "approved",
    "event-7": "accepted",
}
# Dies at the n-th time that Python is about to open, rename or remove something of the ledger's.
DYING = """
import os, sys
left = int(sys.argv[2])
def count(name, arguments):
    global left
    if name in {"open", "os.rename", "os.remove", "sqlite3.connect"} and "ledger.db" in str(arguments):
        left -= 1
        if left == 0:
            os._exit(9)
from bridge.store import Store
from tests.power.story import NOW
sys.addaudithook(count)
store = Store.open(sys.argv[1], now=NOW, vm_id=sys.argv[3])
print("lost" if store.ledger_lost else "kept")
"""


def old_ledger(folder: Path, *more: str) -> Path:
    path = folder / "ledger.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("\n".join([LEDGER_V1, *more]))
    return path


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def open_and_die(path: Path, step: int, vm_id: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", DYING, str(path), str(step), vm_id]
    return subprocess.run(arguments, check=False, capture_output=True, text=True)


def test_every_older_version_has_its_step() -> None:
    """No released ledger is left behind."""
    assert list(STEPS) == list(range(1, VERSION))


def test_an_older_ledger_is_lifted_with_all_it_holds(tmp_path: Path) -> None:
    """Approvals in every state, tokens and outbox are those of before; the tables a new ledger's."""
    path = old_ledger(tmp_path)
    store = Store.open(path, now=NOW, vm_id="vm-1")
    found = {key: entry.state for key, entry in store.entries().items()}
    tokens, depth = store.tokens(), store.depth("a")
    see(9)(store)
    sequences = [row.sequence for row in store.batch("a", 99)]
    store.close()

    assert not store.ledger_lost
    assert found == STATES_V1
    assert tokens == {"event-4": "token-4"}
    assert len(sequences) == depth + 1 > 1
    assert sequences == sorted(set(sequences))
    assert version_of(path) == VERSION
    new = closed_after(0, tmp_path / "new")
    with closing(sqlite3.connect(path)) as lifted, closing(sqlite3.connect(new)) as fresh:
        assert shape(lifted) == shape(fresh)


def test_a_lifted_ledger_does_not_post_again(tmp_path: Path) -> None:
    """What schema 1 knew to be posted stays posted; what was on its way is in doubt."""
    posted = tuple(int(key[-1]) for key, state in STATES_V1.items() if state in POSTED)

    assert posts_again(old_ledger(tmp_path), posted) == ""


def test_a_lifted_ledger_is_lifted_once(tmp_path: Path) -> None:
    """The second start finds this version's ledger, under the same id."""
    path = old_ledger(tmp_path)
    first = Store.open(path, now=NOW, vm_id="vm-1")
    first.close()
    second = Store.open(path, now=NOW, vm_id="vm-1")
    second.close()

    assert (second.ledger_id, second.ledger_lost) == (first.ledger_id, False)


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TRIGGER posts_stay;",
        "DROP INDEX posts_at_most_one;",
        "INSERT INTO moves VALUES ('approved', 'accepted');",
        "ALTER TABLE offsets ADD COLUMN more TEXT;",
    ],
)
def test_an_older_ledger_without_its_safeguards_is_moved_aside(tmp_path: Path, damage: str) -> None:
    """It had no digest to tell: what comes out must be what a new ledger is made of."""
    path = old_ledger(tmp_path, damage)
    store = Store.open(path, now=NOW, vm_id="vm-1")
    store.close()

    assert store.ledger_lost
    [aside] = tmp_path.glob("ledger.db.corrupt-*")
    assert version_of(aside) == 1


def test_a_ledger_without_its_digest_is_damaged(tmp_path: Path) -> None:
    """From schema 2 on it must be there: nobody can take it away with a trigger."""
    path = closed_after(8, tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM meta WHERE name = 'schema'")
    store = Store.open(path, now=NOW, vm_id="vm-1")
    store.close()

    assert store.ledger_lost


@pytest.mark.parametrize("vm_id", ["vm-1", "vm-2"], ids=["damaged", "of-another-vm"])
def test_a_replacement_that_was_cut_short_is_known_at_the_next_start(
    tmp_path: Path, vm_id: str
) -> None:
    """Killed at any step between the old ledger and the new one: history still counts as lost."""
    survived = ""
    for step in range(1, 40):
        folder = tmp_path / str(step)
        path = closed_after(8, folder)
        if vm_id == "vm-1":
            with closing(sqlite3.connect(path)) as db:
                db.execute("DROP TRIGGER posts_stay")
        done = open_and_die(path, step, vm_id)
        if done.returncode == 0:
            survived = done.stdout.strip()
            break
        assert done.returncode == 9, done.stderr
        store = Store.open(path, now=NOW, vm_id=vm_id)
        recover(store)
        store.close()
        assert store.ledger_lost, f"forgotten after step {step}"

    assert survived == "lost"
    assert step > 5


def test_a_marked_ledger_that_cannot_be_moved_runs_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found damaged, and then the disk turned read-only: events go on, approvals do not."""
    path = closed_after(8, tmp_path)
    Path(f"{path}-damaged").touch()

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("bridge.store.opening.sync_directory", read_only)
    store = Store.open(path, now=NOW, vm_id="vm-1")
    store.close()

    assert (store.durable, store.ledger_lost) == (False, True)
    assert path.exists()
