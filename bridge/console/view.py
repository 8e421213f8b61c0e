"""From records to what the page shows. Pure; every string in here is text, never markup."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bridge.console.rows import FleetEvent, FleetVm, Telling
from bridge.core.cloudevents import rfc3339
from bridge.core.notices import Attributes, OutcomeNotice

# A reboot takes a VM away for minutes; one that stays away longer will not tell how it ended.
LOST_AFTER = timedelta(minutes=15)
# Stronger words stay: a refused second command does not undo an approval.
_STRENGTH = ("none", "rejected", "accepted", "sending", "in-doubt", "approved", "confirmed")
_OVER = frozenset({"completed", "canceled", "ended", "lost"})


def vm(row: FleetVm) -> dict[str, Any]:
    return {
        "agent": row.agent,
        "name": row.name,
        "scaleSet": row.scale_set,
        "zone": row.zone,
        "location": row.location,
        "status": row.status,
        "since": timestamp(row.since),
        "version": row.version,
        "approvals": row.approvals,
    }


def event(
    key: str, row: FleetEvent, vms: Mapping[str, FleetVm], now: datetime, *, signs: bool
) -> dict[str, Any]:
    lead = row.lead
    data, azure = lead.data, lead.data.event
    return {
        "key": key,
        "id": azure.event_id,
        "revision": lead.notice.attributes.id,
        "type": azure.event_type,
        "status": status(row, vms, now),
        "resources": azure.resources,
        "source": azure.event_source,
        "description": azure.description,
        "durationS": azure.duration_in_seconds,
        "notBefore": _iso(data.not_before),
        "time": _iso(lead.notice.attributes.time) or timestamp(row.first_seen_at),
        "firstSeen": timestamp(row.first_seen_at),
        "vm": data.vm.name,
        "scaleSet": data.vm.scale_set,
        "zone": data.vm.zone,
        "leader": data.leader,
        "agents": list(row.tellings),
        "agentStatus": _agent_status(lead, vms),
        "shadow": _vm_field(lead, vms, "approvals") == "shadow",
        "approval": approval_state(row),
        "request": _request(row),
        "outcomes": [_outcome(attributes, outcome) for attributes, outcome in row.outcomes],
        "waitingOn": _waiting_on(row),
        "ended": _ended(lead),
        "obstacle": obstacle(row, vms, now, signs=signs),
        "command": _cli_command(azure.event_id, data.vm.name, _vm_field(lead, vms, "commands")),
    }


def status(row: FleetEvent, vms: Mapping[str, FleetVm], now: datetime) -> str:
    lead = row.lead
    if lead.data.is_over:
        return lead.data.transition
    if lead.gone:
        return "ended"
    if _is_lost(lead, vms, now):
        return "lost"
    return "started" if lead.data.event.event_status.casefold() == "started" else "scheduled"


def is_over(row: FleetEvent, vms: Mapping[str, FleetVm], now: datetime) -> bool:
    return status(row, vms, now) in _OVER


def approval_state(row: FleetEvent) -> str:
    """What the event's own messages and the outcomes say, together; `sent` until one answers."""
    lead = row.lead
    states = [lead.data.approval.state, *(outcome.status for _, outcome in row.outcomes)]
    known = [state for state in states if state in _STRENGTH]
    strongest = max(known, key=_STRENGTH.index, default="none")
    if lead.data.approval.state == "foreign":
        return "foreign"
    return "sent" if _is_unanswered(row) and strongest in {"none", "rejected"} else strongest


def obstacle(row: FleetEvent, vms: Mapping[str, FleetVm], now: datetime, *, signs: bool) -> str:
    """Why it cannot be approved from here; empty when it can."""
    lead, state = row.lead, approval_state(row)
    if (what := status(row, vms, now)) != "scheduled":
        return f"it is {what}"
    if row.is_disputed:
        return "two machines claim to lead it: one of them does not tell the truth"
    if not lead.is_sendable:
        return "its message names no command topic, or that of another machine"
    if _vm_field(lead, vms, "commands") == "none":
        return f"the agent of {lead.data.vm.name} takes no commands"
    if _vm_field(lead, vms, "commands") == "signed" and not signs:
        return f"the agent of {lead.data.vm.name} takes signed commands only: see console.key_file"
    if _vm_field(lead, vms, "approvals") == "refused":
        return f"the agent of {lead.data.vm.name} cannot write its ledger and refuses approvals"
    if state == "in-doubt":
        return "an earlier approval is in doubt: it may have counted, and the agent watches for it"
    return "" if state in {"none", "rejected", "sent"} else f"its approval is {state}"


def moment(text: str) -> datetime | None:
    """An RFC 3339 time from the wire, or nothing."""
    try:
        parsed = datetime.fromisoformat(text)
        return parsed.astimezone(UTC) if parsed.tzinfo else None
    except (ValueError, OverflowError):
        return None


def timestamp(at: datetime) -> str:
    return rfc3339(at)


def _iso(text: str) -> str:
    at = moment(text)
    return rfc3339(at) if at else ""


def _is_lost(lead: Telling, vms: Mapping[str, FleetVm], now: datetime) -> bool:
    """Its VM went away for good, and no message will ever end it."""
    vm_row = vms.get(lead.agent)
    not_before = moment(lead.data.not_before)
    is_due = not_before is None or not_before < now
    return (
        is_due
        and vm_row is not None
        and vm_row.status == "offline"
        and now - vm_row.since > LOST_AFTER
    )


def _is_unanswered(row: FleetEvent) -> bool:
    request = row.request
    if request is None:
        return False
    names = {request.key, request.command_id}
    return all(
        names.isdisjoint({outcome.idempotency_key, outcome.command_id})
        for _, outcome in row.outcomes
    )


def _agent_status(lead: Telling, vms: Mapping[str, FleetVm]) -> str:
    return _vm_field(lead, vms, "status") or "unknown"


def _vm_field(lead: Telling, vms: Mapping[str, FleetVm], name: str) -> str:
    row = vms.get(lead.agent)
    return str(getattr(row, name)) if row else ""


def _request(row: FleetEvent) -> dict[str, str] | None:
    request = row.request
    if request is None:
        return None
    return {"by": request.by, "at": timestamp(request.at), "reason": request.reason}


def _outcome(attributes: Attributes, outcome: OutcomeNotice) -> dict[str, Any]:
    return {
        "time": _iso(attributes.time),
        "status": outcome.status,
        "reason": outcome.reason,
        "detail": outcome.detail,
        "rule": outcome.rule,
        "by": outcome.requested_by,
        "replay": outcome.replay,
        "httpStatus": outcome.http_status,
    }


def _waiting_on(row: FleetEvent) -> tuple[str, ...]:
    """As the newest answer that was no refusal had it."""
    answers = [outcome for _, outcome in row.outcomes if outcome.status != "rejected"]
    return answers[-1].waiting_on if answers and answers[-1].status != "confirmed" else ()


def _ended(lead: Telling) -> dict[str, str] | None:
    ended = lead.data.ended
    return {"because": ended.because, "certainty": ended.certainty} if ended else None


def _cli_command(event_id: str, vm_name: str, commands: str) -> str:
    """For a shell, so every part is quoted; nothing that a terminal might obey."""
    if any(not name.isprintable() or name.startswith("-") for name in (event_id, vm_name)):
        return ""
    command = f"sebridge approve {shlex.quote(event_id)} --vm {shlex.quote(vm_name)}"
    return f"{command} --key-file KEY.pem" if commands == "signed" else command
