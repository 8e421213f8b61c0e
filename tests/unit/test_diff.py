"""Transitions between two documents say what was seen, and no more."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core.diff import Circumstances, Ending, Transition, diff
from bridge.core.document import Document, ScheduledEvent
from tests.builders import NOT_BEFORE, NOW, document, scheduled_event

CALM = Circumstances(now=NOW, gap=False)
SCHEDULED = scheduled_event()
STARTED = scheduled_event(event_status="Started", not_before=None)

moments = st.none() | st.sampled_from([NOT_BEFORE, NOW - timedelta(minutes=5)])
events = st.builds(
    scheduled_event,
    event_id=st.sampled_from(["a", "b", "c", "d"]),
    event_type=st.sampled_from(["Reboot", "Terminate"]),
    event_status=st.sampled_from(["Scheduled", "Started", "Paused"]),
    not_before=moments,
    resources=st.lists(st.sampled_from(["web_1", "web_2"]), unique=True).map(tuple),
    description=st.sampled_from(["", "x"]),
)
documents = st.lists(events, max_size=4, unique_by=lambda event: event.key).map(
    lambda found: document(*found)
)
circumstances = st.builds(
    Circumstances,
    now=st.sampled_from([NOW, NOT_BEFORE]),
    gap=st.booleans(),
    posted=st.lists(st.sampled_from(["a", "b"]), unique=True),
)


def ids_and_events(seen: Document) -> dict[str, tuple[Any, ...]]:
    return {event.key: comparable(event) for event in seen.scheduled_events}


def comparable(event: ScheduledEvent) -> tuple[Any, ...]:
    return (
        event.event_type,
        event.event_status,
        event.not_before,
        event.description,
        frozenset(event.resources),
    )


@settings(max_examples=100, deadline=None)
@given(seen=documents, how=circumstances)
def test_diff_same_document_gives_nothing(seen: Document, how: Circumstances) -> None:
    """Looking twice changes nothing."""
    assert diff(seen, seen, how) == ()


@settings(max_examples=150, deadline=None)
@given(previous=st.none() | documents, current=documents, how=circumstances)
def test_diff_applied_to_previous_gives_current(
    previous: Document | None, current: Document, how: Circumstances
) -> None:
    """A consumer that follows the transitions knows the document."""
    state = ids_and_events(previous) if previous else {}

    for transition in diff(previous, current, how):
        if transition.is_end:
            del state[transition.scheduled_event.key]
        else:
            state[transition.scheduled_event.key] = comparable(transition.scheduled_event)

    assert state == ids_and_events(current)


@settings(max_examples=100, deadline=None)
@given(previous=documents, current=documents, how=circumstances, data=st.data())
def test_diff_order_of_events_does_not_matter(
    previous: Document, current: Document, how: Circumstances, data: st.DataObject
) -> None:
    """Azure may list events in any order."""
    shuffled_previous = document(*data.draw(st.permutations(previous.scheduled_events)))
    shuffled_current = document(*data.draw(st.permutations(current.scheduled_events)))

    expected = {t.scheduled_event.key: t for t in diff(previous, current, how)}
    actual = {t.scheduled_event.key: t for t in diff(shuffled_previous, shuffled_current, how)}

    assert actual == expected


def test_diff_ends_come_first_then_the_order_of_the_document() -> None:
    """An end is published before what is new."""
    old, second, first = (scheduled_event(event_id=name) for name in ("old", "second", "first"))

    actual = diff(document(old), document(second, first), CALM)

    assert [t.scheduled_event.event_id for t in actual] == ["old", "second", "first"]


def test_diff_new_event_is_scheduled() -> None:
    """A first sight of a pending event."""
    expected = (Transition(kind="scheduled", scheduled_event=SCHEDULED),)

    assert diff(None, document(SCHEDULED), CALM) == expected


def test_diff_event_that_skipped_scheduled_is_foreign() -> None:
    """An event first seen running did not start because we asked."""
    expected = (Transition(kind="started", scheduled_event=STARTED, foreign=True),)

    assert diff(document(), document(STARTED), CALM) == expected


@pytest.mark.parametrize(
    ("now", "posted", "not_before", "foreign"),
    [
        (NOW, (), NOT_BEFORE, True),
        (NOW, (SCHEDULED.key,), NOT_BEFORE, False),
        (NOT_BEFORE, (), NOT_BEFORE, False),
        (NOW, (), None, False),
    ],
)
def test_diff_start_is_foreign_only_if_early_and_not_ours(
    now: datetime, posted: tuple[str, ...], not_before: datetime | None, foreign: bool
) -> None:
    """An early start without our POST means that somebody else approved."""
    before = scheduled_event(not_before=not_before)

    (actual,) = diff(
        document(before), document(STARTED), Circumstances(now=now, gap=False, posted=posted)
    )

    assert (actual.kind, actual.previous, actual.foreign) == ("started", before, foreign)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"event_type": "Redeploy"}, ("EventType",)),
        ({"event_status": "Paused"}, ("EventStatus",)),
        ({"not_before": None}, ("NotBefore",)),
        ({"description": "new"}, ("Description",)),
        ({"event_source": "User"}, ("EventSource",)),
        ({"duration_in_seconds": -1}, ("DurationInSeconds",)),
        ({"resources": ("web_3", "web_4")}, ("Resources",)),
        ({"event_type": "Freeze", "resources": ()}, ("EventType", "Resources")),
    ],
)
def test_diff_changed_field_gives_updated(change: dict[str, Any], changed: tuple[str, ...]) -> None:
    """Each field that Azure may change is named by Azure's name."""
    now = scheduled_event(**change)
    expected = (
        Transition(kind="updated", scheduled_event=now, previous=SCHEDULED, changed=changed),
    )

    assert diff(document(SCHEDULED), document(now), CALM) == expected


def test_diff_case_and_order_of_names_are_no_change() -> None:
    """Azure's names mean the same in any case and order."""
    before = scheduled_event(event_id="A", resources=("web_1", "web_2"))
    now = scheduled_event(event_id="a", resources=("WEB_2", "Web_1"))

    assert diff(document(before), document(now), CALM) == ()


@pytest.mark.parametrize(
    ("last", "how", "kind", "ending"),
    [
        (STARTED, CALM, "completed", Ending("gone after it had started", "observed")),
        (
            STARTED,
            Circumstances(now=NOW, gap=True),
            "completed",
            Ending("gone after it had started", "inferred"),
        ),
        (
            SCHEDULED,
            CALM,
            "canceled",
            Ending("gone before NotBefore, never started", "inferred"),
        ),
        (
            SCHEDULED,
            Circumstances(now=NOW, gap=True, posted=(SCHEDULED.key,)),
            "ended",
            Ending("approved by this agent: it may have run between two polls", "inferred"),
        ),
        (
            SCHEDULED,
            Circumstances(now=NOW, gap=True),
            "ended",
            Ending("polling was interrupted: it may have started unseen", "inferred"),
        ),
        (
            scheduled_event(not_before=None),
            CALM,
            "ended",
            Ending("it had no NotBefore to compare with", "inferred"),
        ),
        (
            SCHEDULED,
            Circumstances(now=NOT_BEFORE, gap=False),
            "ended",
            Ending("NotBefore had passed: it may have started unseen", "inferred"),
        ),
    ],
)
def test_diff_end_says_only_what_can_be_told(
    last: ScheduledEvent, how: Circumstances, kind: str, ending: Ending
) -> None:
    """A disappearance is an end, and why it ended depends on how closely we looked."""
    (actual,) = diff(document(last), document(), how)

    assert (actual.kind, actual.ending, actual.previous) == (kind, ending, last)
    assert actual.is_end
