"""What is known of the fleet: a fold over the messages of all agents, with time as an argument.

No I/O and no clock. Everything that comes in is untrusted and every collection has a limit. An
event that several VMs tell of is one event here; its leader's word counts. `take_changes` gives
what a page has not seen yet, so that an update costs what has changed and not what there is.
"""

from collections import deque
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bridge.config import Console
from bridge.console import view
from bridge.console.rows import FleetEvent, FleetVm, Request, Telling
from bridge.core import notices
from bridge.core.notices import EventNotice, Notice, OutcomeNotice, StatusNotice
from bridge.feeds import Received


class Changes(msgspec.Struct, kw_only=True):
    """What differs from the last look; also the whole, for a newcomer."""

    vms: list[dict[str, Any]] = []
    removed_vms: list[str] = []
    events: list[dict[str, Any]] = []
    removed_events: list[str] = []
    history: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)


class FleetState:
    def __init__(self, config: Console) -> None:
        self._config = config
        self._signs = bool(config.key_file)
        self._vms: dict[str, FleetVm] = {}
        self._events: dict[str, FleetEvent] = {}
        self._history: deque[dict[str, Any]] = deque(maxlen=config.history_rows_max)
        self._new_history: deque[dict[str, Any]] = deque(maxlen=config.history_rows_max)
        self._tellings = 0  # of all events together
        self._rows = 0  # of history, ever
        self._dirty_vms: set[str] = set()
        self._dirty_events: set[str] = set()
        self.refused = 0  # messages that were no notices, or for which there was no room

    def apply(self, received: Received, now: datetime) -> None:
        if not received.payload:
            self._clear(received, now)
            return
        notice = notices.decode(received.payload)
        if notice is None:
            self.refused += 1
            return
        match notice.data:
            case StatusNotice() as status:
                self._apply_status(received.agent, notice, status, now)
            case EventNotice() as data:
                self._apply_event(received, notice, data, now)
            case OutcomeNotice() as outcome:
                self._apply_outcome(received.agent, notice, outcome, now)

    def tick(self, now: datetime) -> None:
        """What time alone changes: silence, oblivion, and events whose VM is gone for good."""
        silent_after = timedelta(seconds=self._config.silent_after_s)
        forget_before = now - timedelta(seconds=self._config.forget_after_s)
        for agent, vm in list(self._vms.items()):
            if vm.status == "offline" and vm.since < forget_before:
                self._forget_vm(agent)
            elif vm.status == "online" and now - vm.heard_at > silent_after:
                self._set_vm_status(agent, vm, "silent", now)
        for key, event in list(self._events.items()):
            was_over, is_over = event.over_at, view.is_over(event, self._vms, now)
            event.over_at = (was_over or now) if is_over else None
            if event.over_at and event.over_at < forget_before:
                self._forget_event(key)
            elif bool(was_over) != is_over:
                self._touch_event(key)

    def event(self, key: str) -> FleetEvent | None:
        return self._events.get(key)

    def approval_obstacle(self, event: FleetEvent, now: datetime) -> str:
        """Why it cannot be approved from here; empty when it can."""
        return view.obstacle(event, self._vms, now, signs=self._signs)

    def record_request(self, key: str, request: Request, now: datetime) -> None:
        """An approval has left; its outcome will come as a message like any other."""
        event = self._events[key]
        event.request = request
        self._touch_event(key)
        text = f"approval sent by {request.by}" + (f": {request.reason}" if request.reason else "")
        self._remember("command", text, event, now)

    def take_changes(self, now: datetime) -> Changes:
        vms, events = self._dirty_vms, self._dirty_events
        changes = Changes(
            vms=[view.vm(self._vms[a]) for a in vms if a in self._vms],
            removed_vms=[agent for agent in vms if agent not in self._vms],
            events=[self._view(key, now) for key in events if key in self._events],
            removed_events=[key for key in events if key not in self._events],
            history=list(self._new_history),
        )
        self._dirty_vms, self._dirty_events = set(), set()
        self._new_history.clear()
        return changes

    def everything(self, now: datetime) -> Changes:
        return Changes(
            vms=[view.vm(vm) for vm in self._vms.values()],
            events=[self._view(key, now) for key in self._events],
            history=list(self._history),
        )

    def _view(self, key: str, now: datetime) -> dict[str, Any]:
        return view.event(key, self._events[key], self._vms, now, signs=self._signs)

    def _clear(self, received: Received, now: datetime) -> None:
        """A retained message was taken away: the VM is to be forgotten, or its event is over."""
        if received.channel == "status":
            self._forget_vm(received.agent)
        key = received.event_id.casefold()
        event = self._events.get(key)
        telling = event.tellings.get(received.agent) if event else None
        if event and telling and not telling.is_over:
            telling.gone = True
            self._touch_event(key)
            self._remember("ended", "no longer pending on the broker", event, now)

    def _apply_status(
        self, agent: str, notice: Notice, status: StatusNotice, now: datetime
    ) -> None:
        known = self._vms.get(agent)
        if known is None and len(self._vms) >= self._config.vms_max:
            self.refused += 1
            return
        if known is None:
            since = view.moment(notice.attributes.time) or now
            known = self._vms[agent] = FleetVm(agent=agent, since=min(since, now), heard_at=now)
            self._dirty_vms.add(agent)
        if known.describe(status):
            self._dirty_vms.add(agent)
        known.heard_at = now
        if known.status != status.status:
            self._set_vm_status(agent, known, status.status, now)

    def _set_vm_status(self, agent: str, vm: FleetVm, status: str, now: datetime) -> None:
        if vm.status:  # the first sight of a VM is no change
            vm.since = now
            row = {"kind": "status", "text": status, "vm": vm.name, "scaleSet": vm.scale_set}
            self._append(row, now)
        vm.status = status
        self._dirty_vms.add(agent)
        for key, event in self._events.items():
            if agent in event.tellings:
                self._touch_event(key)

    def _apply_event(
        self, received: Received, notice: Notice, data: EventNotice, now: datetime
    ) -> None:
        key = data.event.event_id.casefold()
        event = self._events.get(key)
        known = event.tellings.get(received.agent) if event else None
        if known and known.is_newer_than(notice):
            return
        if known is None and not self._make_room(now):
            self.refused += 1
            return
        self._tellings += known is None
        if event is None:
            event = self._events[key] = FleetEvent(first_seen_at=now)
        event.tellings[received.agent] = Telling(
            agent=received.agent, notice=notice, data=data, payload=received.payload
        )
        self._touch_event(key)
        is_news = known is None or known.notice.attributes.id != notice.attributes.id
        if is_news:
            because = data.ended.because if data.ended else ""
            self._remember(data.transition, because, event, now, notice=notice, vm=data.vm.name)

    def _apply_outcome(
        self, agent: str, notice: Notice, outcome: OutcomeNotice, now: datetime
    ) -> None:
        event = self._events.get(outcome.event_id.casefold())
        words = (outcome.reason, outcome.detail)
        text = ": ".join(word for word in words if word) + (" (repeated)" if outcome.replay else "")
        self._remember(
            outcome.status,
            text,
            event,
            now,
            notice=notice,
            vm=notice.attributes.partitionkey,
            event_id=outcome.event_id,
        )
        if event is not None and agent in event.tellings:  # nobody answers for another
            event.outcomes.append((notice.attributes, outcome))
            self._touch_event(outcome.event_id.casefold())

    def _make_room(self, now: datetime) -> bool:
        """Over the limit the oldest event that is over goes; a pending one never does."""
        if self._tellings < self._config.events_max:
            return True
        over = (key for key, e in self._events.items() if view.is_over(e, self._vms, now))
        oldest = next(over, None)
        if oldest is not None:
            self._forget_event(oldest)
        return oldest is not None

    def _forget_vm(self, agent: str) -> None:
        if self._vms.pop(agent, None):
            self._dirty_vms.add(agent)

    def _forget_event(self, key: str) -> None:
        self._tellings -= len(self._events.pop(key).tellings)
        self._touch_event(key)

    def _touch_event(self, key: str) -> None:
        self._dirty_events.add(key)

    def _remember(
        self,
        kind: str,
        text: str,
        event: FleetEvent | None,
        now: datetime,
        *,
        notice: Notice | None = None,
        vm: str = "",
        event_id: str = "",
    ) -> None:
        lead = event.lead if event else None
        row = {
            "kind": kind,
            "text": text,
            "vm": vm or (lead.data.vm.name if lead else ""),
            "eventId": lead.data.event.event_id if lead else event_id,
            "eventType": lead.data.event.event_type if lead else "",
            "scaleSet": lead.data.vm.scale_set if lead else "",
        }
        self._append(row, (view.moment(notice.attributes.time) if notice else None) or now)

    def _append(self, row: dict[str, Any], at: datetime) -> None:
        self._rows += 1
        row |= {"number": self._rows, "time": view.timestamp(at)}
        self._history.append(row)
        self._new_history.append(row)
