"""The decision on a command: an ordered list of checks, the first that fails gives the reason."""

from datetime import datetime

from bridge.core.approvals import (
    Approve,
    Decision,
    Reject,
    Replay,
    Rules,
    Situation,
    Wait,
    is_leader,
)
from bridge.core.commands import Command
from bridge.core.document import Document, ScheduledEvent, folded
from bridge.core.policy import Verdict, evaluate


def decide(command: Command, situation: Situation, rules: Rules) -> Decision:
    """The checks in their order; the first that fails gives the reason."""
    if situation.key_fingerprint is not None:
        if situation.key_fingerprint == command.fingerprint:
            return Replay()
        return Reject("key-reused", "this idempotency key came with another body before")
    early = (
        _check_address(command, rules)
        or _check_age(command, situation.now, rules)
        or _check_lifetime(command, rules)
        or _check_ledger(command, situation)
    )
    if early:
        return early
    if situation.document is None:
        return Wait()
    scheduled_event = situation.document.find(command.event_id)
    if scheduled_event is None:
        return Reject("unknown-event", "the current document has no such event")
    return _judge(command, scheduled_event, situation, rules)


def check_audience(command: Command, rules: Rules) -> Reject | None:
    """A signed command speaks to one VM: on any other it uses up no key.

    Otherwise whoever can repeat messages could spend, on this VM, the key of a command that was
    signed for another.
    """
    if not command.signed_by:
        return None
    if not command.vm:
        return Reject("malformed", "a signed command must name its VM in data.vm")
    return _check_address(command, rules)


def recheck(
    entry_event: ScheduledEvent, document: Document, rules: Rules, *, durable: bool = True
) -> Reject | None:
    """Just before the POST: is the event still the one that was decided on?"""
    if not durable:
        return Reject("history-unknown", "the ledger cannot be written")
    current = document.find(entry_event.event_id)
    if current is None:
        return Reject("unknown-event", "the event is gone from the document")
    if not current.is_scheduled:
        return Reject("already-started", f"the event is {current.event_status or 'in no state'}")
    if current.event_type != entry_event.event_type:
        return Reject("type-changed", f"now {current.event_type}, was {entry_event.event_type}")
    if folded(current.resources) != folded(entry_event.resources):
        return Reject("resources-changed", f"now {', '.join(current.resources)}")
    return _check_policy(evaluate(rules.policy, current)) or _check_mode(rules, "")


def _check_address(command: Command, rules: Rules) -> Reject | None:
    if command.vm and command.vm.casefold() != rules.vm_name.casefold():
        return Reject("wrong-vm", f"the command is for {command.vm}, this is {rules.vm_name}")
    return None


def _check_age(command: Command, now: datetime, rules: Rules) -> Reject | None:
    if command.expires_at is not None and now >= command.expires_at:
        return Reject("expired", f"expirytime was {command.expires_at.isoformat()}")
    if command.time is None:
        return None
    age_s = (now - command.time).total_seconds()
    if command.expires_at is None and age_s > rules.max_age_s:
        return Reject("too-old", f"{age_s:.0f} s old, more than {rules.max_age_s:.0f}")
    if -age_s > rules.max_age_s:
        return Reject("malformed", f"time is {-age_s:.0f} s in the future")
    return None


def _check_lifetime(command: Command, rules: Rules) -> Reject | None:
    """A signature must not be good for ever: somebody may keep the message."""
    if not command.signed_by:
        return None
    if command.time is None or command.expires_at is None:
        return Reject("malformed", "a signed command must have time and expirytime")
    lifetime_s = (command.expires_at - command.time).total_seconds()
    if lifetime_s > rules.signed_lifetime_s_max:
        most = f"{rules.signed_lifetime_s_max:.0f}"
        return Reject("malformed", f"expirytime is {lifetime_s:.0f} s after time, {most} at most")
    return None


def _check_ledger(command: Command, situation: Situation) -> Reject | None:
    if not situation.durable:
        return Reject("history-unknown", "the ledger cannot be written: approvals are off")
    entry = situation.entry
    if entry is None or entry.state == "rejected":
        return None
    if entry.state == "in-doubt":
        if "in-doubt" in command.override:
            return None
        return Reject("in-doubt", f"an earlier approval under key {entry.key!r} is in doubt")
    is_under_way = entry.state in {"accepted", "sending"}
    word = "is being approved" if is_under_way else "approved"
    return Reject("already-approved", f"{word} under key {entry.key!r}")


def _judge(
    command: Command, scheduled_event: ScheduledEvent, situation: Situation, rules: Rules
) -> Approve | Reject:
    verdict = evaluate(rules.policy, scheduled_event)
    refusal = (
        _check_event(scheduled_event, rules)
        or _check_history(command, situation, rules)
        or _check_expectations(command, scheduled_event)
        or _check_token(command, situation, rules)
        or _check_leader(command, scheduled_event, rules)
        or _check_policy(verdict)
        or _check_rate(situation, rules)
        or _check_mode(rules, verdict.rule)
    )
    if refusal:
        return refusal
    doubted = situation.entry is not None and situation.entry.state == "in-doubt"
    return Approve(scheduled_event, verdict.rule, overrides_doubt=doubted)


def _check_event(scheduled_event: ScheduledEvent, rules: Rules) -> Reject | None:
    if not scheduled_event.names(rules.vm_name):
        return Reject("not-this-vm", f"it concerns {', '.join(scheduled_event.resources)}")
    if not scheduled_event.is_scheduled:
        state = scheduled_event.event_status or "in no state"
        return Reject("already-started", f"the event is {state}")
    return None


def _check_history(command: Command, situation: Situation, rules: Rules) -> Reject | None:
    if "history" in command.override or not situation.fenced:
        return None
    if rules.fence_first_document or situation.ledger_lost:
        return Reject("history-unknown", "the event is older than this ledger")
    return None


def _check_expectations(command: Command, scheduled_event: ScheduledEvent) -> Reject | None:
    if command.expect_type not in (None, scheduled_event.event_type):
        return Reject("type-changed", f"the event is a {scheduled_event.event_type}")
    expected = command.expect_resources
    if expected is not None and folded(expected) != folded(scheduled_event.resources):
        return Reject("resources-changed", f"it concerns {', '.join(scheduled_event.resources)}")
    return None


def _check_token(command: Command, situation: Situation, rules: Rules) -> Reject | None:
    if command.token is None and not rules.require_token:
        return None
    if command.token != situation.token or not situation.token:
        return Reject("wrong-token", "the token is not the one published with this event")
    return None


def _check_leader(command: Command, scheduled_event: ScheduledEvent, rules: Rules) -> Reject | None:
    if len(folded(scheduled_event.resources)) <= 1 or rules.multi_vm == "any":
        return None
    if rules.multi_vm == "refuse":
        return Reject("policy-denied", "it concerns several VMs", rule="multi_vm")
    if "leader" in command.override or is_leader(scheduled_event, rules.vm_name):
        return None
    leader = min(scheduled_event.resources, key=str.casefold)
    return Reject("not-leader", f"{leader} approves for all VMs of this event")


def _check_policy(verdict: Verdict) -> Reject | None:
    if verdict.action == "deny":
        return Reject("policy-denied", "a rule refuses approvals of this event", rule=verdict.rule)
    return None


def _check_rate(situation: Situation, rules: Rules) -> Reject | None:
    if situation.accepted_lately >= rules.per_minute_max:
        return Reject("rate-limited", f"{situation.accepted_lately} approvals within a minute")
    return None


def _check_mode(rules: Rules, rule: str) -> Reject | None:
    if rules.mode == "shadow":
        return Reject("shadow", "it would have been approved; mode is shadow", rule=rule)
    return None
