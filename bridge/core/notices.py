"""What an agent said, as a consumer reads it: checked, bounded, and never trusted.

Whoever may publish to the broker may write these bytes. Unknown fields are ignored, so that newer
agents can be read; what does not fit the shape is no notice at all. Never raises.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from bridge.core.cloudevents import OUTCOME_TYPES, STATUS_TYPE
from bridge.core.strict_json import NotJson, decode_object

# An event that names a thousand VMs twice is half of this.
NOTICE_BYTES_MAX = 262_144
TYPE_PREFIX = "io.sebridge."
EVENT_TYPE_PREFIX = f"{TYPE_PREFIX}event."
ENDINGS = frozenset({"completed", "canceled", "ended"})

# Longer than anything Azure or an agent gives these; a Description is cut at 4096 by the agent.
Name = Annotated[str, Meta(max_length=512)]
Text = Annotated[str, Meta(max_length=8192)]
Names = Annotated[tuple[Name, ...], Meta(max_length=5000)]


class Attributes(Struct, frozen=True, kw_only=True):
    id: Name
    source: Name
    type: Name
    time: Name = ""
    sequence: Name = ""
    partitionkey: Name = ""  # the VM's name
    causationid: Name = ""


class VmNotice(Struct, frozen=True, kw_only=True, rename="camel"):
    name: Name
    scale_set: Name = ""
    zone: Name = ""
    location: Name = ""


class AzureEvent(Struct, frozen=True, kw_only=True, rename="pascal"):
    """The scheduled event in Azure's own words."""

    event_id: Name
    event_type: Name = ""
    event_status: Name = ""
    event_source: Name = ""
    resources: Names = ()
    description: Text = ""
    duration_in_seconds: int | float | None = None


class ApprovalNotice(Struct, frozen=True, kw_only=True):
    topic: Name = ""
    token: Name = ""
    state: Name = "none"


class EndingNotice(Struct, frozen=True, kw_only=True):
    because: Text = ""
    certainty: Name = ""


class EventNotice(Struct, frozen=True, kw_only=True, rename="camel"):
    """One VM's newest word about one scheduled event."""

    transition: Name
    event: AzureEvent
    vm: VmNotice
    not_before: Name = ""
    leader: bool = False
    approval: ApprovalNotice = ApprovalNotice()
    ended: EndingNotice | None = None

    @property
    def is_over(self) -> bool:
        return self.transition in ENDINGS


class OutcomeNotice(Struct, frozen=True, kw_only=True, rename="camel"):
    status: Name
    reason: Name = ""
    detail: Text = ""
    rule: Name = ""
    event_id: Name = ""
    command_id: Name = ""
    idempotency_key: Name = ""
    requested_by: Name = ""
    replay: bool = False
    http_status: int | None = None
    waiting_on: Names = ()


class StatusNotice(Struct, frozen=True, kw_only=True, rename="camel"):
    status: Name
    vm: VmNotice
    version: Name = ""
    pending: int | None = None
    outbox: int | None = None
    approvals: Name = ""
    commands: Name = ""


class Notice(Struct, frozen=True, kw_only=True):
    attributes: Attributes
    data: EventNotice | OutcomeNotice | StatusNotice


def decode(payload: bytes) -> Notice | None:
    """None for whatever is not a message of an agent."""
    try:
        fields = decode_object(payload, bytes_max=NOTICE_BYTES_MAX)
        attributes = msgspec.convert(fields, Attributes)
        shape = _shape(attributes.type)
        if shape is None:
            return None
        return Notice(attributes=attributes, data=msgspec.convert(fields.get("data"), shape))
    except (NotJson, msgspec.ValidationError):
        return None


def unknown(payload: bytes) -> Attributes | None:
    """The attributes of a message that an agent may send and this program does not know."""
    try:
        fields = decode_object(payload, bytes_max=NOTICE_BYTES_MAX)
        attributes = msgspec.convert(fields, Attributes)
    except (NotJson, msgspec.ValidationError):
        return None
    is_ours = attributes.type.startswith(TYPE_PREFIX) and _shape(attributes.type) is None
    return attributes if is_ours else None


def may_be_sent(agent: str, notice: Notice) -> bool:
    """An agent may name its own command topic, not another's.

    A feed calls an agent by its topic root or, where there are no topics, by its source.
    """
    data = notice.data
    if not isinstance(data, EventNotice) or not data.approval.topic:
        return False
    return agent == notice.attributes.source or data.approval.topic == f"{agent}/commands"


def _shape(type_: str) -> Any:
    if type_.startswith(EVENT_TYPE_PREFIX):
        return EventNotice
    if type_ in OUTCOME_TYPES.values():
        return OutcomeNotice
    return StatusNotice if type_ == STATUS_TYPE else None
