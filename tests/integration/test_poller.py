"""The poller on a real ledger: what is recorded, what is left alone, when it asks again."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config import Imds
from bridge.core.approvals import Approve
from bridge.core.cloudevents import CloudEvent, OutcomeData, Vm, decode, from_outcome
from bridge.errors import ImdsUnavailable
from bridge.poller import Poller
from bridge.store import Store
from tests.builders import EVENT_ID, NOW, VM_NAME, command, scheduled_event
from tests.fakes import FakeClock, FakeImds

VM = Vm(name=VM_NAME, vm_id="id-3", resource_id="/subscriptions/s/vm")
SCHEDULED = {
    "EventId": EVENT_ID,
    "EventType": "Reboot",
    "EventStatus": "Scheduled",
    "Resources": [VM_NAME],
    "NotBefore": "Wed, 18 Nov 2026 06:15:00 GMT",
}
STARTED = SCHEDULED | {"EventStatus": "Started", "NotBefore": ""}


def body(*entries: dict[str, Any], incarnation: int = 1) -> bytes:
    return msgspec.json.encode({"DocumentIncarnation": incarnation, "Events": list(entries)})


class Polling:
    """A poller, the IMDS it asks, and what it told the others."""

    def __init__(self, store: Store, clock: FakeClock, *, own_events_only: bool = True) -> None:
        self.store, self.clock, self.imds = store, clock, FakeImds()
        self.news = self.changes = 0
        self.poller = Poller(
            Imds(),
            self.imds,
            store,
            clock,
            vm=VM,
            commands_topic="root/commands",
            own_events_only=own_events_only,
            on_news=self._told,
            on_change=self._changed,
        )

    def _told(self) -> None:
        self.news += 1

    def _changed(self) -> None:
        assert self.news > self.changes, "decided before it was announced"
        self.changes += 1

    async def see(self, answer: Any, *, after_s: float = 1.0) -> float:
        self.clock.pass_s(after_s)
        self.imds.answer = answer
        return await self.poller.step()

    def published(self) -> list[dict[str, Any]]:
        rows = self.store.batch("memory", 100)
        return [msgspec.json.decode(decode(row.cloudevent).data) for row in rows]

    def kinds(self) -> list[str]:
        return [data["transition"] for data in self.published()]


@pytest.fixture
def polling(store: Store, clock: FakeClock) -> Polling:
    return Polling(store, clock)


async def test_poller_life_of_an_event(polling: Polling) -> None:
    """Scheduled, started, gone: three transitions and a document that is fresh."""
    for entries in ([], [SCHEDULED], [SCHEDULED], [STARTED], []):
        assert await polling.see(body(*entries)) == 1.0

    assert polling.kinds() == ["scheduled", "started", "completed"]
    assert polling.poller.document is not None
    assert polling.changes == 4


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"  ",
        b"{}",
        b"<html>",
        b"[]",
        b'{"DocumentIncarnation": 2, "Events": null}',
        ImdsUnavailable("gone"),
        ImdsUnavailable("server error", status=500),
    ],
)
async def test_poller_no_information_ends_no_event(polling: Polling, answer: Any) -> None:
    """An empty body, a failure or a page says nothing of any event; the next good poll is told."""
    await polling.see(body(SCHEDULED))
    await polling.see(answer)
    assert polling.poller.problem
    await polling.see(body(SCHEDULED))

    assert polling.kinds() == ["scheduled"]
    assert (polling.poller.problem, polling.changes) == ("", 2)


async def test_poller_gap_makes_an_end_uncertain(polling: Polling) -> None:
    """Whoever did not look cannot say that it was canceled."""
    await polling.see(body(SCHEDULED))
    await polling.see(ImdsUnavailable("away"))
    await polling.see(body(), after_s=60)

    assert polling.published()[-1]["ended"] == {
        "because": "polling was interrupted: it may have started unseen",
        "certainty": "inferred",
    }


async def test_poller_failed_poll_is_a_gap(polling: Polling) -> None:
    """However short: what happened while nothing was seen is not guessed."""
    await polling.see(body(SCHEDULED))
    await polling.see(ImdsUnavailable("away"))
    await polling.see(body(incarnation=2))

    assert polling.kinds() == ["scheduled", "ended"]


async def test_poller_restart_compares_with_the_ledger(polling: Polling, clock: FakeClock) -> None:
    """What ended while the agent was down is told by the next one, and wakes the others."""
    await polling.see(body(SCHEDULED))
    again = Polling(polling.store, clock)
    await again.see(body(SCHEDULED))
    assert again.changes == 1
    await again.see(body())

    assert polling.kinds() == ["scheduled", "canceled"]


@pytest.mark.parametrize(("own_events_only", "expected"), [(True, []), (False, ["scheduled"])])
async def test_poller_scope(
    store: Store, clock: FakeClock, own_events_only: bool, expected: list[str]
) -> None:
    """Other VMs' events are published only where that is asked for."""
    polling = Polling(store, clock, own_events_only=own_events_only)
    await polling.see(body(SCHEDULED | {"Resources": ["web_30"]}))

    assert polling.kinds() == expected


async def test_poller_event_that_leaves_us_is_still_told(polling: Polling) -> None:
    """An event that was published is told to its end, also when it no longer names this VM."""
    await polling.see(body(SCHEDULED))
    await polling.see(body(SCHEDULED | {"Resources": ["web_4"]}, incarnation=2))

    assert polling.published()[-1]["changed"] == ["Resources"]

    await polling.see(body(incarnation=3))

    assert polling.kinds() == ["scheduled", "updated", "canceled"]
    assert polling.store.pending() == []


async def test_poller_foreign_event_stays_foreign(polling: Polling) -> None:
    """Whoever sees only the newest message learns, too, that nobody here had it started."""
    await polling.see(body(STARTED))
    await polling.see(body(STARTED | {"Description": "still going"}, incarnation=2))
    await polling.see(body(incarnation=3))

    states = [data["approval"]["state"] for data in polling.published()]
    assert states == ["foreign", "foreign", "foreign"]


async def test_poller_event_that_started_in_time_is_not_foreign(polling: Polling) -> None:
    """Azure may start what nobody approved, once NotBefore has passed."""
    await polling.see(body(SCHEDULED))
    await polling.see(body(STARTED | {"NotBefore": ""}, incarnation=2), after_s=86_400 * 365 * 30)
    await polling.see(body(STARTED | {"Description": "more", "NotBefore": ""}, incarnation=3))

    states = [data["approval"]["state"] for data in polling.published()]
    assert states == ["none", "none", "none"]


async def test_poller_first_document_is_fenced_and_later_events_are_not(polling: Polling) -> None:
    """Only what was there before the ledger has an unknown history."""
    await polling.see(body(SCHEDULED))
    await polling.see(body(SCHEDULED, SCHEDULED | {"EventId": "later"}, incarnation=2))

    assert polling.store.fenced() == {EVENT_ID.casefold()}


async def test_poller_token_stays_the_same_for_an_event(polling: Polling) -> None:
    """A command may repeat the token of any message of the event."""
    await polling.see(body(SCHEDULED))
    await polling.see(body(STARTED, incarnation=2))

    first, second = (data["approval"]["token"] for data in polling.published())
    assert first == second


async def test_poller_incarnation_that_falls_is_compared_by_content(polling: Polling) -> None:
    """After a day without polling Azure counts from the start."""
    await polling.see(body(SCHEDULED, incarnation=900))
    await polling.see(body(SCHEDULED, incarnation=1))
    await polling.see(body(STARTED, incarnation=1))

    assert polling.kinds() == ["scheduled", "started"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ImdsUnavailable("x", status=429, retry_after_s=7), 7.0),
        (ImdsUnavailable("x", status=429), 1.0),
        (ImdsUnavailable("x", status=410), 5.0),
        (ImdsUnavailable("x", status=400), 10.0),
        (ImdsUnavailable("x"), 1.0),
    ],
)
async def test_poller_waits_as_the_answer_asks(
    polling: Polling, error: ImdsUnavailable, expected: float
) -> None:
    """Each status has its own pause."""
    assert await polling.see(error) == expected


@pytest.mark.parametrize("status", [None, 429, 500])
@pytest.mark.parametrize("entries", [(), (SCHEDULED,)])
async def test_poller_asks_often(
    polling: Polling, entries: tuple[Any, ...], status: int | None
) -> None:
    """Every second of notice counts, also of an event that nobody has seen yet."""
    await polling.see(body(*entries))
    delays = [await polling.see(ImdsUnavailable("away", status=status)) for _ in range(10)]

    assert max(delays) == 5.0


async def test_poller_blind_after_a_while_and_ready_again(polling: Polling) -> None:
    """Blind means that no good poll came for `stale_after_s`; the first one may take longer."""
    assert not polling.poller.is_ready
    assert not polling.poller.is_blind
    await polling.see(body())
    assert polling.poller.is_ready
    polling.clock.pass_s(31)
    assert polling.poller.is_blind
    assert polling.poller.document is None
    await polling.see(body())

    assert polling.poller.is_ready


async def test_poller_snapshot_survives_in_the_file(
    polling: Polling, tmp_path: Path, clock: FakeClock
) -> None:
    """The document and its CloudEvents are committed together."""
    await polling.see(body(SCHEDULED))
    polling.store.close()
    reopened = Store.open(tmp_path / "loops" / "state.db", now=clock.now())

    assert reopened.snapshot() == body(SCHEDULED)
    assert len(reopened.batch("memory", 10)) == 1
    reopened.close()


async def test_poller_confirms_what_ended_while_its_post_was_under_way(polling: Polling) -> None:
    """Started and gone between two looks of the approver: no later document will tell of it."""
    store, now = polling.store, polling.clock.now()
    await polling.see(body(SCHEDULED))
    store.accept(
        command(),
        Approve(scheduled_event(), "default"),
        received_at=now,
        expires_at=now + timedelta(minutes=5),
    )
    number = store.begin_post(EVENT_ID, now)
    await polling.see(body(STARTED, incarnation=2))
    await polling.see(body(incarnation=3))
    store.finish_post(
        number, state="in-doubt", http_status=None, result="", outcome=in_doubt(), now=now
    )
    polling.poller.confirm_settled()
    polling.poller.confirm_settled()

    statuses = [data["status"] for data in polling.published() if "status" in data]
    assert statuses == ["in-doubt", "confirmed"]


def in_doubt() -> CloudEvent:
    outcome = OutcomeData(status="in-doubt", event_id=EVENT_ID, idempotency_key="chg-4711")
    return from_outcome(outcome, vm=VM, now=NOW)
