"""What agents publish, in plain words. Pure; the same sentences for the screen and for CI."""

from collections.abc import Mapping
from typing import Any, Final

_EFFECTS: Final = {
    "Freeze": "the VM pauses",
    "Reboot": "the VM restarts",
    "Redeploy": "the VM moves",
    "Preempt": "the VM is evicted",
    "Terminate": "the VM is deleted",
}
_UNASKED: Final = ("none", "foreign", "rejected")
_TRANSITIONS: Final = {
    "started": "{type} has started.",
    "completed": "{type} is over.",
    "canceled": "{type} was canceled by Azure.",
    "updated": "{type} has changed.",
    "ended": "{type} is gone; how it ended cannot be told.",
}


def of_transition(data: Mapping[str, Any]) -> str:
    event_type = data["event"].get("EventType", "")
    if data["transition"] != "scheduled":
        text = _TRANSITIONS[data["transition"]].format(type=event_type)
        unasked = data["transition"] == "started" and data["approval"]["state"] in _UNASKED
        return text + (" Nobody here approved it." if unasked else "")
    effect = _EFFECTS.get(event_type, "something happens")
    when = clock_time(data.get("notBefore", ""))
    return f"{event_type} scheduled, not before {when} UTC: {effect}."


def of_outcome(data: Mapping[str, Any], waits_for: list[str]) -> str:
    """`waits_for`: the VMs whose deletion is not approved yet and holds this one back."""
    match data["status"]:
        case "approved":
            then = f" Azure still waits for {listed(waits_for)}." if waits_for else ""
            return f"Approved by {_by(data)}; IMDS answered {data['httpStatus']}.{then}"
        case "confirmed":
            return "Confirmed: what was approved has started."
        case "rejected":
            return f"Refused, {data['reason']}: asked by {_by(data)}."
        case _:
            return "In doubt: the POST may or may not have arrived. It is not sent again."


def of_status(status: str, before: str) -> str:
    if status == "offline":
        return "The agent is offline."
    return "The agent is back." if before == "offline" else f"The agent is {status}."


def listed(names: list[str] | tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def clock_time(rfc3339: str) -> str:
    """The time of day in an RFC 3339 text."""
    return rfc3339[11:19]


def minutes(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02}"


def _by(data: Mapping[str, Any]) -> str:
    if data.get("idempotencyKey", "").startswith("auto:"):
        return f'rule "{data["rule"]}"'
    return str(data.get("requestedBy") or "nobody we know")
