"""The approval state machine and the decision on a command.

Theory. Azure takes an approval as a licence to act at once on every VM of the event, and offers
no way back. So for each EventId the ledger holds one row, for ever, in one of these states:

    accepted    a command was found good; nothing has been sent
    sending     durable before the first byte leaves: from here on the POST may have counted
    approved    IMDS answered 200
    in-doubt    the POST may or may not have arrived (lost answer, crash, 5xx, redirect)
    rejected    it provably did not count: never sent, or refused with 400, 403, 404, 405
    confirmed   the event was then seen to start or to end

`MOVES` below is the whole machine; schema.sql holds the same table and refuses anything else, so
a mistake in the code cannot send twice either. Only two moves lead back to `accepted` after a
byte has left: a 429, which IMDS sends instead of acting, and a person who says
`override: ["in-doubt"]` (or `in_doubt = "repost"`); if that comes to nothing, the doubt remains.
"Still Scheduled" never resolves a doubt: Azure may be waiting for other tenants.

Rules: everything that decides about an approval is here and in decide.py; nothing in them knows
how a command came, how a POST is sent or where rows are kept. Decisions are values, not
exceptions.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from bridge.core.commands import Command
from bridge.core.document import TERMINATE, Document, ScheduledEvent, folded
from bridge.core.policy import Rule

State = Literal["accepted", "sending", "approved", "in-doubt", "rejected", "confirmed"]
MultiVm = Literal["leader", "any", "refuse"]
Mode = Literal["enforce", "shadow"]

Reason = Literal[
    "malformed",
    "bad-signature",
    "retained-command",
    "expired",
    "too-old",
    "wrong-vm",
    "unknown-event",
    "not-this-vm",
    "not-leader",
    "already-started",
    "already-approved",
    "key-reused",
    "resources-changed",
    "type-changed",
    "wrong-token",
    "history-unknown",
    "policy-denied",
    "shadow",
    "rate-limited",
    "imds-rejected",
    "imds-unreachable",
    "in-doubt",
]

MOVES: Mapping[State | None, frozenset[State]] = {
    None: frozenset({"accepted"}),
    "accepted": frozenset({"sending", "rejected", "in-doubt"}),
    "sending": frozenset({"approved", "in-doubt", "rejected", "accepted"}),
    "in-doubt": frozenset({"confirmed", "accepted"}),
    "rejected": frozenset({"accepted"}),
    "approved": frozenset({"confirmed"}),
    "confirmed": frozenset(),
}

# The POST of an event in one of these states is on its way, counted, or may have counted.
POSTED: frozenset[State] = frozenset({"sending", "approved", "in-doubt", "confirmed"})
# `per_minute_max` counts what was accepted within this.
RATE_WINDOW = timedelta(minutes=1)
# Answers of IMDS that say "not done", in so many words.
REFUSED_STATUSES = frozenset({400, 403, 404, 405})


PostResult = Literal["approved", "rejected", "in-doubt"]


def post_result(status: int | None) -> PostResult:
    """What a POST's status, or the lack of one, proves. Only a clear refusal is a refusal.

    A 3xx, 410 or 5xx does not say that nothing was applied. A 429 does; it may be tried again.
    """
    if status == 200:
        return "approved"
    if status == 429 or status in REFUSED_STATUSES:
        return "rejected"
    return "in-doubt"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows about one EventId."""

    event_id: str  # as IMDS spells it
    state: State
    key: str  # idempotency key of the command that holds it


class Approve(msgspec.Struct, frozen=True):
    scheduled_event: ScheduledEvent
    rule: str
    overrides_doubt: bool = False


class Reject(msgspec.Struct, frozen=True):
    reason: Reason
    detail: str = ""
    rule: str = ""


class Replay(msgspec.Struct, frozen=True):
    """The same command again: repeat the stored answer, or wait with the first for it."""


class Wait(msgspec.Struct, frozen=True):
    """No document fresh enough to decide on."""


Decision: TypeAlias = Approve | Reject | Replay | Wait


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The configured side of a decision."""

    vm_name: str
    max_age_s: float = 300
    signed_lifetime_s_max: float = 900
    per_minute_max: int = 30
    require_token: bool = False
    mode: Mode = "enforce"
    multi_vm: MultiVm = "leader"
    fence_first_document: bool = False
    policy: Sequence[Rule] = ()


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at the moment of deciding."""

    now: datetime
    document: Document | None  # None: none that is fresh
    entry: Entry | None = None  # the ledger's row for the command's EventId
    key_fingerprint: str | None = None  # of the command that used this key before
    token: str = ""  # published with the event
    fenced: bool = False  # pending already when the ledger was created
    ledger_lost: bool = False  # an earlier ledger was damaged: its history is unknown for sure
    durable: bool = True  # the ledger can be written
    accepted_lately: int = 0  # commands found good within RATE_WINDOW, as the ledger has it


def is_leader(scheduled_event: ScheduledEvent, vm_name: str) -> bool:
    """The one VM of several that may approve: the first name, sorted without regard to case."""
    return min(folded(scheduled_event.resources), default="") == vm_name.casefold()


def waiting_on(
    scheduled_event: ScheduledEvent, document: Document, posted: Collection[str]
) -> tuple[str, ...]:
    """Other Terminate events without an approval of ours: Azure deletes none before all."""
    if scheduled_event.event_type != TERMINATE:
        return ()
    return tuple(
        other.event_id
        for other in document.scheduled_events
        if other.event_type == TERMINATE
        and other.is_scheduled
        and other.key != scheduled_event.key
        and other.key not in posted
    )


def deadline(command: Command, received_at: datetime, rules: Rules) -> datetime:
    """Until when a good command may still be tried."""
    return command.expires_at or received_at + timedelta(seconds=rules.max_age_s)
