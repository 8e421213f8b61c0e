"""The store on real files: what is promised in schema.sql, tried from outside and from below."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from bridge.core import approvals, cloudevents
from bridge.core.approvals import Approve
from bridge.core.cloudevents import CloudEvent, OutcomeData, OutcomeStatus, Vm
from bridge.core.commands import Command
from bridge.core.document import ScheduledEvent
from bridge.errors import StoreError, StoreLocked, StoreUnwritable
from bridge.store import CommandRow, Confirmation, Draft, PostState, Store
from bridge.store.migrations import VERSION

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
FIRST = int(NOW.timestamp()) * 1_000_000 + 1
VM = Vm(name="vm-1", resource_id="/subscriptions/s/vm-1")
EVENT = ScheduledEvent(event_id="AbC-1", event_type="Reboot", resources=("vm-1", "vm-2"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.open(path, now=NOW, vm_id="vm-id-1")
    yield opened
    opened.close()


def outcome(status: OutcomeStatus = "approved", reason: str = "", key: str = "k1") -> CloudEvent:
    data = OutcomeData(
        status=status, reason=reason, event_id=EVENT.event_id, command_id="c1", idempotency_key=key
    )
    return cloudevents.from_outcome(data, vm=VM, now=NOW)


def draft(
    event_id: str = "AbC-1", *, ends: bool = False, fenced: bool = False, size: int = 0
) -> Draft:
    event = CloudEvent(
        specversion="1.0",
        source=VM.resource_id,
        type="io.sebridge.event.scheduled.v1",
        subject=event_id,
        time=cloudevents.rfc3339(NOW),
        datacontenttype="application/json",
        data=msgspec.Raw(msgspec.json.encode({"padding": "x" * size})),
    )
    return Draft(cloudevent=event, event_id=event_id, ends=ends, token="t-1", fenced=fenced)


def accept(store: Store, key: str = "k1", *, overrides_doubt: bool = False) -> None:
    command = Command(
        id="c1", source="ops", key=key, fingerprint="f", event_id="abc-1", reason="night"
    )
    store.accept(
        command,
        Approve(EVENT, "rule-1", overrides_doubt),
        received_at=NOW,
        expires_at=NOW + timedelta(minutes=5),
        reply_topic="replies/ops",
        correlation=b"\x01",
        position=("hub/0", "17"),
    )


def finish(store: Store, number: int, state: PostState, http_status: int | None) -> None:
    status: OutcomeStatus = "rejected" if state == "accepted" else state
    store.finish_post(
        number,
        state=state,
        http_status=http_status,
        result="tried",
        outcome=None if state == "accepted" else outcome(status),
        reason="in-doubt" if state == "in-doubt" else "",
        now=NOW,
    )


def doubt(store: Store) -> None:
    accept(store)
    finish(store, store.begin_post("ABC-1", NOW), "in-doubt", None)


def state(store: Store) -> str:
    entry = store.entry("abc-1")
    assert entry is not None
    return entry.state


def raw(store: Store) -> sqlite3.Connection:
    return store._database.raw


def test_a_commit_is_on_the_disk(store: Store, path: Path) -> None:
    """The pragmas that make a commit durable hold, and the file is its owner's alone."""
    wanted = {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "foreign_keys": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "user_version": VERSION,
    }
    found = {name: raw(store).execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}
    assert found == wanted
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name("ledger.db-wal").stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert store.durable
    assert not store.problem
    assert not store.ledger_lost


def test_a_weaker_setting_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pragma that does not read back as asked for stops the start."""
    monkeypatch.setattr("bridge.store.connection.SYNCHRONOUS_FULL", 3)
    with pytest.raises(StoreError, match="cannot be kept safely"):
        Store.open(path, now=NOW)


def test_everything_is_there_after_a_restart(path: Path) -> None:
    """Snapshot, identity, tokens, fences and rows come back as they were."""
    first = Store.open(path, now=NOW)
    assert first.identity() is None
    assert first.snapshot() is None
    first.set_identity(b"{}", "vm-id-1")
    first.record(b"doc", [draft(fenced=True), draft("Other")], [], NOW)
    accept(first)
    first.close()
    assert not path.with_name("ledger.db-wal").exists()

    second = Store.open(path, now=NOW + timedelta(hours=1), vm_id="vm-id-1")
    assert second.ledger_id == first.ledger_id
    assert len(second.ledger_id) == 12
    assert (second.identity(), second.snapshot()) == (b"{}", b"doc")
    assert second.tokens() == {"abc-1": "t-1", "other": "t-1"}
    assert second.fenced() == frozenset({"abc-1"})
    assert second.entries().keys() == {"abc-1"}
    assert second.offset("hub/0") == "17"
    assert second.offset("hub/1") is None
    second.close()


def test_rows_leave_in_order_with_their_stamp(store: Store) -> None:
    """Each row carries the ledger's id and the next number, beginning at the time of creation."""
    store.set_sinks(["mqtt"])
    store.record(b"1", [draft(), draft("Other")], [], NOW)
    store.record(b"2", [draft(ends=True)], [], NOW)
    rows = store.batch("mqtt", 10)
    assert [row.sequence for row in rows] == [FIRST, FIRST + 1, FIRST + 2]
    assert [row.ends for row in rows] == [False, False, True]
    events = [cloudevents.decode(row.cloudevent) for row in rows]
    assert [event.id for event in events] == [f"{store.ledger_id}.{FIRST + i}" for i in range(3)]
    assert [row.event_id for row in store.pending()] == ["Other"]
    assert store.batch("mqtt", 1) == rows[:1]


def test_a_number_is_used_once_whatever_is_rolled_back(store: Store) -> None:
    """What failed may have been seen in a log or a debugger: its id belongs to nothing else."""
    store.set_sinks(["mqtt"])
    store.record(b"{}", [draft("a")], [], NOW)
    with pytest.raises(UnicodeEncodeError):
        store.record(b"{1}", [draft("b"), draft("\ud800")], [], NOW)
    store.record(b"{2}", [draft("c")], [], NOW)

    assert [(row.event_id, row.sequence - FIRST) for row in store.batch("mqtt", 9)] == [
        ("a", 0),
        ("c", 3),
    ]


def test_no_sink_waits_for_another(store: Store) -> None:
    """A row goes when every sink has it, and a new sink gets all that is still there."""
    store.set_sinks(["a", "b"])
    store.record(b"", [draft(), draft(), draft()], [], NOW)
    store.mark_sent("a", FIRST + 2)
    store.mark_sent("a", FIRST)
    assert (store.depth("a"), store.depth("b")) == (0, 3)
    assert store.oldest("a") is None
    assert store.oldest("b") == "2030-01-02T03:04:05.000000+00:00"
    store.mark_sent("b", FIRST)
    store.set_sinks(["a", "b", "c"])
    assert store.depth("c") == 2
    store.set_sinks(["a"])
    assert raw(store).execute("SELECT count(*) FROM outbox").fetchone()[0] == 0
    store.set_sinks(["a", "d"])
    assert store.depth("d") == 0
    with pytest.raises(StoreError, match="no cursor"):
        store.mark_sent("b", FIRST)


def test_a_parked_row_lets_the_next_pass(store: Store) -> None:
    """What a sink can never take is kept for the operator, and the cursor goes on."""
    store.set_sinks(["a"])
    store.record(b"", [draft(), draft("Other")], [], NOW)
    store.park("a", FIRST, "too large", NOW)
    assert [row.event_id for row in store.batch("a", 9)] == ["Other"]
    (parked,) = store.parked()
    assert (parked.sink, parked.sequence, parked.reason) == ("a", FIRST, "too large")
    assert parked.parked_at == NOW


def test_an_approval_from_command_to_confirmation(store: Store) -> None:
    """A command is held, posted, answered once, confirmed, and found in the audit."""
    store.set_sinks(["a"])
    accept(store)
    (row,) = store.accepted()
    assert (row.event_id, row.azure_event_id, row.key) == ("abc-1", "AbC-1", "k1")
    assert (row.event_type, row.resources) == ("Reboot", ("vm-1", "vm-2"))
    assert row.expires_at == NOW + timedelta(minutes=5)
    assert not row.override
    number = store.begin_post("AbC-1", NOW)
    finish(store, number, "approved", 200)
    command = store.command("k1")
    assert command is not None
    assert (command.status, command.http_status, command.answered_at) == ("approved", 200, NOW)
    assert command.why == "night"
    assert command.rule == "rule-1"
    confirmation = Confirmation(event_id="ABC-1", cloudevent=outcome("confirmed"))
    store.record(b"", [], [confirmation], NOW)
    store.record(b"", [], [confirmation], NOW)
    assert state(store) == "confirmed"
    rows = store.batch("a", 9)
    assert [row.channel for row in rows] == ["outcomes", "outcomes"]
    assert {(row.reply_topic, row.correlation) for row in rows} == {("replies/ops", b"\x01")}
    assert rows[0].cloudevent == command.answer
    (line,) = store.audit()
    assert (line["key"], line["post"], line["post_http_status"]) == ("k1", number, 200)


def test_the_schema_knows_the_same_moves() -> None:
    """The table of legal moves in SQL equals approvals.MOVES."""
    schema = Path("bridge/store/schema.sql").read_text()
    db = sqlite3.connect(":memory:")
    db.executescript(schema)
    wanted = {(old or "", new) for old, news in approvals.MOVES.items() for new in news}
    assert set(db.execute("SELECT old, new FROM moves")) == wanted
    db.close()


def test_a_second_post_cannot_begin(store: Store) -> None:
    """Once a POST has begun, neither another nor another command gets through."""
    accept(store)
    number = store.begin_post("abc-1", NOW)
    with pytest.raises(StoreError, match="not accepted"):
        store.begin_post("abc-1", NOW)
    with pytest.raises(StoreError, match="sending already"):
        accept(store, "k2")
    assert store.command("k2") is None
    finish(store, number, "in-doubt", 503)
    with pytest.raises(StoreError, match="has ended already"):
        finish(store, number, "approved", 200)
    with pytest.raises(StoreError, match="only an override"):
        accept(store, "k2")
    assert state(store) == "in-doubt"


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO posts (event_id, key, began_at) VALUES ('abc-1', 'k1', '')",
        "INSERT OR REPLACE INTO posts (event_id, key, began_at) VALUES ('abc-1', 'k1', '')",
        "UPDATE posts SET counted = 0",
        "UPDATE posts SET counted = 0, http_status = 500",
        "UPDATE posts SET waived = 1",
        "DELETE FROM posts",
        "DELETE FROM approvals",
        "DELETE FROM commands",
        "UPDATE approvals SET state = 'accepted'",
        "UPDATE approvals SET state = 'confirmed'",
        "UPDATE approvals SET event_id = 'other'",
        (
            "INSERT OR REPLACE INTO approvals SELECT event_id, azure_event_id, 'accepted', key,"
            " event_type, resources, 0, NULL, '' FROM approvals"
        ),
        "INSERT INTO approvals VALUES ('new', 'new', 'sending', 'k1', '', '[]', 0, NULL, '')",
    ],
)
def test_raw_sql_cannot_send_twice(store: Store, sql: str) -> None:
    """While a POST is on its way, the triggers refuse every way around it."""
    accept(store)
    store.begin_post("abc-1", NOW)
    with pytest.raises(sqlite3.IntegrityError):
        raw(store).execute(sql)
    assert state(store) == "sending"


def test_a_refused_post_may_be_tried_again(store: Store) -> None:
    """A 429 leads back to accepted without an answer, a 403 ends it until another command."""
    accept(store)
    finish(store, store.begin_post("abc-1", NOW), "accepted", 429)
    command = store.command("k1")
    assert command is not None
    assert command.answer is None
    finish(store, store.begin_post("abc-1", NOW), "rejected", 403)
    accept(store, "k2")
    finish(store, store.begin_post("abc-1", NOW), "approved", 200)
    assert [line["counted"] for line in store.audit()] == [0, 0, 1]


@pytest.mark.parametrize("ending", ["rejected", "accepted"])
def test_no_refusal_no_second_try(store: Store, ending: PostState) -> None:
    """A POST without IMDS's own refusal cannot be called undone."""
    accept(store)
    number = store.begin_post("abc-1", NOW)
    with pytest.raises(StoreError, match="may count"):
        finish(store, number, ending, None)
    assert state(store) == "sending"


def test_an_accepted_command_can_still_be_rejected(store: Store) -> None:
    """What was never sent ends as rejected, with its answer."""
    accept(store)
    store.reject_accepted("ABC-1", reason="expired", outcome=outcome("rejected"), now=NOW)
    command = store.command("k1")
    assert command is not None
    assert (command.status, command.reason) == ("rejected", "expired")
    assert store.accepted() == []


def test_a_person_overrides_a_doubt(store: Store) -> None:
    """An override waives the counted POST and lets exactly one more begin."""
    doubt(store)
    accept(store, "k2", overrides_doubt=True)
    assert store.accepted()[0].override
    store.begin_post("abc-1", NOW)
    with pytest.raises(StoreError):
        store.begin_post("abc-1", NOW)
    assert [line["waived"] for line in store.audit()] == [1, 0]


def test_a_repost_answers_no_second_time(store: Store) -> None:
    """A repost of a doubt moves the states on and leaves the first answer alone."""
    store.set_sinks(["a"])
    doubt(store)
    before = store.command("k1")
    store.begin_repost("abc-1", NOW)
    finish(store, store.begin_post("abc-1", NOW), "approved", 200)
    assert state(store) == "approved"
    assert store.command("k1") == before
    assert store.depth("a") == 1


def test_recovery_leaves_a_doubt_and_says_so(path: Path) -> None:
    """A POST that a crash cut off becomes a doubt, once, and its sender hears of it."""
    code = (
        "import os, sys; sys.path[:0] = ['.', 'tests/integration'];"
        "import test_store as t;"
        f"s = t.Store.open({str(path)!r}, now=t.NOW); t.accept(s);"
        "s.begin_post('abc-1', t.NOW); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    store = Store.open(path, now=NOW)
    store.set_sinks(["a"])
    asked: list[CommandRow] = []

    def tell(command: CommandRow) -> CloudEvent:
        asked.append(command)
        return outcome("in-doubt", "in-doubt")

    assert store.recover(NOW, tell) == 1
    assert store.recover(NOW, tell) == 0
    assert [command.key for command in asked] == ["k1"]
    assert state(store) == "in-doubt"
    command = store.command("k1")
    assert command is not None
    assert (command.status, command.reason) == ("in-doubt", "in-doubt")
    (row,) = store.batch("a", 9)
    assert (row.cloudevent, row.reply_topic) == (command.answer, "replies/ops")
    assert store.audit()[0]["result"] == "crash"
    store.close()


def test_recovery_is_all_or_nothing(store: Store) -> None:
    """When telling the sender fails, the state is as the crash left it."""
    accept(store)
    store.begin_post("abc-1", NOW)

    def fail(command: CommandRow) -> CloudEvent:
        raise RuntimeError(command.key)

    with pytest.raises(RuntimeError):
        store.recover(NOW, fail)
    assert state(store) == "sending"
    assert store.audit()[0]["ended_at"] is None


def reject(store: Store, cloudevent: CloudEvent, reason: str, offset: str) -> None:
    store.answer(
        key="k1",
        fingerprint="f",
        command_id="c1",
        source="ops",
        event_id="AbC-1",
        why="",
        status="rejected",
        reason=reason,
        rule="",
        cloudevent=cloudevent,
        received_at=NOW,
        position=("hub/0", offset),
    )


def test_an_answer_is_kept_and_repeated(store: Store) -> None:
    """A replay repeats the stored bytes under a new number, marked as a replay."""
    store.set_sinks(["a"])
    reject(store, outcome("rejected", "unknown-event"), "unknown-event", "1")
    reject(store, outcome("rejected", "key-reused"), "key-reused", "2")
    store.replay("k1", now=NOW, reply_topic="r", correlation=b"2", position=("hub/0", "3"))
    first, reused, again = store.batch("a", 9)
    command = store.command("k1")
    assert command is not None
    assert command.reason == "unknown-event"
    assert command.answer == first.cloudevent != reused.cloudevent
    assert again.sequence == FIRST + 2
    assert again.cloudevent == cloudevents.as_replay(first.cloudevent)
    assert (again.reply_topic, again.correlation) == ("r", b"2")
    assert cloudevents.decode(again.cloudevent).id == cloudevents.decode(first.cloudevent).id
    assert store.offset("hub/0") == "3"


def test_offsets_of_foreign_commands_are_kept_together(store: Store) -> None:
    """Many partitions are one transaction, and other sources keep theirs."""
    store.keep_offsets([("hub/0", "5"), ("hub/1", "@2026-01-01T00:00:00+00:00")])
    store.keep_offsets([("hub/0", "9")])
    store.keep_offsets([])

    assert (store.offset("hub/0"), store.offset("hub/1")) == ("9", "@2026-01-01T00:00:00+00:00")


def test_an_answered_command_is_kept(store: Store) -> None:
    """A refused command that no approval names is remembered for ever, too."""
    store.set_sinks(["a"])
    reject(store, outcome("rejected", "unknown-event"), "unknown-event", "1")
    with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
        raw(store).execute("DELETE FROM commands")
    with pytest.raises(sqlite3.IntegrityError, match="answered once"):
        raw(store).execute("UPDATE commands SET answer = x'00'")


def test_an_unanswered_command_is_not_repeated(store: Store) -> None:
    """A repeated command waits with the first; only the position is kept."""
    store.set_sinks(["a"])
    accept(store)
    store.replay("k1", now=NOW, position=("hub/0", "18"))
    assert store.depth("a") == 0
    assert store.offset("hub/0") == "18"
    with pytest.raises(StoreError, match="no command"):
        store.replay("k9", now=NOW)


def test_a_second_agent_is_locked_out(store: Store, path: Path) -> None:
    """Another process cannot open the ledger, and says why."""
    code = (
        "import sys; from datetime import UTC, datetime; from bridge.store import Store\n"
        "from bridge.errors import StoreLocked\n"
        f"try: Store.open({str(path)!r}, now=datetime.now(UTC))\n"
        "except StoreLocked as error: print(error); sys.exit(7)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert f"another agent holds the ledger {path}" in done.stdout
    accept(store)


def test_a_busy_file_is_not_taken_for_a_broken_one(path: Path) -> None:
    """A lock of a stranger stops the start; nothing is moved aside."""
    Store.open(path, now=NOW).close()
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLocked):
        Store.open(path, now=NOW)
    stranger.close()
    assert [p.name for p in path.parent.iterdir() if ".corrupt" in p.name] == []


@pytest.mark.parametrize("damage", ["header", "page"])
def test_a_corrupt_ledger_is_moved_aside(path: Path, damage: str) -> None:
    """A broken file is kept under another name; the new ledger knows that history is lost."""
    first = Store.open(path, now=NOW)
    first.record(b"doc", [draft(str(i), size=500) for i in range(60)], [], NOW)
    first.close()
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:100] = b"\xff" * 100
    else:
        for page in range(3, len(content) // 4096):
            content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(content)
    store = Store.open(path, now=NOW)
    assert store.durable
    assert store.ledger_lost
    assert store.ledger_id != first.ledger_id
    assert store.snapshot() is None
    aside = path.with_name("ledger.db.corrupt-20300102T030405")
    assert len(aside.read_bytes()) == len(content)
    store.close()
    again = Store.open(path, now=NOW)
    assert again.ledger_lost
    again.close()


def test_another_vms_ledger_is_moved_aside(path: Path) -> None:
    """A disk image that was cloned does not carry its approvals to another VM."""
    Store.open(path, now=NOW, vm_id="old/id").close()
    store = Store.open(path, now=NOW, vm_id="new")
    assert store.ledger_lost
    assert path.with_name("ledger.db.vm-old_id").exists()
    store.close()
    back = Store.open(path, now=NOW, vm_id="")
    assert back.ledger_id == store.ledger_id
    back.close()


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    """A ledger of a newer version is neither used nor moved."""
    Store.open(path, now=NOW).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(StoreError, match="written by a newer sebridge"):
        Store.open(path, now=NOW)
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]


def test_a_strange_database_is_left_alone(tmp_path: Path) -> None:
    """A database that is no ledger is neither used nor moved."""
    db = sqlite3.connect(tmp_path / "other.db")
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(StoreError, match="not a ledger"):
        Store.open(tmp_path / "other.db", now=NOW)


def test_without_a_directory_it_runs_in_memory(tmp_path: Path) -> None:
    """Where no file can be made, events still pass and approvals do not."""
    (tmp_path / "file").write_text("")
    store = Store.open(tmp_path / "file" / "ledger.db", now=NOW)
    assert not store.durable
    assert "cannot write the ledger" in store.problem
    store.set_sinks(["a"])
    store.record(b"doc", [draft()], [], NOW)
    assert store.depth("a") == 1
    accept(store)
    with pytest.raises(StoreUnwritable, match="durable"):
        store.begin_post("abc-1", NOW)
    store.close()


def test_a_read_only_ledger_is_read_into_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that can only be read gives its content, WAL included, to one in memory."""
    first = Store.open(path, now=NOW)
    first.record(b"doc", [draft()], [], NOW)
    os_open = os.open

    def read_only(name: Path, flags: int, mode: int = 0o777, **more: int) -> int:
        if name == path:
            raise OSError(30, "Read-only file system")
        return os_open(name, flags, mode, **more)

    monkeypatch.setattr("bridge.store.connection.os.open", read_only)
    second = Store.open(path, now=NOW)
    assert (second.durable, second.ledger_lost) == (False, False)
    assert "Read-only file system" in second.problem
    assert second.snapshot() == b"doc"
    assert second.tokens() == {"abc-1": "t-1"}
    assert second.ledger_id != first.ledger_id
    second.close()
    first.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_write_protected_directory_runs_in_memory(path: Path) -> None:
    """A directory without write permission costs the approvals, not the events."""
    Store.open(path, now=NOW).close()
    path.parent.chmod(0o500)
    store = Store.open(path, now=NOW)
    path.parent.chmod(0o700)
    assert not store.durable
    store.close()


def test_a_full_disk_degrades_and_the_same_call_passes(store: Store, path: Path) -> None:
    """After SQLITE_FULL nothing is half written, and a copy in memory takes the call again."""
    store.set_sinks(["a"])
    accept(store)
    number = store.begin_post("abc-1", NOW)
    pages = raw(store).execute("PRAGMA page_count").fetchone()[0]
    raw(store).execute(f"PRAGMA max_page_count = {pages}")
    before = store.ledger_id
    big = [draft(size=100_000)]
    with pytest.raises(StoreUnwritable, match="Free space") as caught:
        store.record(b"doc", big, [], NOW)
    assert (store.depth("a"), store.snapshot()) == (0, None)
    store.degrade(str(caught.value))
    store.record(b"doc", big, [], NOW)
    finish(store, number, "approved", 200)
    assert (store.durable, store.depth("a")) == (False, 2)
    assert store.problem == str(caught.value)
    assert store.ledger_id != before
    store.degrade("again")
    assert store.problem == "again"
    store.close()

    later = Store.open(path, now=NOW + timedelta(seconds=9))
    assert (later.ledger_id, state(later), later.snapshot()) == (before, "sending", None)
    later.record(b"doc", [draft()], [], NOW)
    assert later.batch("a", 1)[0].sequence == FIRST + 9_000_000
    later.close()


def test_a_read_only_connection_is_unwritable(store: Store) -> None:
    """A file system that turns read-only while running is reported as unwritable."""
    raw(store).execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnwritable):
        store.record(b"doc", [], [], NOW)
    assert store.snapshot() is None


def test_after_an_io_error_nothing_more_is_tried(store: Store) -> None:
    """An I/O error leaves the disk unknown, so the connection refuses all further work."""
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    with pytest.raises(StoreError, match="disk failed"), store._database.transaction():
        raise failure
    with pytest.raises(StoreError, match="disk failed"):
        store.record(b"doc", [], [], NOW)
