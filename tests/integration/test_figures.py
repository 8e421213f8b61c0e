"""Counts, ages and times left for /status and /metrics, read from a real ledger."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge import report
from bridge.core.approvals import Approve
from bridge.core.cloudevents import CloudEvent, Vm
from bridge.core.commands import Command
from bridge.core.document import ScheduledEvent
from bridge.errors import StoreError
from bridge.store import Draft, Store
from tests.builders import scheduled_event

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
VM = Vm(name="vm-1", resource_id="/subscriptions/s/vm-1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "ledger.db", now=NOW)
    opened.set_sinks(["mqtt", "stdout"])
    yield opened
    opened.close()


def draft(event_id: str) -> Draft:
    event = CloudEvent(
        specversion="1.0",
        source=VM.resource_id,
        type="io.sebridge.event.scheduled.v1",
        subject=event_id,
        time="2030-01-02T03:04:05.000Z",
        datacontenttype="application/json",
        data=msgspec.Raw(b"{}"),
    )
    return Draft(cloudevent=event, event_id=event_id, token="t")


def accept(store: Store, event_id: str, now: datetime) -> None:
    command = Command(id="c", source="ops", key=event_id, fingerprint="f", event_id=event_id)
    scheduled_event = ScheduledEvent(event_id=event_id, event_type="Reboot", resources=("vm-1",))
    approve = Approve(scheduled_event, "default")
    store.accept(command, approve, received_at=now, expires_at=now + timedelta(minutes=5))


def doubt(store: Store, event_id: str, now: datetime) -> None:
    accept(store, event_id, now)
    number = store.begin_post(event_id, now)
    outcome = draft(event_id).cloudevent
    store.finish_post(
        number, state="in-doubt", http_status=None, result="", outcome=outcome, now=now
    )


def test_empty_ledger_has_nothing_to_tell(store: Store) -> None:
    """Each sink is there from the start, with nothing to do."""
    figures = store.figures()

    assert ({}, None) == (figures.approvals, figures.in_doubt_since)
    assert {"mqtt", "stdout"} == figures.sinks.keys()
    assert (0, None, 0) == msgspec.structs.astuple(figures.sinks["mqtt"])


def test_each_sink_has_its_own_outbox(store: Store) -> None:
    """Rows and the age of the oldest count behind each cursor; parked rows are the sink's own."""
    for minutes in range(3):
        store.record(b"", [draft(f"e{minutes}")], [], NOW + timedelta(minutes=minutes))
    rows = store.batch("mqtt", 10)
    store.mark_sent("mqtt", rows[0].sequence)
    store.park("mqtt", rows[1].sequence, "too large", NOW)

    figures = store.figures().sinks

    assert (1, NOW + timedelta(minutes=2), 1) == msgspec.structs.astuple(figures["mqtt"])
    assert (3, NOW, 0) == msgspec.structs.astuple(figures["stdout"])
    assert [NOW + timedelta(minutes=2)] == [row.created_at for row in store.batch("mqtt", 10)]


def test_oldest_doubt_gives_the_age(store: Store) -> None:
    """Two doubts and one accepted command: the states are counted, the first doubt is dated."""
    doubt(store, "e1", NOW - timedelta(minutes=3))
    doubt(store, "e2", NOW - timedelta(minutes=1))
    accept(store, "e3", NOW - timedelta(hours=1))

    figures = store.figures()

    assert {"in-doubt": 2, "accepted": 1} == figures.approvals
    assert NOW - timedelta(minutes=3) == figures.in_doubt_since


def due(event_id: str, seconds: float | None, **fields: Any) -> ScheduledEvent:
    not_before = None if seconds is None else NOW + timedelta(seconds=seconds)
    return scheduled_event(event_id=event_id, not_before=not_before, **fields)


def test_time_left_is_told_of_what_has_not_begun(store: Store) -> None:
    """The nearest first, with the state of its approval; started and timeless events have none."""
    accept(store, "near", NOW)
    pending = [
        due("far", 600),
        due("near", 30),
        due("late", -5),
        due("begun", -5, event_status="Started"),
        due("timeless", None),
    ]

    left = report.time_left(pending, store, NOW)

    assert [("late", "none", -5), ("near", "accepted", 30), ("far", "none", 600)] == [
        (e["eventId"], e["approval"], e["seconds"]) for e in left
    ]


def test_time_left_is_bounded(store: Store) -> None:
    """However many events there are, labels do not grow without end."""
    left = report.time_left([due(f"e{n}", n) for n in reversed(range(40))], store, NOW)

    assert [f"e{n}" for n in range(report.TIME_LEFT_EVENTS_MAX)] == [e["eventId"] for e in left]


def test_every_commit_is_timed(store: Store) -> None:
    """The histogram counts transactions that were committed, and not those that failed."""
    before = sum(store.commit_s.counts)
    store.record(b"", [draft("e1")], [], NOW)
    with pytest.raises(StoreError, match="no command"):
        store.replay("unknown", now=NOW)

    assert sum(store.commit_s.counts) == before + 1


def test_answer_is_dated_when_it_is_given(store: Store) -> None:
    """A command that waited for a document has an answer, and an outbox row, of its own time."""
    later = NOW + timedelta(minutes=4)
    store.answer(
        key="k",
        fingerprint="f",
        command_id="c",
        source="ops",
        event_id="e1",
        why="",
        status="rejected",
        reason="imds-unreachable",
        rule="",
        cloudevent=draft("e1").cloudevent,
        received_at=NOW,
        answered_at=later,
    )

    command = store.command("k")

    assert command is not None
    assert (NOW, later) == (command.received_at, command.answered_at)
    assert later == store.figures().sinks["mqtt"].oldest
