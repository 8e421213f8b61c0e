"""What changed between two documents, as transitions.

IMDS shows Scheduled and Started only; an end is a disappearance. How much can be said about an
end depends on how closely we looked, so `diff` takes the circumstances and never guesses:

    Started, then gone                                    completed
    Scheduled, then gone: no gap in polling, NotBefore
    still ahead, no approval of ours                      canceled
    anything else                                         ended, with why it cannot be told
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from bridge.core.document import Document, ScheduledEvent, folded

Kind = Literal["scheduled", "updated", "started", "completed", "canceled", "ended"]
Certainty = Literal["observed", "inferred"]

# Azure's field name for each part of an event that may change while it is pending.
_COMPARED: Mapping[str, str] = {
    "event_type": "EventType",
    "event_status": "EventStatus",
    "not_before": "NotBefore",
    "description": "Description",
    "event_source": "EventSource",
    "duration_in_seconds": "DurationInSeconds",
}


class Ending(msgspec.Struct, frozen=True, rename="camel"):
    because: str
    certainty: Certainty


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    scheduled_event: ScheduledEvent  # the newest sight of it; the last one for ends
    previous: ScheduledEvent | None = None
    changed: tuple[str, ...] = ()  # Azure's field names
    ending: Ending | None = None
    foreign: bool = False  # it runs, and not because we asked

    @property
    def is_end(self) -> bool:
        return self.ending is not None


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """How the newer document was come by."""

    now: datetime
    gap: bool  # polling was interrupted since the older document
    posted: Collection[str] = ()  # keys of events that a POST of ours may have started


def diff(
    previous: Document | None, current: Document, circumstances: Circumstances
) -> tuple[Transition, ...]:
    """Transitions from `previous` to `current`: ends first, then in the document's order."""
    before = {e.key: e for e in previous.scheduled_events} if previous else {}
    after = {e.key: e for e in current.scheduled_events}
    ends = [_end(e, circumstances) for key, e in before.items() if key not in after]
    changes = [
        transition
        for key, scheduled_event in after.items()
        if (transition := _change(before.get(key), scheduled_event, circumstances))
    ]
    return (*ends, *changes)


def _change(
    before: ScheduledEvent | None, now: ScheduledEvent, circumstances: Circumstances
) -> Transition | None:
    if before is None:
        kind: Kind = "started" if now.is_started else "scheduled"
        return Transition(kind=kind, scheduled_event=now, foreign=now.is_started)
    changed = _changed_fields(before, now)
    if not changed:
        return None
    if now.is_started and not before.is_started:
        return Transition(
            kind="started",
            scheduled_event=now,
            previous=before,
            changed=changed,
            foreign=_started_early_without_us(before, circumstances),
        )
    return Transition(kind="updated", scheduled_event=now, previous=before, changed=changed)


def _changed_fields(before: ScheduledEvent, now: ScheduledEvent) -> tuple[str, ...]:
    changed = [
        azure_name
        for field, azure_name in _COMPARED.items()
        if getattr(before, field) != getattr(now, field)
    ]
    if before.resources != now.resources and folded(before.resources) != folded(now.resources):
        changed.append("Resources")
    return tuple(changed)


def _started_early_without_us(before: ScheduledEvent, circumstances: Circumstances) -> bool:
    if before.key in circumstances.posted:
        return False
    return before.not_before is not None and circumstances.now < before.not_before


def _end(last: ScheduledEvent, circumstances: Circumstances) -> Transition:
    if last.is_started:
        certainty: Certainty = "inferred" if circumstances.gap else "observed"
        ending = Ending(because="gone after it had started", certainty=certainty)
        return Transition(kind="completed", scheduled_event=last, previous=last, ending=ending)
    unknown = _why_not_canceled(last, circumstances)
    if unknown:
        ending = Ending(because=unknown, certainty="inferred")
        return Transition(kind="ended", scheduled_event=last, previous=last, ending=ending)
    ending = Ending(because="gone before NotBefore, never started", certainty="inferred")
    return Transition(kind="canceled", scheduled_event=last, previous=last, ending=ending)


def _why_not_canceled(last: ScheduledEvent, circumstances: Circumstances) -> str:
    if last.key in circumstances.posted:
        return "approved by this agent: it may have run between two polls"
    if circumstances.gap:
        return "polling was interrupted: it may have started unseen"
    if last.not_before is None:
        return "it had no NotBefore to compare with"
    if circumstances.now >= last.not_before:
        return "NotBefore had passed: it may have started unseen"
    return ""
