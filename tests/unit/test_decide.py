"""Every cell of the decision, every reason it can give, and the order of its checks."""

from datetime import datetime, timedelta
from itertools import combinations_with_replacement, product
from typing import Any, get_args

import pytest

from bridge.core.approvals import (
    MOVES,
    Approve,
    Decision,
    Entry,
    Mode,
    MultiVm,
    Reject,
    Replay,
    Rules,
    Situation,
    State,
    Wait,
    deadline,
    is_leader,
    post_result,
    waiting_on,
)
from bridge.core.decide import check_audience, decide, recheck
from bridge.core.document import ScheduledEvent
from bridge.core.policy import Action, Rule
from tests.builders import EVENT_ID, NOW, VM_NAME, command, document, scheduled_event

STATES: tuple[State | None, ...] = (None, *get_args(State))
STATUSES = ("Scheduled", "Started", "Paused", "", None)  # None: not in the document
ACTIONS: tuple[Action, ...] = get_args(Action)
MODES: tuple[Mode, ...] = get_args(Mode)


def rules(**overrides: Any) -> Rules:
    fields: dict[str, Any] = {"vm_name": VM_NAME}
    return Rules(**(fields | overrides))


def situation(*scheduled_events: ScheduledEvent, **overrides: Any) -> Situation:
    found = document(*(scheduled_events or (scheduled_event(),)))
    fields: dict[str, Any] = {"now": NOW, "document": found}
    return Situation(**(fields | overrides))


def entry(state: State) -> Entry:
    return Entry(event_id=EVENT_ID, state=state, key="first")


def name_of(decision: Decision) -> str:
    return decision.reason if isinstance(decision, Reject) else type(decision).__name__


def expected_cell(
    state: State | None, status: str | None, action: Action, mode: Mode, overrides: bool
) -> str:
    """The contract in words of its own: the ledger, the event, the policy, the mode."""
    if state == "in-doubt" and not overrides:
        return "in-doubt"
    if state in {"accepted", "sending", "approved", "confirmed"}:
        return "already-approved"
    if status is None:
        return "unknown-event"
    if status != "Scheduled":
        return "already-started"
    if action == "deny":
        return "policy-denied"
    return "shadow" if mode == "shadow" else "Approve"


@pytest.mark.parametrize(
    ("state", "status", "action", "mode", "overrides"),
    list(product(STATES, STATUSES, ACTIONS, MODES, (False, True))),
)
def test_decide_every_cell(
    state: State | None, status: str | None, action: Action, mode: Mode, overrides: bool
) -> None:
    """Ledger state, event status, verdict and mode give one known answer each."""
    event = scheduled_event(
        event_id="other" if status is None else EVENT_ID, event_status=status or ""
    )
    known = situation(event, entry=entry(state) if state else None)
    configured = rules(mode=mode, policy=(Rule(name="r", action=action),))
    asked = command(override=frozenset({"in-doubt"} if overrides else ()))

    actual = decide(asked, known, configured)

    assert name_of(actual) == expected_cell(state, status, action, mode, overrides)
    if isinstance(actual, Approve):
        assert actual == Approve(event, "r", overrides_doubt=state == "in-doubt")


OTHER_TYPE = {"expect_type": "Terminate"}
OTHER_NAMES = {"expect_resources": ("web_3", "web_4")}
TWO = scheduled_event(resources=("web_3", "Web_1"))
SIGNED = {"signed_by": "k", "expires_at": NOW + timedelta(minutes=1)}
DENY = (Rule(name="no", action="deny"),)

# Each row spoils one thing; the rows stand in the order of the checks.
CHECKS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("key-reused", {}, {"key_fingerprint": "f-0"}, {}),
    ("wrong-vm", {"vm": "web_4"}, {}, {}),
    ("expired", {"expires_at": NOW}, {}, {}),
    ("malformed", {"signed_by": "k"}, {}, {}),
    ("history-unknown", {}, {"durable": False}, {}),
    ("already-approved", {}, {"entry": entry("sending")}, {}),
    ("Wait", {}, {"document": None}, {}),
    ("unknown-event", {}, {"document": document()}, {}),
    ("not-this-vm", {}, {"document": document(scheduled_event(resources=("web_30",)))}, {}),
    ("already-started", {}, {"document": document(scheduled_event(event_status="Started"))}, {}),
    ("history-unknown", {}, {"fenced": True}, {"fence_first_document": True}),
    ("type-changed", OTHER_TYPE, {}, {}),
    ("resources-changed", OTHER_NAMES, {}, {}),
    ("wrong-token", {"token": "no"}, {"token": "yes"}, {}),
    ("not-leader", {}, {"document": document(TWO)}, {}),
    ("policy-denied", {}, {}, {"policy": DENY}),
    ("rate-limited", {}, {"accepted_lately": 30}, {}),
    ("shadow", {}, {}, {"mode": "shadow"}),
]


@pytest.mark.parametrize(
    ("first", "second"), list(combinations_with_replacement(range(len(CHECKS)), 2))
)
def test_decide_of_two_faults_the_earlier_gives_the_reason(first: int, second: int) -> None:
    """The checks have one order, so the same command always gets the same reason."""
    reason, *spoilt = CHECKS[first]
    asked, known, configured = (
        later | earlier for later, earlier in zip(CHECKS[second][1:], spoilt, strict=True)
    )

    actual = decide(command(**asked), situation(**known), rules(**configured))

    assert name_of(actual) == reason


@pytest.mark.parametrize(
    ("asked", "known", "configured", "expected"),
    [
        ({}, {}, {}, "Approve"),
        ({}, {"key_fingerprint": "f-1", "durable": False}, {}, "Replay"),
        ({"vm": "WEB_3"}, {}, {}, "Approve"),
        ({"event_id": EVENT_ID.lower()}, {}, {}, "Approve"),
        ({"time": None}, {}, {}, "Approve"),
        ({"time": NOW - timedelta(seconds=300)}, {}, {}, "Approve"),
        ({"time": NOW - timedelta(seconds=301)}, {}, {}, "too-old"),
        ({"time": NOW + timedelta(seconds=300)}, {}, {}, "Approve"),
        ({"time": NOW + timedelta(seconds=301)}, {}, {}, "malformed"),
        ({"time": NOW - timedelta(days=1), "expires_at": NOW + timedelta(1)}, {}, {}, "Approve"),
        ({"time": None, "expires_at": NOW - timedelta(1)}, {}, {}, "expired"),
        ({}, {"fenced": True}, {}, "Approve"),
        ({}, {"fenced": True, "ledger_lost": True}, {}, "history-unknown"),
        ({}, {"ledger_lost": True}, {"fence_first_document": True}, "Approve"),
        (
            {"override": frozenset({"history"})},
            {"fenced": True, "ledger_lost": True},
            {"fence_first_document": True},
            "Approve",
        ),
        ({"expect_type": "Reboot", "expect_resources": ("WEB_3",)}, {}, {}, "Approve"),
        ({"expect_type": ""}, {}, {}, "type-changed"),
        ({"expect_resources": ()}, {}, {}, "resources-changed"),
        ({"token": "t"}, {"token": "t"}, {"require_token": True}, "Approve"),
        ({}, {"token": "t"}, {"require_token": True}, "wrong-token"),
        ({}, {"token": ""}, {"require_token": True}, "wrong-token"),
        ({"token": ""}, {"token": ""}, {}, "wrong-token"),
        ({}, {"token": "t"}, {}, "Approve"),
        ({}, {"accepted_lately": 29}, {}, "Approve"),
        ({}, {"accepted_lately": 3}, {"per_minute_max": 3}, "rate-limited"),
        ({}, {"accepted_lately": 3}, {"per_minute_max": 3, "mode": "shadow"}, "rate-limited"),
        (SIGNED, {}, {}, "Approve"),
        (SIGNED | {"time": None}, {}, {}, "malformed"),
        (SIGNED | {"expires_at": None}, {}, {}, "malformed"),
        (SIGNED | {"expires_at": NOW + timedelta(minutes=14)}, {}, {}, "Approve"),
        (SIGNED | {"expires_at": NOW + timedelta(minutes=14, seconds=1)}, {}, {}, "malformed"),
        (SIGNED, {}, {"signed_lifetime_s_max": 119}, "malformed"),
    ],
)
def test_decide_edges(
    asked: dict[str, Any], known: dict[str, Any], configured: dict[str, Any], expected: str
) -> None:
    """Each check ends exactly where it says."""
    actual = decide(command(**asked), situation(**known), rules(**configured))

    assert name_of(actual) == expected


@pytest.mark.parametrize(
    ("signed_by", "vm", "expected"),
    [
        ("", "", None),
        ("", "web_4", None),
        ("k", "WEB_3", None),
        ("k", "web_4", "wrong-vm"),
        ("k", "web_30", "wrong-vm"),
        ("k", "", "malformed"),
    ],
)
def test_check_audience_a_signature_speaks_to_one_vm(
    signed_by: str, vm: str, expected: str | None
) -> None:
    """A signed command names its VM, or nobody listens."""
    actual = check_audience(command(signed_by=signed_by, vm=vm), rules())

    assert (actual.reason if actual else None) == expected


@pytest.mark.parametrize(
    ("multi_vm", "resources", "override", "expected"),
    [
        ("leader", ("web_3",), (), "Approve"),
        ("leader", ("WEB_4", "Web_3"), (), "Approve"),
        ("leader", ("web_3", "WEB_3"), (), "Approve"),
        ("leader", ("web_3", "web_10"), (), "not-leader"),
        ("leader", ("web_3", "web_10"), ("leader",), "Approve"),
        ("any", ("web_3", "web_10"), (), "Approve"),
        ("refuse", ("web_3", "web_10"), ("leader",), "policy-denied"),
        ("refuse", ("web_3",), (), "Approve"),
    ],
)
def test_decide_events_of_several_vms(
    multi_vm: MultiVm, resources: tuple[str, ...], override: tuple[str, ...], expected: str
) -> None:
    """One VM approves for all, unless the configuration says otherwise."""
    known = situation(scheduled_event(resources=resources))

    actual = decide(command(override=frozenset(override)), known, rules(multi_vm=multi_vm))

    assert name_of(actual) == expected


def test_decide_rejections_name_the_rule() -> None:
    """An outcome carries the rule that spoke."""
    denied = decide(command(), situation(), rules(policy=DENY))
    shadowed = decide(command(), situation(), rules(mode="shadow"))
    several = decide(command(), situation(TWO), rules(multi_vm="refuse"))

    assert [d.rule for d in (denied, shadowed, several) if isinstance(d, Reject)] == [
        "no",
        "default",
        "multi_vm",
    ]


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        ("accepted", "is being approved under key 'first'"),
        ("sending", "is being approved under key 'first'"),
        ("approved", "approved under key 'first'"),
        ("confirmed", "approved under key 'first'"),
    ],
)
def test_decide_already_approved_says_how_far_it_is(state: State, detail: str) -> None:
    """What is only on its way may still come to nothing: nobody is told that it is done."""
    actual = decide(command(), situation(entry=entry(state)), rules())

    assert actual == Reject("already-approved", detail)


def test_decide_unknown_type_is_denied() -> None:
    """What a new type does to the machine is not known, so nobody approves it."""
    actual = decide(command(), situation(scheduled_event(event_type="Melt")), rules())

    assert (name_of(actual), getattr(actual, "rule", "")) == ("policy-denied", "unknown event type")


def test_decide_replay_and_wait_are_plain_values() -> None:
    """The same command again repeats, and without a document nothing is decided."""
    assert decide(command(), situation(key_fingerprint="f-1"), rules()) == Replay()
    assert decide(command(), situation(document=None), rules()) == Wait()


@pytest.mark.parametrize(
    ("current", "durable", "configured", "expected"),
    [
        ({}, True, {}, None),
        ({"resources": ("WEB_3",), "event_id": EVENT_ID.lower()}, True, {}, None),
        ({}, False, {}, "history-unknown"),
        ({"event_id": "other"}, True, {}, "unknown-event"),
        ({"event_status": "Started"}, True, {}, "already-started"),
        ({"event_status": ""}, True, {}, "already-started"),
        ({"event_type": "Terminate"}, True, {}, "type-changed"),
        ({"resources": ("web_3", "web_4")}, True, {}, "resources-changed"),
        ({}, True, {"policy": DENY}, "policy-denied"),
        ({}, True, {"mode": "shadow"}, "shadow"),
    ],
)
def test_recheck_refuses_an_event_that_is_no_longer_the_same(
    current: dict[str, Any], durable: bool, configured: dict[str, Any], expected: str | None
) -> None:
    """Between the decision and the POST the event may change."""
    now = document(scheduled_event(**current))

    actual = recheck(scheduled_event(), now, rules(**configured), durable=durable)

    assert (actual.reason if actual else None) == expected


@pytest.mark.parametrize(
    ("resources", "vm_name", "expected"),
    [
        (("web_3",), "WEB_3", True),
        (("web_3", "WEB_2"), "web_2", True),
        (("web_3", "WEB_2"), "web_3", False),
        ((), "web_3", False),
    ],
)
def test_is_leader_first_name_in_any_case(
    resources: tuple[str, ...], vm_name: str, expected: bool
) -> None:
    """All VMs of an event agree on the leader without talking."""
    assert is_leader(scheduled_event(resources=resources), vm_name) is expected


def test_waiting_on_names_unapproved_terminate_events() -> None:
    """Azure deletes none of them before all are approved."""
    mine, posted, other, started = (
        scheduled_event(event_id=name, event_type="Terminate") for name in ("M", "P", "O", "S")
    )
    started = scheduled_event(event_id="S", event_type="Terminate", event_status="Started")
    reboot = scheduled_event(event_id="R")
    found = document(mine, posted, other, started, reboot)

    assert waiting_on(mine, found, {"p"}) == ("O",)
    assert waiting_on(reboot, found, ()) == ()


@pytest.mark.parametrize(
    ("expires_at", "expected"),
    [(None, NOW + timedelta(seconds=300)), (NOW + timedelta(1), NOW + timedelta(1))],
)
def test_deadline_is_the_expiry_or_the_age(expires_at: datetime | None, expected: datetime) -> None:
    """A command without expirytime may be tried as long as it may be old."""
    assert deadline(command(expires_at=expires_at), NOW, rules()) == expected


def test_moves_lead_back_only_from_what_did_not_count() -> None:
    """Nothing leaves `approved` but to `confirmed`, and nothing leaves `confirmed`."""
    assert set(MOVES) == set(STATES)
    assert MOVES["approved"] == {"confirmed"}
    assert MOVES["confirmed"] == frozenset()
    assert {state for state, to in MOVES.items() if "accepted" in to} == {
        None,
        "sending",
        "in-doubt",
        "rejected",
    }


def test_post_result_of_every_status() -> None:
    """Only 200 approves, five refuse in so many words, and the rest proves nothing."""
    known = {200: "approved"} | dict.fromkeys((400, 403, 404, 405, 429), "rejected")
    statuses = (None, *range(100, 600))

    assert [known.get(s or 0, "in-doubt") for s in statuses] == [post_result(s) for s in statuses]
