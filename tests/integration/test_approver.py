"""The approver on a real ledger: at most one POST that may count, and one answer."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.approver import cut_short
from bridge.core.cloudevents import decode
from bridge.core.document import ScheduledEvent
from bridge.errors import ImdsUnavailable
from bridge.store import Store
from tests.builders import EVENT_ID, VM_NAME, document, scheduled_event
from tests.fakes import FakeClock
from tests.office import VM, Office


@pytest.fixture
def office(store: Store, clock: FakeClock) -> Office:
    return Office(store, clock)


async def test_approver_order_is_the_promise(office: Office) -> None:
    """Announce, connect, make `sending` durable, then write; then close."""
    office.accept()
    assert await office.approver.step() is None

    sent = f"post {EVENT_ID} while sending"
    assert office.steps == ["flush 5", "connect", sent, "close"]
    assert (office.state(), office.answers()) == ("approved", [("approved", "")])


@pytest.mark.parametrize(
    ("status", "state", "answer"),
    [
        (200, "approved", ("approved", "")),
        *((s, "rejected", ("rejected", "imds-rejected")) for s in (400, 403, 404, 405)),
        *((s, "in-doubt", ("in-doubt", "in-doubt")) for s in (None, 202, 307, 410, 500, 503)),
    ],
)
async def test_approver_each_answer_of_imds_is_final(
    office: Office, status: int | None, state: str, answer: tuple[str, str]
) -> None:
    """One POST, one answer; another look posts nothing."""
    office.on_post = lambda: status
    office.accept()
    await office.approver.step()
    await office.approver.step()

    assert (office.state(), office.answers(), office.posts) == (state, [answer], 1)


async def test_approver_429_is_tried_again(office: Office) -> None:
    """A 429 says that nothing was done: the same command goes again, after a pause."""
    statuses = iter([429, 429, 200])
    office.on_post = lambda: next(statuses)
    office.accept()
    delays = [await office.approver.step() for _ in range(3)]

    assert [delay is not None and delay >= 1.0 for delay in delays] == [True, True, False]
    assert (office.answers(), office.posts) == ([("approved", "")], 3)


async def test_approver_429_until_the_command_expires(office: Office, clock: FakeClock) -> None:
    """Nobody is left without an answer."""
    office.on_post = lambda: 429
    office.accept(expires_at=clock.now().replace(minute=5))
    await office.approver.step()
    clock.pass_s(301)
    await office.approver.step()

    assert office.answers() == [("rejected", "imds-unreachable")]


async def test_approver_no_connection_means_not_sent(office: Office, clock: FakeClock) -> None:
    """What never left is tried again, until the command's time is up."""

    def refuse() -> None:
        raise ImdsUnavailable("refused")

    office.on_connect = refuse
    office.accept(expires_at=clock.now().replace(minute=5))
    assert await office.approver.step() is not None
    assert office.state() == "accepted"
    clock.pass_s(301)
    await office.approver.step()

    assert (office.answers(), office.posts) == ([("rejected", "imds-unreachable")], 0)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (scheduled_event(event_status="Started"), "already-started"),
        (scheduled_event(event_type="Terminate"), "type-changed"),
        (scheduled_event(resources=(VM_NAME, "web_4")), "resources-changed"),
        (None, "unknown-event"),
    ],
)
async def test_approver_event_that_changed_while_connecting_is_not_posted(
    office: Office, now: ScheduledEvent | None, reason: str
) -> None:
    """The event is looked at once more between the connection and the first byte."""

    def change() -> None:
        office.document = document(*([now] if now else []))

    office.on_connect = change
    office.accept()
    await office.approver.step()

    assert (office.answers(), office.posts) == ([("rejected", reason)], 0)
    assert office.steps[-1] == "close"


async def test_approver_document_that_went_stale_is_waited_for(office: Office) -> None:
    """Nothing is posted on old knowledge."""

    def forget() -> None:
        office.document = None

    office.on_connect = forget
    office.accept()
    await office.approver.step()
    assert (office.state(), office.posts) == ("accepted", 0)
    office.on_connect, office.document = lambda: None, document(scheduled_event())
    await office.approver.step()

    assert office.answers() == [("approved", "")]


async def test_approver_expired_before_it_could_be_sent(office: Office, clock: FakeClock) -> None:
    """A command that waited too long behind others is expired, not sent."""
    office.accept(expires_at=clock.now().replace(minute=5))
    clock.pass_s(300)
    await office.approver.step()

    assert (office.answers(), office.posts) == ([("rejected", "expired")], 0)


async def test_approver_flush_never_takes_more_than_half_of_what_is_left(
    office: Office, clock: FakeClock
) -> None:
    """A dead broker must not eat a Preempt's notice."""
    near = scheduled_event(not_before=clock.now().replace(second=4))
    office.document = document(near)
    office.accept(event=near)
    await office.approver.step()

    assert office.steps[0] == "flush 2"


async def test_approver_frozen_between_sending_and_the_first_byte_sends_nothing(
    office: Office, clock: FakeClock
) -> None:
    """A VM that stood still does not post on what it knew before; the row is in doubt."""
    begin_post = office.store.begin_post

    def frozen(*args: Any) -> int:
        number = begin_post(*args)
        clock.pass_s(10)
        return number

    office.store.begin_post = frozen  # type: ignore[assignment,method-assign]
    office.accept()
    await office.approver.step()

    assert (office.answers(), office.posts) == ([("in-doubt", "in-doubt")], 0)


async def test_approver_log_that_blocks_counts_as_standing_still(
    office: Office, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader of the log's pipe hangs for an hour: by then the command has long expired."""

    def block(record: logging.LogRecord) -> bool:
        if record.msg == "posting":
            clock.pass_s(3600)
        return True

    caplog.set_level(logging.INFO, "sebridge.approver")
    caplog.handler.addFilter(block)
    office.accept(expires_at=clock.now().replace(minute=5))
    await office.approver.step()
    caplog.handler.removeFilter(block)

    assert (office.answers(), office.posts) == ([("in-doubt", "in-doubt")], 0)


async def test_approver_terminate_tells_whom_it_waits_for(store: Store, clock: FakeClock) -> None:
    """Azure deletes none before all are approved; the outcome says which are not."""
    office = Office(store, clock)
    mine = scheduled_event(event_type="Terminate")
    other = scheduled_event(event_id="other", event_type="Terminate", resources=("web_4",))
    office.document = document(mine, other)
    office.accept(event=mine)
    await office.approver.step()

    [row] = store.batch("memory", 10)
    assert msgspec.json.decode(decode(row.cloudevent).data)["waitingOn"] == ["other"]


async def test_approver_doubt_is_only_watched_by_default(office: Office, clock: FakeClock) -> None:
    """Still Scheduled proves nothing: no second POST, however often and long it looks."""
    office.on_post = lambda: 500
    office.accept()
    for _ in range(5):
        assert await office.approver.step() is None
        clock.pass_s(60)

    assert (office.state(), office.posts) == ("in-doubt", 1)


async def test_approver_override_that_comes_to_nothing_leaves_the_doubt(office: Office) -> None:
    """A refusal of the second POST does not prove anything about the first."""
    statuses = iter([500, 400])
    office.on_post = lambda: next(statuses)
    office.accept("first")
    await office.approver.step()
    office.accept("second", override=frozenset({"in-doubt"}))
    await office.approver.step()

    assert office.state() == "in-doubt"
    assert office.answers() == [("in-doubt", "in-doubt"), ("rejected", "imds-rejected")]


async def test_approver_crash_while_sending_is_in_doubt_after_recovery(
    office: Office, store: Store, clock: FakeClock
) -> None:
    """What began may have counted: its sender is told so, and nothing is posted again."""
    office.accept()
    store.begin_post(EVENT_ID, clock.now())
    count = store.recover(clock.now(), lambda row: cut_short(row, VM, clock.now()))
    await office.approver.step()

    assert (count, office.state(), office.posts) == (1, "in-doubt", 0)
    assert office.answers() == [("in-doubt", "in-doubt")]


@pytest.mark.parametrize("during", ["flush", "connect"])
async def test_approver_disk_that_fills_meanwhile_leaves_the_answer_to_the_next_start(
    office: Office, store: Store, during: str
) -> None:
    """The file says accepted: told "rejected" from memory, the sender might see it posted later."""
    if during == "connect":
        office.on_connect = lambda: store.degrade("no room")
    else:
        office.on_flush = lambda: store.degrade("no room")
    office.accept()
    assert await office.approver.step() is None

    assert (office.state(), office.answers(), office.posts) == ("accepted", [], 0)


@pytest.mark.parametrize("status", [200, 400, 429, None])
async def test_approver_disk_that_fills_during_the_post_leaves_the_answer_to_the_next_start(
    office: Office, store: Store, clock: FakeClock, tmp_path: Path, status: int | None
) -> None:
    """The file says sending: what the next start tells is the one answer."""

    def post() -> int | None:
        store.degrade("no room")
        return status

    office.on_post = post
    office.accept()
    assert await office.approver.step() is None
    assert (office.answers(), office.posts) == ([], 1)

    store.close()
    again = Store.open(tmp_path / "loops" / "state.db", now=clock.now())
    again.recover(clock.now(), lambda row: cut_short(row, VM, clock.now()))
    next_life = Office(again, clock)
    await next_life.approver.step()
    outcome = (next_life.state(), next_life.answers(), next_life.posts)
    again.close()

    assert outcome == ("in-doubt", [("in-doubt", "in-doubt")], 0)


async def test_approver_oldest_first_and_one_at_a_time(office: Office, clock: FakeClock) -> None:
    """Two events are posted one after the other, in the order of their commands."""
    second = scheduled_event(event_id="second")
    office.document = document(scheduled_event(), second)
    office.accept("b", event=second)
    clock.pass_s(1)
    office.accept("a")
    await office.approver.step()

    posted = [step.split()[1] for step in office.steps if step.startswith("post")]
    assert posted == ["second", EVENT_ID]
