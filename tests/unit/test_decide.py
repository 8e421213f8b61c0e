"""The decision as a table: each reason, the order of the checks, every ledger state."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bridge.core.approvals import Approve, Entry, Reject, Replay, Rules, Situation, Wait, waiting_on
from bridge.core.commands import Command
from bridge.core.decide import decide, recheck
from bridge.core.document import Document, ScheduledEvent
from bridge.core.policy import Rule

NOW = datetime(2026, 11, 18, tzinfo=UTC)
REBOOT = ScheduledEvent(
    event_id="E1", event_type="Reboot", resources=("web_3",), event_status="Scheduled"
)
COMMAND = Command(id="c", source="/ops", key="k", fingerprint="f", event_id="e1")
RULES = Rules(vm_name="WEB_3")


def situation(scheduled_event: ScheduledEvent = REBOOT, **fields: Any) -> Situation:
    document = Document(incarnation=1, scheduled_events=(scheduled_event,))
    values: dict[str, Any] = {"now": NOW, "document": document, "token": "t", **fields}
    return Situation(**values)


def event(**fields: Any) -> ScheduledEvent:
    return msgspec.structs.replace(REBOOT, **fields)


def command(**fields: Any) -> Command:
    return msgspec.structs.replace(COMMAND, **fields)


def rules(**fields: Any) -> Rules:
    return msgspec.structs.replace(RULES, **fields)


def test_good_command_is_approved() -> None:
    """Nothing stands against it, and the default rule lets people decide."""
    assert Approve(REBOOT, "default") == decide(COMMAND, situation(), RULES)


@pytest.mark.parametrize(
    ("expected", "given", "found", "ruled"),
    [
        ("key-reused", {}, {"key_fingerprint": "other"}, {}),
        ("wrong-vm", {"vm": "web_30"}, {}, {}),
        ("expired", {"expires_at": NOW}, {}, {}),
        ("too-old", {"time": NOW - timedelta(seconds=301)}, {}, {}),
        ("malformed", {"time": NOW + timedelta(seconds=301)}, {}, {}),
        ("history-unknown", {}, {"durable": False}, {}),
        ("unknown-event", {"event_id": "other"}, {}, {}),
        ("not-this-vm", {}, {"scheduled_event": event(resources=("web_33",))}, {}),
        ("already-started", {}, {"scheduled_event": event(event_status="Started")}, {}),
        ("history-unknown", {}, {"fenced": True}, {"fence_first_document": True}),
        ("history-unknown", {}, {"fenced": True, "ledger_lost": True}, {}),
        ("type-changed", {"expect_type": "Freeze"}, {}, {}),
        ("resources-changed", {"expect_resources": ("web_3", "web_4")}, {}, {}),
        ("wrong-token", {"token": "guess"}, {}, {}),
        ("wrong-token", {}, {}, {"require_token": True}),
        ("not-leader", {}, {"scheduled_event": event(resources=("web_3", "web_1"))}, {}),
        ("policy-denied", {}, {"scheduled_event": event(event_type="Melt")}, {}),
        ("policy-denied", {}, {}, {"policy": (Rule(name="no", action="deny"),)}),
        ("shadow", {}, {}, {"mode": "shadow"}),
    ],
)
def test_each_check_gives_its_reason(
    expected: str, given: dict[str, Any], found: dict[str, Any], ruled: dict[str, Any]
) -> None:
    """One thing wrong, one reason."""
    decision = decide(command(**given), situation(**found), rules(**ruled))

    assert isinstance(decision, Reject)
    assert expected == decision.reason


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("accepted", "already-approved"),
        ("sending", "already-approved"),
        ("approved", "already-approved"),
        ("confirmed", "already-approved"),
        ("in-doubt", "in-doubt"),
        ("rejected", None),
    ],
)
def test_ledger_speaks_before_the_document(state: Any, expected: str | None) -> None:
    """Only what provably did not count may be approved again under another key."""
    decision = decide(
        COMMAND, situation(entry=Entry(event_id="E1", state=state, key="first")), RULES
    )

    assert expected == (decision.reason if isinstance(decision, Reject) else None)


def test_doubt_is_overridden_by_a_person() -> None:
    """The approval says that it leaves a doubt behind."""
    doubt = Entry(event_id="E1", state="in-doubt", key="first")
    decision = decide(command(override=frozenset({"in-doubt"})), situation(entry=doubt), RULES)

    assert Approve(REBOOT, "default", overrides_doubt=True) == decision


def test_same_command_again_is_a_replay_even_when_expired() -> None:
    """A command has one answer, whenever it comes again."""
    again = command(expires_at=NOW - timedelta(days=1))

    assert Replay() == decide(again, situation(key_fingerprint="f"), RULES)


def test_no_fresh_document_means_wait() -> None:
    """Nothing is decided on an old document."""
    assert Wait() == decide(COMMAND, situation(document=None), RULES)


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (event(), None),
        (event(event_id="E2"), "unknown-event"),
        (event(event_status="Started"), "already-started"),
        (event(event_type="Redeploy"), "type-changed"),
        (event(resources=("web_3", "web_4")), "resources-changed"),
    ],
)
def test_recheck_before_the_post(current: ScheduledEvent, expected: str | None) -> None:
    """The event posted is the event decided on."""
    refusal = recheck(REBOOT, Document(incarnation=2, scheduled_events=(current,)), RULES)

    assert expected == (refusal.reason if refusal else None)


def test_waiting_on_names_unapproved_terminates() -> None:
    """Azure deletes none before all are approved."""
    first, second, third = (event(event_id=i, event_type="Terminate") for i in ("a", "b", "c"))
    document = Document(incarnation=1, scheduled_events=(first, second, third, REBOOT))

    assert ("c",) == waiting_on(first, document, {"b"})
    assert () == waiting_on(REBOOT, document, ())
