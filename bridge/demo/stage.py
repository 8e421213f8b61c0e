"""What is to be seen: the VMs, what is pending for each, and what has happened so far.

Fed with what the broker delivers, as any consumer is, and with the simulator's word on which VM is
still there. It draws nothing.
"""

import re
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bridge.core.plain_text import printable
from bridge.demo import words
from bridge.demo.story import FOR_PEOPLE, RESOURCE_GROUP

ROOT: Final = f"sebridge/v1/{RESOURCE_GROUP}/"
LINES_KEPT_MAX: Final = 200
_PASTABLE: Final = re.compile(r"[A-Za-z0-9_-]+")
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class Line(msgspec.Struct, frozen=True):
    at_s: float
    who: str
    text: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One VM as the screen shows it."""

    vm: str
    zone: str
    agent: str  # online, offline, blind, starting or gone
    event_type: str = ""
    left_s: float | None = None
    share: float = 0.0  # of the notice that is left
    note: str = ""


class Pending(msgspec.Struct, kw_only=True):
    event_id: str
    vm: str
    event_type: str
    seen_at: datetime
    not_before_at: datetime | None = None
    started: bool = False
    approved: bool = False
    waits_for: tuple[str, ...] = ()


class Stage:
    def __init__(self, zones: dict[str, str], elapsed_s: Callable[[], float]) -> None:
        self.lines: deque[Line] = deque(maxlen=LINES_KEPT_MAX)
        self.counts: Counter[str] = Counter()
        self.gone: list[str] = []
        self.said = 0
        self._zones = zones
        self.elapsed_s = elapsed_s
        self._agents = dict.fromkeys(zones, "starting")
        self._pending: dict[str, Pending] = {}
        self._channels = {
            "events": self._take_events,
            "outcomes": self._take_outcomes,
            "status": self._take_status,
        }

    @property
    def agents_online(self) -> int:
        return sum(status == "online" for status in self._agents.values())

    def say(self, who: str, text: str) -> None:
        # What others have published must not steer the terminal.
        plain = printable(text)
        self.lines.append(Line(self.elapsed_s(), who, plain))
        self.said += 1

    def receive(self, topic: str, payload: bytes) -> None:
        """One message as the broker delivers it; anyone may publish, so anything may come."""
        vm, _, channel = topic.removeprefix(ROOT).partition("/")
        take = self._channels.get(channel)
        if vm not in self._zones or take is None:
            return
        try:
            take(vm, msgspec.json.decode(payload)["data"])
        except (RecursionError, KeyError, TypeError, ValueError, AttributeError):
            self.say(vm, "published something that is no CloudEvent of ours")

    def lose(self, vm: str) -> None:
        """The VM is no more, and what was pending for it neither."""
        self._agents[vm] = "gone"
        self.gone.append(vm)
        self._pending = {i: p for i, p in self._pending.items() if p.vm != vm}
        self.say(vm, "The VM is gone.")

    def rows(self, now: datetime) -> list[Row]:
        return [self._row(vm, now) for vm in self._zones]

    def awaiting(self) -> list[Pending]:
        """What a person should approve, the most urgent first."""
        for_people = (p for p in self._pending.values() if p.event_type in FOR_PEOPLE)
        waiting = [p for p in for_people if not (p.started or p.approved)]
        return sorted(waiting, key=lambda p: (p.not_before_at or _NEVER, p.vm))

    def _take_events(self, vm: str, data: dict[str, Any]) -> None:
        event_id, transition = data["event"]["EventId"], data["transition"]
        if not _PASTABLE.fullmatch(event_id + data["event"]["EventType"]):
            raise ValueError("not to be shown in a command that people paste")
        text = words.of_transition(data)
        self.counts[transition] += 1
        if transition in ("completed", "canceled", "ended"):
            self._pending.pop(event_id, None)
        else:
            self._note(vm, event_id, data)
        self.say(vm, text)

    def _note(self, vm: str, event_id: str, data: dict[str, Any]) -> None:
        pending = self._pending.setdefault(
            event_id,
            Pending(
                event_id=event_id,
                vm=vm,
                event_type=data["event"]["EventType"],
                seen_at=datetime.now(UTC),
            ),
        )
        pending.started = data["transition"] == "started"
        if data.get("notBefore"):
            pending.not_before_at = datetime.fromisoformat(data["notBefore"])

    def _take_outcomes(self, vm: str, data: dict[str, Any]) -> None:
        # The agent names all that it has not approved itself; others may have been, elsewhere.
        waiting_on = tuple(filter(self._is_unapproved, data.get("waitingOn", ())))
        holders = [self._pending[event_id].vm for event_id in waiting_on]
        text = words.of_outcome(data, sorted(holders))
        self.counts[data["status"]] += not data.get("replay", False)
        if data["status"] == "approved" and data["eventId"] in self._pending:
            pending = self._pending[data["eventId"]]
            pending.approved, pending.waits_for = True, waiting_on
        if data["status"] != "confirmed":
            self.say(vm, text)

    def _is_unapproved(self, event_id: str) -> bool:
        pending = self._pending.get(event_id)
        return pending is not None and not (pending.approved or pending.started)

    def _take_status(self, vm: str, data: dict[str, Any]) -> None:
        before, status = self._agents[vm], str(data["status"])
        if before == "gone":
            return
        self._agents[vm] = status
        if before not in (status, "starting"):
            self.say(vm, words.of_status(status, before))

    def _row(self, vm: str, now: datetime) -> Row:
        row = Row(vm=vm, zone=self._zones[vm], agent=self._agents[vm])
        mine = [p for p in self._pending.values() if p.vm == vm]
        if not mine:
            return row
        pending = min(mine, key=lambda p: not p.started)
        left_s = share = 0.0
        if pending.not_before_at and not pending.started:
            left_s = max(0.0, (pending.not_before_at - now).total_seconds())
            notice_s = (pending.not_before_at - pending.seen_at).total_seconds()
            share = min(1.0, left_s / notice_s) if notice_s > 0 else 0.0
        return msgspec.structs.replace(
            row,
            event_type=pending.event_type,
            left_s=None if pending.started else left_s,
            share=share,
            note=self._explain(pending),
        )

    def _explain(self, pending: Pending) -> str:
        if pending.started:
            return "has started"
        held_by = filter(self._is_unapproved, pending.waits_for)
        holders = sorted(self._pending[event_id].vm for event_id in held_by)
        if pending.approved:
            return f"approved, waits for {words.listed(holders)}" if holders else "approved"
        return "waits for an approval"
