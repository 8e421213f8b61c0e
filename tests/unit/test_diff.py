"""What changed between two documents, and how much may be said about an end."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.core.diff import Circumstances, diff
from bridge.core.document import Document, ScheduledEvent

NOW = datetime(2026, 11, 18, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
SCHEDULED = ScheduledEvent(
    event_id="E1", event_type="Reboot", resources=("a",), event_status="Scheduled", not_before=LATER
)
STARTED = msgspec.structs.replace(SCHEDULED, event_status="Started", not_before=None)

events = st.builds(
    ScheduledEvent,
    event_id=st.sampled_from(["E1", "e2", "E3"]),
    event_status=st.sampled_from(["Scheduled", "Started", "Odd"]),
    event_type=st.sampled_from(["Reboot", "Freeze"]),
    resources=st.lists(st.sampled_from(["a", "A", "b"])).map(tuple),
)
documents = st.lists(events, unique_by=lambda e: e.key).map(
    lambda entries: Document(incarnation=1, scheduled_events=tuple(entries))
)


def document(*entries: ScheduledEvent) -> Document:
    return Document(incarnation=1, scheduled_events=entries)


def circumstances(**fields: Any) -> Circumstances:
    values: dict[str, Any] = {"now": NOW, "gap": False, **fields}
    return Circumstances(**values)


@pytest.mark.parametrize(
    ("before", "after", "given", "expected"),
    [
        ((), (SCHEDULED,), {}, "scheduled"),
        ((), (STARTED,), {}, "started"),
        ((SCHEDULED,), (STARTED,), {}, "started"),
        ((STARTED,), (), {}, "completed"),
        ((STARTED,), (), {"gap": True}, "completed"),
        ((SCHEDULED,), (), {}, "canceled"),
        ((SCHEDULED,), (), {"gap": True}, "ended"),
        ((SCHEDULED,), (), {"posted": {"e1"}}, "ended"),
        ((SCHEDULED,), (), {"now": LATER}, "ended"),
        ((msgspec.structs.replace(SCHEDULED, not_before=None),), (), {}, "ended"),
    ],
)
def test_transition_of_one_event(
    before: Any, after: Any, given: dict[str, Any], expected: str
) -> None:
    """One event, one transition, never more than was observed."""
    (transition,) = diff(document(*before), document(*after), circumstances(**given))

    assert expected == transition.kind


def test_update_names_azures_fields() -> None:
    """`changed` speaks Azure's language; case and order of Resources are no change."""
    moved = msgspec.structs.replace(SCHEDULED, not_before=NOW, resources=("A",))
    (transition,) = diff(document(SCHEDULED), document(moved), circumstances())

    assert ("updated", ("NotBefore",)) == (transition.kind, transition.changed)


@pytest.mark.parametrize(
    ("given", "foreign"), [({}, True), ({"posted": {"e1"}}, False), ({"now": LATER}, False)]
)
def test_early_start_without_our_post_is_foreign(given: dict[str, Any], foreign: bool) -> None:
    """Somebody else approved, if it runs before NotBefore and we did not ask."""
    (transition,) = diff(document(SCHEDULED), document(STARTED), circumstances(**given))

    assert foreign == transition.foreign


@given(documents)
def test_no_difference_no_transition(same: Document) -> None:
    """diff(x, x) is nothing."""
    assert () == diff(same, same, circumstances())


@given(documents, documents)
def test_every_change_is_told_once(before: Document, after: Document) -> None:
    """At most one transition an event, and every appearance and disappearance has one."""
    keys = [t.scheduled_event.key for t in diff(before, after, circumstances())]
    old = {e.key for e in before.scheduled_events}
    new = {e.key for e in after.scheduled_events}

    assert len(keys) == len(set(keys))
    assert (old ^ new) <= set(keys)
