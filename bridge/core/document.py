"""The Scheduled Events document: bytes in, `Document` out, or `MalformedDocument`.

Azure's enums stay open strings and fields of newer api-versions are optional: what is new must
pass through, not crash. What cannot be understood as a whole is refused as a whole, because a
document with one event left out would look like the end of that event.
"""

import re
from collections.abc import Collection
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import msgspec

from bridge.core.strict_json import INTEGER_MAX, NotJson, decode_object

SCHEDULED = "Scheduled"
STARTED = "Started"
TERMINATE = "Terminate"
KNOWN_TYPES = frozenset({"Freeze", "Reboot", "Redeploy", "Preempt", TERMINATE})

# 100 VMs share a document at most; a thousand events are still far below this.
DOCUMENT_BYTES_MAX = 4 * 1024 * 1024
# NotBefore as IMDS writes it. The library's parser takes everything that mail ever had, slowly.
_RFC_1123 = re.compile(
    r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([1-9][0-9]{3}) ([0-9]{2}:[0-9]{2}:[0-9]{2}) GMT"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Descriptions are sentences; a longer one would only fill the broker.
DESCRIPTION_CHARS_MAX = 4096


class MalformedDocument(ValueError):
    """The bytes are not a Scheduled Events document; the message says why."""


class ScheduledEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the document, decoded leniently, beside what IMDS really wrote."""

    event_id: str  # as IMDS spells it; compare with `key`
    event_type: str = ""
    resource_type: str = ""
    resources: tuple[str, ...] = ()
    event_status: str = ""
    not_before: datetime | None = None  # aware UTC; None when IMDS gives none, or nonsense
    description: str = ""
    event_source: str = ""
    duration_in_seconds: int | None = None
    raw: dict[str, Any] = {}  # Azure's own field names and values

    @property
    def key(self) -> str:
        """The EventId for comparison: Azure's samples show it in both cases."""
        return self.event_id.casefold()

    @property
    def is_scheduled(self) -> bool:
        return self.event_status == SCHEDULED

    @property
    def is_started(self) -> bool:
        return self.event_status == STARTED

    def names(self, vm_name: str) -> bool:
        """Whether the event concerns this VM: whole names, in any case, never a part."""
        wanted = vm_name.casefold()
        return any(name.casefold() == wanted for name in self.resources)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    incarnation: int
    scheduled_events: tuple[ScheduledEvent, ...] = ()

    def find(self, event_id: str) -> ScheduledEvent | None:
        wanted = event_id.casefold()
        return next((e for e in self.scheduled_events if e.key == wanted), None)


def folded(names: Collection[str]) -> frozenset[str]:
    """Azure's names mean the same in any case and any order."""
    return frozenset(name.casefold() for name in names)


def decode(raw: bytes) -> Document:
    """Decode a document. An empty body is no document: it says nothing about any event."""
    if not raw.strip():
        raise MalformedDocument("the body is empty, which says nothing about any event")
    try:
        fields = decode_object(raw, bytes_max=DOCUMENT_BYTES_MAX)
    except NotJson as error:
        raise MalformedDocument(f"not a JSON document: {error}") from error
    entries = fields.get("Events")
    if not isinstance(entries, list):
        raise MalformedDocument("Events is missing or not a list")
    scheduled_events = tuple(
        _decode_event(entry, f"Events[{index}]") for index, entry in enumerate(entries)
    )
    _refuse_duplicate_ids(scheduled_events)
    return Document(
        incarnation=_decode_incarnation(fields.get("DocumentIncarnation")),
        scheduled_events=scheduled_events,
    )


def decode_not_before(text: object) -> datetime | None:
    """RFC 1123 with any weekday, or ISO 8601; anything else is no time."""
    if not isinstance(text, str) or not text.strip():
        return None
    for parse in (_parse_usual, parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


@lru_cache(maxsize=1024)  # an event repeats it in every document, and a mass event in every entry
def _parse_usual(text: str) -> datetime:
    found = _RFC_1123.fullmatch(text)
    if found is None:
        raise ValueError(text)
    day, month, year, clock = found.groups()
    return datetime.fromisoformat(f"{year}-{_MONTHS.index(month) + 1:02}-{day}T{clock}Z")


def _decode_incarnation(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INTEGER_MAX:
        raise MalformedDocument(f"DocumentIncarnation is not a counter: {str(value)[:40]!r}")
    return value


def _decode_event(entry: object, place: str) -> ScheduledEvent:
    if not isinstance(entry, dict):
        raise MalformedDocument(f"{place} is not an object")
    event_id = entry.get("EventId")
    if not isinstance(event_id, str) or not event_id.strip() or len(event_id) > 128:
        raise MalformedDocument(f"{place}.EventId is missing or not an id")
    if not event_id.isprintable():
        raise MalformedDocument(f"{place}.EventId holds control characters")
    return ScheduledEvent(
        event_id=event_id,
        event_type=_text(entry.get("EventType")),
        resource_type=_text(entry.get("ResourceType")),
        resources=_decode_resources(entry.get("Resources")),
        event_status=_text(entry.get("EventStatus")),
        not_before=decode_not_before(entry.get("NotBefore")),
        description=_text(entry.get("Description"))[:DESCRIPTION_CHARS_MAX],
        event_source=_text(entry.get("EventSource")),
        duration_in_seconds=_decode_duration(entry.get("DurationInSeconds")),
        raw=_bounded(entry),
    )


def _decode_resources(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(name for name in value if isinstance(name, str))


def _decode_duration(value: object) -> int | None:
    """Microsoft's own sample wraps it in int(): older services wrote a string."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _bounded(entry: dict[str, Any]) -> dict[str, Any]:
    description = entry.get("Description")
    if isinstance(description, str) and len(description) > DESCRIPTION_CHARS_MAX:
        return {**entry, "Description": description[:DESCRIPTION_CHARS_MAX]}
    return entry


def _refuse_duplicate_ids(scheduled_events: tuple[ScheduledEvent, ...]) -> None:
    seen = set()
    for scheduled_event in scheduled_events:
        if scheduled_event.key in seen:
            raise MalformedDocument(f"EventId {scheduled_event.event_id!r} stands there twice")
        seen.add(scheduled_event.key)
