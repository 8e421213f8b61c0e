"""`in_doubt = "repost"`: the approver's own loop, in virtual time, against an IMDS that is scripted."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import chain, repeat

import pytest

from bridge.core.document import Document
from bridge.errors import ImdsUnavailable
from bridge.store import Store
from tests.builders import EVENT_ID, NOW, document, scheduled_event
from tests.fakes import FakeClock
from tests.office import Office
from tests.support.virtual_time import live

IN_DOUBT = ("in-doubt", "in-doubt")
ANSWER_S = 10  # how long the approver waits for one that does not come


@pytest.fixture
def office(store: Store, clock: FakeClock) -> Office:
    return Office(store, clock, in_doubt="repost")


def script(office: Office, *statuses: int | None, answer_s: float = 0) -> list[float]:
    """IMDS gives these, then the last for ever; what comes back fills with the times of POSTs."""
    answers = chain(statuses, repeat(statuses[-1]))
    posted_at: list[float] = []

    def post() -> int | None:
        posted_at.append((office.clock.now() - NOW).total_seconds())
        office.clock.pass_s(answer_s)
        return next(answers)

    office.on_post = post
    return posted_at


def live_on(office: Office, *later: tuple[float, Callable[[], object]]) -> None:
    """An hour of the approver's loop; each act comes so many seconds after the one before."""

    async def life() -> None:
        running = asyncio.create_task(office.approver.run())
        for after_s, act in later:
            await asyncio.sleep(after_s)
            act()
        await running

    live(office.clock, life(), seconds=3600)


def connect_with(office: Office, on_connect: Callable[[], None]) -> Callable[[], None]:
    return lambda: setattr(office, "on_connect", on_connect)


def test_repost_comes_by_itself_until_imds_answers(office: Office) -> None:
    """Nobody wakes the loop for a doubt; the sender hears of the doubt, and of nothing else."""
    posted_at = script(office, None, 503, 200)
    office.accept()
    live_on(office)

    assert posted_at == pytest.approx([0, 1, 3])
    assert (office.state(), office.answers()) == ("approved", [IN_DOUBT])


def test_repost_comes_less_and_less_often_and_ends_with_the_command(office: Office) -> None:
    """The pauses grow to half a minute; an expired command is only watched, without more answers."""
    posted_at = script(office, 503)
    office.accept(expires_at=NOW + timedelta(seconds=130))
    live_on(office)

    assert posted_at == pytest.approx([0, 1, 3, 7, 15, 30, 60, 90, 120])
    assert (office.state(), office.answers()) == ("in-doubt", [IN_DOUBT])


def test_repost_of_a_short_lived_command_never_begins(office: Office) -> None:
    """Its expirytime passed while the answer was waited for: nothing is promised after it."""
    posted_at = script(office, None, answer_s=ANSWER_S)
    office.accept(expires_at=NOW + timedelta(seconds=8))
    live_on(office)

    assert (posted_at, office.answers()) == ([0], [IN_DOUBT])
    assert office.approver.pulse.overdue_s == 0


def test_repost_is_never_made_after_not_before(office: Office) -> None:
    """Then Azure goes ahead by itself, however long the command would have lived."""
    office.document = document(scheduled_event(not_before=NOW + timedelta(seconds=20)))
    posted_at = script(office, 500)
    office.accept()
    live_on(office)

    assert posted_at == pytest.approx([0, 1, 3, 7, 15])


def test_repost_that_not_before_overtakes_goes_back_to_the_doubt(
    office: Office, clock: FakeClock
) -> None:
    """The connection took too long: nothing is sent, and there is no second answer."""
    office.document = document(scheduled_event(not_before=NOW + timedelta(seconds=20)))
    posted_at = script(office, 500)
    office.accept()
    live_on(office, (0.5, connect_with(office, lambda: clock.pass_s(20))))

    assert (posted_at, office.state(), office.answers()) == ([0], "in-doubt", [IN_DOUBT])


def test_repost_waits_for_a_fresh_document(office: Office) -> None:
    """IMDS was away and is back with the same document, of which no poll makes a word."""
    seen: list[Document | None] = [office.document]
    posted_at = script(office, None, 200)
    office.accept()
    live_on(
        office,
        (0.5, lambda: setattr(office, "document", None)),
        (60, lambda: setattr(office, "document", seen[0])),
    )

    assert posted_at == pytest.approx([0, 61], abs=0.5)
    assert office.state() == "approved"


@pytest.mark.parametrize(
    "now", [document(), document(scheduled_event(event_status="Started"))], ids=["gone", "started"]
)
def test_repost_ends_with_the_event(office: Office, now: Document) -> None:
    """What runs or is over is not posted again, and the loop rests."""

    def post() -> int | None:
        office.document = now
        return None

    office.on_post = post
    office.accept()
    live_on(office)

    assert (office.posts, office.answers()) == (1, [IN_DOUBT])


def refuse_connection() -> None:
    raise ImdsUnavailable("refused")


@pytest.mark.parametrize(
    ("on_connect", "statuses"),
    [(refuse_connection, (200,)), (lambda: None, (429,)), (lambda: None, (400,))],
    ids=["no connection", "429", "400"],
)
def test_repost_that_comes_to_nothing_leaves_the_doubt_and_its_answer(
    office: Office, on_connect: Callable[[], None], statuses: tuple[int, ...]
) -> None:
    """Refused, rejected or never sent, until the command expires: one doubt, one answer."""
    script(office, None, *statuses)
    office.accept(expires_at=NOW + timedelta(seconds=130))
    live_on(office, (0.5, connect_with(office, on_connect)))

    assert (office.state(), office.answers()) == ("in-doubt", [IN_DOUBT])
    assert office.store.accepted() == []


def test_repost_under_a_key_that_was_answered_rejected_is_not_made(office: Office) -> None:
    """A command overrode the doubt and IMDS refused it: approved after that would belie the word."""
    posted_at = script(office, 500, 400, 200)
    office.accept("first")
    override = frozenset({"in-doubt"})
    live_on(office, (0.5, lambda: office.accept("second", override=override)))

    assert (len(posted_at), office.state()) == (2, "in-doubt")
    assert office.answers() == [IN_DOUBT, ("rejected", "imds-rejected")]


def test_repost_after_a_command_that_overrode_the_doubt_starts_anew(office: Office) -> None:
    """Its pauses are its own: the first one is short again."""
    posted_at = script(office, 500)
    office.accept("first", expires_at=NOW + timedelta(seconds=40))
    override = frozenset({"in-doubt"})
    live_on(office, (50, lambda: office.accept("second", override=override)))

    assert posted_at[:9] == pytest.approx([0, 1, 3, 7, 15, 30, 50, 51, 53])


def test_repost_that_was_under_way_is_dropped_by_a_new_configuration(
    store: Store, office: Office, clock: FakeClock
) -> None:
    """Stopped before the second POST and started as `watch`: the operator's newest word counts."""
    script(office, 500)
    office.accept()
    asyncio.run(office.approver.step())
    store.begin_repost(EVENT_ID, clock.now())
    office = Office(store, clock, in_doubt="watch")
    live_on(office)

    assert (office.posts, office.state(), office.answers()) == (0, "in-doubt", [IN_DOUBT])


def test_repost_wakes_do_not_hasten_it(office: Office) -> None:
    """Every change of the document wakes the loop; the pause stays."""
    posted_at = script(office, 500)
    office.accept()
    live_on(office, *[(0.1, office.approver.wake)] * 29)

    assert posted_at[:3] == pytest.approx([0, 1, 3], abs=0.2)
