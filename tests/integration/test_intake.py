"""The intake on a real ledger: one durable answer a command, then the ack."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.core.cloudevents import decode
from bridge.core.policy import Rule
from bridge.errors import StoreUnwritable
from bridge.store import Store
from tests.builders import EVENT_ID, NOW, VM_NAME, command_bytes, document, scheduled_event
from tests.desk import Desk
from tests.fakes import FakeClock, ListSource
from tests.support.virtual_time import live

PLACE = ("hub/0", "4711")


def in_s(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


@pytest.fixture
def desk(store: Store, clock: FakeClock) -> Desk:
    return Desk(store, clock)


async def test_intake_good_command_is_accepted_and_acked(desk: Desk) -> None:
    """The approver is woken; no answer yet, and the ledger holds the event."""
    await desk.take(command_bytes())

    assert (desk.accepted, desk.source.acked, desk.answers()) == (1, [command_bytes()], [])
    assert [row.azure_event_id for row in desk.store.accepted()] == [EVENT_ID]


async def test_intake_same_command_waits_with_the_first(desk: Desk) -> None:
    """A redelivery before the answer adds nothing and is acknowledged."""
    await desk.take(command_bytes())
    await desk.take(command_bytes())

    assert len(desk.store.accepted()) == 1
    assert desk.source.acked == [command_bytes()] * 2


async def test_intake_refusal_is_repeated_with_the_same_id(desk: Desk) -> None:
    """The second answer is the first one again, marked as a replay."""
    wrong = command_bytes({"eventId": "nope"})
    await desk.take(wrong)
    await desk.take(wrong)

    first, second = (decode(row.cloudevent) for row in desk.store.batch("memory", 10))
    assert first.id == second.id
    assert [answer.get("replay", False) for answer in desk.answers()] == [False, True]


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[]", command_bytes(type="other")])
async def test_intake_rubbish_is_answered_once_and_acked(desk: Desk, payload: bytes) -> None:
    """Bad input changes nothing but the record of it."""
    await desk.take(payload)

    assert desk.reasons() == ["malformed"]
    assert desk.source.acked == [payload]


async def test_intake_rubbish_does_not_use_up_a_key(desk: Desk) -> None:
    """Whoever sends nonsense under somebody's key does not take it from him."""
    await desk.take(command_bytes({"unknown": 1}, idempotencykey="chg-1"))
    await desk.take(command_bytes(idempotencykey="chg-1"))

    assert desk.reasons() == ["malformed"]
    assert len(desk.store.accepted()) == 1


async def test_intake_retained_command_is_refused_unread(desk: Desk) -> None:
    """It would come back at every connection for ever."""
    await desk.take(command_bytes(), retained=True)
    await desk.take(command_bytes())

    assert desk.reasons() == ["retained-command"]
    assert len(desk.store.accepted()) == 1


async def test_intake_waits_for_a_document(desk: Desk) -> None:
    """Without a fresh document nothing is decided and nothing is acknowledged."""
    desk.document = None
    task = asyncio.create_task(desk.take(command_bytes()))
    await asyncio.sleep(0)
    assert (desk.source.acked, desk.answers()) == ([], [])
    desk.document = document(scheduled_event())
    async with asyncio.timeout(5):
        await task

    assert desk.accepted == 1


@pytest.mark.parametrize(
    "attributes",
    [{}, {"expirytime": in_s(60)}, {"time": in_s(-250)}],
    ids=["no time", "expirytime", "time"],
)
def test_intake_gives_up_when_the_command_expires(
    desk: Desk, clock: FakeClock, attributes: dict[str, Any]
) -> None:
    """No document until its time is up: the sender is told that it was not his clock."""
    desk.document = None
    live(clock, desk.take(command_bytes(**attributes)))

    assert desk.reasons() == ["imds-unreachable"]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [({"expirytime": in_s(0)}, "expired"), ({"time": in_s(-301)}, "too-old")],
)
async def test_intake_command_that_came_too_late_hears_so(
    desk: Desk, attributes: dict[str, Any], reason: str
) -> None:
    """Also while IMDS is away: it would not have helped."""
    desk.document = None
    await desk.take(command_bytes(**attributes))

    assert desk.reasons() == [reason]


async def test_intake_command_in_hand_survives_a_full_disk(desk: Desk, clock: FakeClock) -> None:
    """The disk fills while a command is being accepted: it is refused, and the loop waits on."""

    def full(*_: Any, **__: Any) -> None:
        raise StoreUnwritable("no room")

    desk.source = ListSource(command_bytes())
    accept, desk.store.accept = desk.store.accept, full  # type: ignore[method-assign]
    with pytest.raises(StoreUnwritable):
        await desk.intake.run(desk.source)
    desk.store.accept = accept  # type: ignore[method-assign]
    assert desk.source.acked == []
    desk.store.degrade("no room")
    await desk.intake.run(desk.source)

    assert desk.reasons() == ["history-unknown"]
    assert desk.source.acked == [command_bytes()]
    clock.pass_s(3600)
    assert desk.intake.pulse.overdue_s == 0.0


@pytest.mark.parametrize("payload", [command_bytes(), b"{"], ids=["good", "malformed"])
def test_intake_command_of_a_hub_waits_for_the_next_start_when_the_disk_is_full(
    desk: Desk, clock: FakeClock, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    """The hub is read again from the file's offset: told "rejected", its sender might see it go."""
    desk.store.degrade("no room")
    live(clock, desk.take(payload, position=PLACE))

    assert (desk.answers(), desk.source.acked) == ([], [])
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "restart" in caplog.text
    assert desk.intake.pulse.overdue_s == 0.0


def test_intake_command_of_a_hub_that_waits_for_a_document_sees_the_disk_fill(
    desk: Desk, clock: FakeClock
) -> None:
    """Another loop fills the disk meanwhile; the command still gets no answer from memory."""
    desk.document = None

    async def fill() -> None:
        taking = asyncio.create_task(desk.take(command_bytes(), position=PLACE))
        await asyncio.sleep(5)
        desk.store.degrade("no room")
        await taking

    live(clock, fill())

    assert (desk.answers(), desk.source.acked) == ([], [])


def test_intake_command_of_a_hub_is_decided_once_by_the_next_start(
    desk: Desk, clock: FakeClock, tmp_path: Path
) -> None:
    """What rested is read again, from the offset before it, and accepted there."""
    desk.store.degrade("no room")
    live(clock, desk.take(command_bytes(), position=PLACE))
    desk.store.close()
    store = Store.open(tmp_path / "loops" / "state.db", now=clock.now())
    offset, again = store.offset(PLACE[0]), Desk(store, clock)
    live(clock, again.take(command_bytes(), position=PLACE))
    found = (offset, again.accepted, again.answers(), store.offset(PLACE[0]))
    store.close()

    assert found == (None, 1, [], PLACE[1])


async def test_intake_reused_key_is_refused_once_and_repeated(desk: Desk) -> None:
    """Redelivered, the refusal comes under the same id; each body has one of its own."""
    await desk.take(command_bytes({"eventId": "nope"}, idempotencykey="chg-1"))
    reused, other = ({"eventId": "nope", "reason": reason} for reason in ("a", "b"))
    for data in (reused, reused, other):
        await desk.take(command_bytes(data, idempotencykey="chg-1"))

    rows = [decode(row.cloudevent) for row in desk.store.batch("memory", 10)]
    assert desk.reasons() == ["unknown-event", *["key-reused"] * 3]
    assert {answer["idempotencyKey"] for answer in desk.answers()} == {"chg-1"}
    assert [a.get("replay", False) for a in desk.answers()] == [False, False, True, False]
    assert rows[1].id == rows[2].id
    assert len({row.id for row in rows}) == 3


async def test_intake_reused_key_stands_in_the_audit(desk: Desk) -> None:
    """The row of the key itself stays the first command's."""
    await desk.take(command_bytes(idempotencykey="chg-1"))
    await desk.take(command_bytes({"reason": "again"}, idempotencykey="chg-1", id="c-2"))

    lines = {line["command_id"]: (line["key"], line["reason"]) for line in desk.store.audit()}
    assert lines["c-1"] == ("chg-1", "")
    assert lines["c-2"][0].startswith("key-reused:")
    assert lines["c-2"][1] == "key-reused"


async def test_intake_rule_approves_by_itself_once(store: Store, clock: FakeClock) -> None:
    """An auto rule makes a command of its own, and only one."""
    rule = Rule(name="reboots", action="auto", event_types=("Reboot",))
    desk = Desk(store, clock, policy=(rule,))
    desk.intake.approve_by_rule()
    desk.intake.approve_by_rule()

    [row] = store.accepted()
    assert (row.command.rule, row.command.source) == ("reboots", "sebridge/rules/reboots")


async def test_intake_rule_leaves_started_and_foreign_events(
    store: Store, clock: FakeClock
) -> None:
    """A rule says nothing to what runs, or to another VM's event."""
    desk = Desk(store, clock, policy=(Rule(name="all", action="auto"),))
    for event in (
        scheduled_event(event_status="Started"),
        scheduled_event(resources=("web_4",)),
        scheduled_event(resources=("web_1", VM_NAME)),
    ):
        desk.document = document(event)
        desk.intake.approve_by_rule()

    assert (store.accepted(), desk.answers()) == ([], [])


async def test_intake_shadow_mode_tells_what_it_would_have_done(
    store: Store, clock: FakeClock
) -> None:
    """In shadow mode a rule and a command both end in `shadow`, and nothing is held."""
    desk = Desk(store, clock, mode="shadow", policy=(Rule(name="all", action="auto"),))
    desk.intake.approve_by_rule()
    await desk.take(command_bytes())

    assert desk.reasons() == ["shadow", "shadow"]
    assert {answer["rule"] for answer in desk.answers()} == {"all"}
    assert store.accepted() == []


async def test_intake_shadow_leaves_the_rule_its_approval(store: Store, clock: FakeClock) -> None:
    """One shadow answer an event; once mode is enforce the rule approves, and then never again."""
    policy = (Rule(name="all", action="auto"),)
    for mode in ("shadow", "shadow", "enforce", "enforce", "shadow"):
        desk = Desk(store, clock, mode=mode, policy=policy)
        desk.intake.approve_by_rule()
        desk.intake.approve_by_rule()

    assert desk.reasons() == ["shadow"]
    assert [row.azure_event_id for row in store.accepted()] == [EVENT_ID]
