"""A life of the ledger, call by call, and a signature of all it holds."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bridge.core import cloudevents
from bridge.core.approvals import Approve
from bridge.core.cloudevents import CloudEvent, OutcomeData, OutcomeStatus, Vm
from bridge.core.commands import Command
from bridge.core.document import ScheduledEvent
from bridge.store import CommandRow, Confirmation, Draft, Store

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
VM = Vm(name="vm-1", resource_id="/subscriptions/s/vm-1")

Call = Callable[[Store], object]


def scheduled_event(number: int) -> ScheduledEvent:
    return ScheduledEvent(event_id=f"Event-{number}", event_type="Reboot", resources=("vm-1",))


def outcome(status: OutcomeStatus, number: int) -> CloudEvent:
    data = OutcomeData(status=status, event_id=f"Event-{number}", idempotency_key=f"key-{number}")
    return cloudevents.from_outcome(data, vm=VM, now=NOW)


def draft(number: int, *, ends: bool = False, size: int = 200) -> Draft:
    event = CloudEvent(
        specversion="1.0",
        source=VM.resource_id,
        type="io.sebridge.event.scheduled.v1",
        subject=f"Event-{number}",
        time=cloudevents.rfc3339(NOW),
        datacontenttype="application/json",
        data=msgspec.Raw(msgspec.json.encode({"padding": "x" * size})),
    )
    return Draft(cloudevent=event, event_id=f"Event-{number}", ends=ends, token=f"token-{number}")


def see(*numbers: int, ended: tuple[int, ...] = (), size: int = 200) -> Call:
    drafts = [draft(n, size=size) for n in numbers] + [draft(n, ends=True) for n in ended]
    raw = f"document of {numbers} without {ended}".encode()
    return lambda store: store.record(raw, drafts, [], NOW)


def accept(number: int, *, key: str = "", override: bool = False) -> Call:
    command = Command(
        id=f"command-{number}",
        source="/ops",
        key=key or f"key-{number}",
        fingerprint="f",
        event_id=f"event-{number}",
    )
    return lambda store: store.accept(
        command,
        Approve(scheduled_event(number), "rule", override),
        received_at=NOW,
        expires_at=NOW + timedelta(minutes=5),
        position=("hub/0", str(number)),
    )


def begin(number: int) -> Call:
    return lambda store: store.begin_post(f"event-{number}", NOW)


def finish(number: int, status: int | None) -> Call:
    """End the POST that is under way for this event as the approver would."""
    states: dict[int | None, Any] = {200: "approved", 400: "rejected", 429: "accepted"}
    state = states.get(status, "in-doubt")

    def call(store: Store) -> None:
        post = next(
            line["post"]
            for line in store.audit()
            if line["post"] and not line["ended_at"] and f"-{number}" in line["event_id"]
        )
        store.finish_post(
            post,
            state=state,
            http_status=status,
            result="told",
            outcome=None if state == "accepted" else outcome(state, number),
            now=NOW,
        )

    return call


def reject(number: int) -> Call:
    return lambda store: store.answer(
        key=f"bad-{number}",
        fingerprint="f",
        command_id="c",
        source="/ops",
        event_id=f"Event-{number}",
        why="",
        status="rejected",
        reason="unknown-event",
        rule="",
        cloudevent=outcome("rejected", number),
        received_at=NOW,
        position=("hub/0", f"1{number}"),
    )


def confirmation_of(number: int) -> Confirmation:
    return Confirmation(event_id=f"Event-{number}", cloudevent=outcome("confirmed", number))


def confirm(number: int) -> Call:
    return lambda store: store.record(b"confirmed", [], [confirmation_of(number)], NOW)


def drop_accepted(number: int) -> Call:
    return lambda store: store.reject_accepted(
        f"event-{number}", reason="expired", outcome=outcome("rejected", number), now=NOW
    )


def send_first(store: Store) -> None:
    store.mark_sent("a", store.batch("a", 2)[-1].sequence)


def in_doubt(command: CommandRow) -> CloudEvent:
    data = OutcomeData(status="in-doubt", event_id=command.event_id, idempotency_key=command.key)
    return cloudevents.from_outcome(data, vm=VM, now=NOW)


def recover(store: Store) -> int:
    return store.recover(NOW, in_doubt)


STORY: tuple[Call, ...] = (
    lambda store: store.set_identity(b"{}", "vm-1"),
    lambda store: store.set_sinks(["a"]),
    see(1, 2),
    accept(1),
    begin(1),
    finish(1, 429),
    begin(1),
    finish(1, 200),
    send_first,
    see(3, 4, size=6000),
    accept(2),
    begin(2),
    finish(2, None),
    reject(3),
    lambda store: store.replay("bad-3", now=NOW, position=("hub/0", "30")),
    lambda store: store.keep_offsets([("hub/0", "31"), ("hub/1", "7")]),
    lambda store: store.confirm([confirmation_of(1)], NOW),
    accept(2, key="again", override=True),
    begin(2),
    recover,
    confirm(1),
    accept(3),
    drop_accepted(3),
    accept(4),
    begin(4),
    finish(4, 400),
    lambda store: store.park("a", store.batch("a", 1)[0].sequence, "too large", NOW),
    send_first,
    see(ended=(1, 2, 3)),
    lambda store: store.begin_repost("event-2", NOW),
    begin(2),
)


def signature(store: Store) -> tuple[Any, ...]:
    """Everything that the store promises to keep, ids apart: those are random."""
    entries = sorted((e.event_id, e.state, e.key) for e in store.entries().values())
    audit = sorted(
        tuple(line[name] for name in ("key", "status", "event_id", "post", "counted", "waived"))
        for line in store.audit()
    )
    rows = [(row.sequence, row.event_id, row.ends) for row in store.batch("a", 1000)]
    return (
        store.snapshot(),
        store.identity(),
        sorted(store.tokens().items()),
        entries,
        [tuple(map(str, line)) for line in audit],
        rows,
        store.offset("hub/0"),
        store.offset("hub/1"),
        [(row.sink, row.sequence) for row in store.parked()],
    )


def check_invariants(store: Store) -> None:
    """What must hold in any ledger, whatever happened to it."""
    entries, audit = store.entries(), store.audit()
    counted: dict[str, int] = {}
    for line in audit:
        if line["counted"] and not line["waived"]:
            event_id = line["event_id"].casefold()
            counted[event_id] = counted.get(event_id, 0) + 1
    assert all(number == 1 for number in counted.values()), counted
    for event_id, entry in entries.items():
        posted = entry.state in {"sending", "approved", "in-doubt", "confirmed"}
        waived = any(line["waived"] for line in audit if line["event_id"].casefold() == event_id)
        assert not posted or counted.get(event_id) == 1 or waived, (event_id, entry)
        assert store.command(entry.key) is not None
    sequences = [row.sequence for row in store.batch("a", 1000)]
    assert sequences == sorted(set(sequences))
