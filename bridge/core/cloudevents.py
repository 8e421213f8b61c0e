"""CloudEvents 1.0 as this program writes them: attributes, data, structured and binary form.

A CloudEvent is drafted without `id` and `sequence`; the store stamps both in the transaction
that makes it durable, so the same message keeps them on every resend.
"""

from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from bridge.core.diff import Ending, Transition
from bridge.core.document import Document

STRUCTURED_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
JSON_CONTENT_TYPE = "application/json"
EVENT_TYPE = "io.sebridge.event.{}.v1"
OUTCOME_TYPES = {
    "approved": "io.sebridge.approval.approved.v1",
    "confirmed": "io.sebridge.approval.confirmed.v1",
    "rejected": "io.sebridge.approval.rejected.v1",
    "in-doubt": "io.sebridge.approval.indoubt.v1",
}
STATUS_TYPE = "io.sebridge.agent.status.v1"

_SEQUENCE_DIGITS = 20  # sorts as text for ever, as the sequence extension asks

Channel = Literal["events", "outcomes"]
OutcomeStatus = Literal["approved", "confirmed", "rejected", "in-doubt"]


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attributes in the order a person reads them; unset ones are left out, never null."""

    specversion: str  # always "1.0"
    id: str = ""
    source: str  # the VM's ARM resource id
    type: str
    subject: str = ""  # the EventId
    time: str  # RFC 3339 UTC: when the agent first saw it
    sequence: str = ""  # per source, zero-padded
    partitionkey: str = ""  # the VM's name
    correlationid: str = ""  # the EventId
    causationid: str = ""  # outcomes: the id of the command
    datacontenttype: str  # always "application/json"
    data: Any


class Received(CloudEvent, frozen=True, kw_only=True, omit_defaults=True):
    """Read back: what was written as a struct, and together with the rest, stays as it stands."""

    data: msgspec.Raw


class Vm(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who is speaking."""

    name: str
    vm_id: str = ""
    resource_id: str = ""
    scale_set: str = ""
    zone: str = ""
    location: str = ""


class ApprovalInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to answer the event, and what has become of answers so far."""

    topic: str = ""  # where a command goes
    token: str = ""  # to repeat in the command
    state: str  # none, accepted, sending, approved, confirmed, in-doubt, rejected or foreign


class EventData(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`data` of an event CloudEvent."""

    transition: str
    event: dict[str, Any]  # as IMDS gave it
    previous: dict[str, Any] | None = None
    changed: tuple[str, ...] = ()
    document_incarnation: int
    vm: Vm
    not_before: str = ""  # RFC 3339; absent when IMDS gives none
    leader: bool  # this VM is the one that may approve
    approval: ApprovalInfo
    ended: Ending | None = None


class OutcomeData(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`data` of an outcome CloudEvent."""

    status: OutcomeStatus
    reason: str = ""  # from the closed list, for rejections and doubts
    detail: str = ""  # for people
    rule: str = ""  # the policy rule that spoke
    event_id: str = ""
    command_id: str = ""
    idempotency_key: str = ""
    requested_by: str = ""  # the command's source
    replay: bool = False  # an earlier answer, repeated
    http_status: int | None = None
    waiting_on: tuple[str, ...] = ()  # unapproved Terminate events that hold this one back


class StatusData(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`data` of an agent status CloudEvent: the retained one, and the last will."""

    status: Literal["online", "offline", "blind"]
    vm: Vm
    version: str
    last_poll: str = ""  # RFC 3339
    document_incarnation: int | None = None
    pending: int | None = None
    outbox: int | None = None
    approvals: str = ""  # enforce, shadow or refused (no durable ledger)
    commands: str = ""  # signed, unsigned or none


def rfc3339(moment: datetime) -> str:
    """With milliseconds. msgspec knows the format, too, and needs a quarter of isoformat's time."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    text: str = msgspec.to_builtins(utc)
    return f"{text[:23]}Z" if moment.microsecond else f"{text[:19]}.000Z"


def source_of(vm: Vm) -> str:
    """Never empty, as CloudEvents demands, though IMDS does not always name the resource."""
    return vm.resource_id or f"/virtualMachines/{quote(vm.vm_id or vm.name, safe='')}"


def from_transition(
    transition: Transition,
    document: Document,
    *,
    vm: Vm,
    leader: bool,
    approval: ApprovalInfo,
    now: datetime,
) -> CloudEvent:
    scheduled_event = transition.scheduled_event
    not_before = scheduled_event.not_before
    data = EventData(
        transition=transition.kind,
        event=scheduled_event.raw,
        previous=transition.previous.raw if transition.changed and transition.previous else None,
        changed=transition.changed,
        document_incarnation=document.incarnation,
        vm=vm,
        not_before=rfc3339(not_before) if not_before else "",
        leader=leader,
        approval=approval,
        ended=transition.ending,
    )
    return _draft(
        EVENT_TYPE.format(transition.kind), vm, now, data, subject=scheduled_event.event_id
    )


def from_outcome(outcome: OutcomeData, *, vm: Vm, now: datetime) -> CloudEvent:
    return _draft(
        OUTCOME_TYPES[outcome.status],
        vm,
        now,
        outcome,
        subject=outcome.event_id,
        causationid=outcome.command_id,
    )


def from_status(status: StatusData, *, identifier: str, now: datetime) -> CloudEvent:
    """Status is not durable: it describes now, so it brings its own id and no sequence."""
    draft = _draft(STATUS_TYPE, status.vm, now, status)
    return msgspec.structs.replace(draft, id=identifier)


def stamp(draft: CloudEvent, *, ledger_id: str, sequence: int) -> CloudEvent:
    """Give a draft its place in the order, and an id that no other ledger can give."""
    return msgspec.structs.replace(
        draft,
        id=f"{ledger_id}.{sequence}",
        sequence=str(sequence).zfill(_SEQUENCE_DIGITS),
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Received)


def encode(event: CloudEvent) -> bytes:
    """Structured JSON."""
    return _encoder.encode(event)


def decode(structured: bytes) -> Received:
    """Read back what `encode` wrote."""
    return _decoder.decode(structured)


def attributes(event: CloudEvent) -> dict[str, str]:
    """Every attribute but `datacontenttype`, for the binary form of any transport."""
    names = (name for name in event.__struct_fields__ if name not in {"data", "datacontenttype"})
    return {name: value for name in names if (value := getattr(event, name))}


def approval_state(structured: bytes) -> str:
    """What an event's CloudEvent says of its approval."""
    return msgspec.json.decode(decode(structured).data, type=EventData).approval.state


def as_replay(structured: bytes) -> bytes:
    """A stored answer, marked as repeated; the id and all else stay."""
    event = decode(structured)
    outcome = msgspec.json.decode(event.data, type=OutcomeData)
    outcome = msgspec.structs.replace(outcome, replay=True)
    return encode(msgspec.structs.replace(event, data=msgspec.Raw(_encoder.encode(outcome))))


def _draft(
    type_: str,
    vm: Vm,
    now: datetime,
    data: msgspec.Struct,
    *,
    subject: str = "",
    causationid: str = "",
) -> CloudEvent:
    return CloudEvent(
        specversion="1.0",
        source=source_of(vm),
        type=type_,
        subject=subject,
        time=rfc3339(now),
        partitionkey=vm.name,
        correlationid=subject,
        causationid=causationid,
        datacontenttype=JSON_CONTENT_TYPE,
        data=data,
    )
