"""What goes into the store and what comes out of it. Times are aware UTC here, ISO text there."""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from bridge.core import cloudevents
from bridge.core.cloudevents import Channel, CloudEvent
from bridge.transports import Outgoing

PostState = Literal["approved", "rejected", "in-doubt", "accepted"]
Position = tuple[str, str]  # (command source, offset)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """One transition to publish; the store gives it its id and its place."""

    cloudevent: CloudEvent
    event_id: str  # as IMDS spells it
    channel: Channel = "events"
    ends: bool = False
    token: str = ""
    fenced: bool = False


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """An approved or doubtful event was seen to start or to end."""

    event_id: str
    cloudevent: CloudEvent


class CommandRow(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    fingerprint: str
    command_id: str
    source: str
    event_id: str  # as the command spelt it
    why: str
    rule: str
    status: str  # "" until answered
    reason: str
    http_status: int | None
    received_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    answer: bytes | None
    reply_topic: str
    correlation: bytes | None


class AcceptedRow(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that is accepted (or was, before its doubt), and the command that holds it."""

    event_id: str  # case-folded
    azure_event_id: str  # as IMDS spells it
    key: str
    event_type: str
    resources: tuple[str, ...]
    override: bool  # an earlier POST may have counted, and a person said: again
    expires_at: datetime
    command: CommandRow


class ParkedRow(msgspec.Struct, frozen=True, kw_only=True):
    sink: str
    sequence: int
    reason: str
    cloudevent: bytes
    parked_at: datetime


def to_text(moment: datetime) -> str:
    """Fixed width, so that text sorts as time does."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def command_row(row: Any) -> CommandRow:
    return msgspec.convert(dict(row), CommandRow)


def accepted_row(row: Any, command: CommandRow) -> AcceptedRow:
    return AcceptedRow(
        event_id=row["event_id"],
        azure_event_id=row["azure_event_id"],
        key=row["key"],
        event_type=row["event_type"],
        resources=tuple(msgspec.json.decode(row["resources"], type=list[str])),
        override=bool(row["override"]),
        expires_at=command.expires_at,
        command=command,
    )


def pending_row(structured: bytes) -> Outgoing:
    event = cloudevents.decode(structured)
    if not event.sequence.isdecimal():
        raise msgspec.ValidationError(f"{event.sequence!r} is no sequence number")
    return Outgoing(
        sequence=int(event.sequence),
        channel="events",
        event_id=event.subject,
        cloudevent=structured,
    )


def outgoing_row(row: Any) -> Outgoing:
    return Outgoing(
        sequence=row["sequence"],
        channel=row["channel"],
        event_id=row["event_id"],
        cloudevent=row["cloudevent"],
        ends=bool(row["ends"]),
        reply_topic=row["reply_topic"],
        correlation=row["correlation"],
        created_at=datetime.fromisoformat(row["created_at"]),
    )
