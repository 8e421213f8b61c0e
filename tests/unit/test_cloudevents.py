"""CloudEvents are written to the letter."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from bridge.core import cloudevents
from bridge.core.cloudevents import ApprovalInfo, CloudEvent, OutcomeData, StatusData, Vm
from bridge.core.diff import Circumstances, Ending, diff
from tests.builders import EVENT_ID, NOW, document, scheduled_event

RESOURCE_ID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/web_3"
VM = Vm(name="web_3", vm_id="v-1", resource_id=RESOURCE_ID, scale_set="web", zone="1", location="x")
CALM = Circumstances(now=NOW, gap=False)
VM_JSON = {
    "name": "web_3",
    "vmId": "v-1",
    "resourceId": RESOURCE_ID,
    "scaleSet": "web",
    "zone": "1",
    "location": "x",
}


def event_of(previous: Any, current: Any, state: str = "none") -> CloudEvent:
    (transition,) = diff(previous, current, CALM)
    return cloudevents.from_transition(
        transition,
        current,
        vm=VM,
        leader=True,
        approval=ApprovalInfo(topic="root/commands", token="t", state=state),
        now=NOW,
    )


def stamped(draft: CloudEvent) -> bytes:
    return cloudevents.encode(cloudevents.stamp(draft, ledger_id="L", sequence=42))


SCHEDULED = event_of(None, document(scheduled_event()))
OUTCOME = cloudevents.from_outcome(
    OutcomeData(
        status="rejected",
        reason="too-old",
        detail="400 s old",
        rule="default",
        event_id=EVENT_ID,
        command_id="c-1",
        idempotency_key="chg-4711",
        requested_by="/ops/oncall",
        http_status=400,
        waiting_on=("b",),
    ),
    vm=VM,
    now=NOW,
)
STATUS = cloudevents.from_status(
    StatusData(
        status="online",
        vm=VM,
        version="1",
        last_poll="2026-11-18T06:00:00.000Z",
        document_incarnation=7,
        pending=0,
        outbox=0,
        approvals="enforce",
        commands="unsigned",
    ),
    identifier="status-1",
    now=NOW,
)


def test_encode_scheduled_event_golden() -> None:
    """A scheduled event reads as the contract says, key for key and in order."""
    expected = {
        "specversion": "1.0",
        "id": "L.42",
        "source": RESOURCE_ID,
        "type": "io.sebridge.event.scheduled.v1",
        "subject": EVENT_ID,
        "time": "2026-11-18T06:00:00.000Z",
        "sequence": "00000000000000000042",
        "partitionkey": "web_3",
        "correlationid": EVENT_ID,
        "datacontenttype": "application/json",
        "data": {
            "transition": "scheduled",
            "event": {"EventId": EVENT_ID, "EventStatus": "Scheduled"},
            "documentIncarnation": 7,
            "vm": VM_JSON,
            "notBefore": "2026-11-18T06:15:00.000Z",
            "leader": True,
            "approval": {"topic": "root/commands", "token": "t", "state": "none"},
        },
    }

    assert stamped(SCHEDULED).decode() == json.dumps(expected, separators=(",", ":"))


def test_approval_state_is_read_back_from_an_event() -> None:
    """What was published last tells how an event began."""
    assert cloudevents.approval_state(stamped(SCHEDULED)) == "none"


def test_encode_outcome_golden() -> None:
    """An outcome names the command that caused it."""
    expected = {
        "specversion": "1.0",
        "id": "L.42",
        "source": RESOURCE_ID,
        "type": "io.sebridge.approval.rejected.v1",
        "subject": EVENT_ID,
        "time": "2026-11-18T06:00:00.000Z",
        "sequence": "00000000000000000042",
        "partitionkey": "web_3",
        "correlationid": EVENT_ID,
        "causationid": "c-1",
        "datacontenttype": "application/json",
        "data": {
            "status": "rejected",
            "reason": "too-old",
            "detail": "400 s old",
            "rule": "default",
            "eventId": EVENT_ID,
            "commandId": "c-1",
            "idempotencyKey": "chg-4711",
            "requestedBy": "/ops/oncall",
            "httpStatus": 400,
            "waitingOn": ["b"],
        },
    }

    assert stamped(OUTCOME).decode() == json.dumps(expected, separators=(",", ":"))


def test_encode_status_golden() -> None:
    """A status has its own id, no sequence, and says zero where it is zero."""
    expected = {
        "specversion": "1.0",
        "id": "status-1",
        "source": RESOURCE_ID,
        "type": "io.sebridge.agent.status.v1",
        "time": "2026-11-18T06:00:00.000Z",
        "partitionkey": "web_3",
        "datacontenttype": "application/json",
        "data": {
            "status": "online",
            "vm": VM_JSON,
            "version": "1",
            "lastPoll": "2026-11-18T06:00:00.000Z",
            "documentIncarnation": 7,
            "pending": 0,
            "outbox": 0,
            "approvals": "enforce",
            "commands": "unsigned",
        },
    }

    assert cloudevents.encode(STATUS).decode() == json.dumps(expected, separators=(",", ":"))


def test_from_transition_update_shows_what_changed() -> None:
    """An update carries the entry before it and Azure's names of what changed."""
    before = scheduled_event(raw={"old": 1})
    now = scheduled_event(event_status="Started", not_before=None, raw={"new": 1})

    update = event_of(document(before), document(now), "foreign")
    data = json.loads(stamped(update))["data"]

    assert data["previous"] == {"old": 1}
    assert data["changed"] == ["EventStatus", "NotBefore"]
    assert data["approval"]["state"] == "foreign"
    assert "notBefore" not in data


def test_from_transition_end_says_why() -> None:
    """An end carries its reason and certainty, and no previous entry."""
    data = json.loads(stamped(event_of(document(scheduled_event()), document())))["data"]
    expected = Ending("gone before NotBefore, never started", "inferred")

    assert data["ended"] == msgspec.to_builtins(expected)
    assert "previous" not in data


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("approved", "io.sebridge.approval.approved.v1"),
        ("confirmed", "io.sebridge.approval.confirmed.v1"),
        ("rejected", "io.sebridge.approval.rejected.v1"),
        ("in-doubt", "io.sebridge.approval.indoubt.v1"),
    ],
)
def test_from_outcome_type_follows_the_status(status: Any, expected: str) -> None:
    """Each status has its own type, and an outcome without an event has no subject."""
    draft = cloudevents.from_outcome(OutcomeData(status=status), vm=VM, now=NOW)

    assert (draft.type, "subject" in cloudevents.attributes(draft)) == (expected, False)


def test_stamp_same_input_gives_the_same_bytes() -> None:
    """A resend cannot be told from the first."""
    assert stamped(SCHEDULED) == stamped(event_of(None, document(scheduled_event())))


def test_decode_reads_back_what_encode_wrote() -> None:
    """The outbox keeps bytes; nothing is lost in them."""
    structured = stamped(OUTCOME)

    assert cloudevents.encode(cloudevents.decode(structured)) == structured


def test_as_replay_marks_the_answer_and_keeps_its_id() -> None:
    """A repeated answer differs in one key only."""
    expected = msgspec.json.decode(stamped(OUTCOME))
    expected["data"]["replay"] = True

    assert msgspec.json.decode(cloudevents.as_replay(stamped(OUTCOME))) == expected


def test_rfc3339_any_zone_becomes_utc_with_milliseconds() -> None:
    """Times are written in one form only."""
    moment = datetime(2026, 11, 18, 8, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=2)))

    assert cloudevents.rfc3339(moment) == "2026-11-18T06:00:00.123Z"


@pytest.mark.parametrize(
    ("vm", "expected"),
    [
        (VM, RESOURCE_ID),
        (Vm(name="web_3", vm_id="v-1"), "/virtualMachines/v-1"),
        (Vm(name="web_3"), "/virtualMachines/web_3"),
    ],
)
def test_source_is_never_empty(vm: Vm, expected: str) -> None:
    """CloudEvents demand a source, whatever IMDS leaves out."""
    status = StatusData(status="online", vm=vm, version="1")

    assert cloudevents.from_status(status, identifier="i", now=NOW).source == expected
