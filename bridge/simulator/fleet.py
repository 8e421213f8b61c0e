"""The life of scheduled events in a scale set: (fleet, action, now) -> fleet. Pure.

Must not read a clock, draw random numbers or know of HTTP. The invariant: a fleet is complete up
to `fleet.now`, so the same actions at the same times give the same fleet, however often anybody
looked in between. "IMDS" below means the documentation's "Scheduled Events for Linux VMs",
"Terminate" its "Terminate notification for scale set instances".
"""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from bridge.simulator import scale_in as scale_in_policy
from bridge.simulator.model import (
    CANCELED,
    COMPLETED,
    DESCRIPTION,
    DURATION_IN_SECONDS,
    ENDED_KEPT_MAX,
    LASTS_S,
    NOTICE_S,
    PENDING_MAX,
    PREEMPT,
    SOURCE,
    TERMINATE,
    TERMINATE_NOTIFICATION_S_MIN,
    AlreadyStartedError,
    Ended,
    Fleet,
    FleetError,
    Plan,
    ScheduledEvent,
    Scope,
    UnknownScheduledEventError,
    Vm,
)

# IMDS: "disabled for your service if it doesn't make a request to the endpoint for 24 hours".
SWITCH_OFF_AFTER = timedelta(hours=24)

DELETING_TYPES = (PREEMPT, TERMINATE)


def advance(fleet: Fleet, now: datetime) -> Fleet:
    """Let everything happen that is due until `now`, in the order of time."""
    while fleet.pending:
        held = _are_deletes_held(fleet)
        due_at = min(_due_at(fleet, scheduled, held=held) for scheduled in fleet.pending)
        if due_at > now:
            break
        fleet = _happen(replace(fleet, now=max(due_at, fleet.now)))
    return replace(fleet, now=max(now, fleet.now))


def schedule(fleet: Fleet, plan: Plan, now: datetime) -> tuple[Fleet, str]:
    """Make one scheduled event, and tell its EventId."""
    fleet = advance(fleet, now)
    made = _make(fleet, plan)
    fleet = replace(fleet, pending=(*fleet.pending, made), made=fleet.made + 1)
    fleet = _count_change(fleet, {made.group})
    return advance(fleet, now), made.event_id


def scale_in(fleet: Fleet, count: int, now: datetime) -> tuple[Fleet, tuple[str, ...]]:
    """Delete VMs by policy: each gets a Terminate event of its own, if the profile is on."""
    fleet = advance(fleet, now)
    leaving = {name for s in fleet.pending if s.event_type == TERMINATE for name in s.resources}
    staying = [vm for vm in fleet.vms if vm.is_running and vm.name not in leaving]
    selected = scale_in_policy.select(staying, fleet.policy, count)
    names = tuple(vm.name for vm in selected)
    if fleet.terminate_notification_s is None:
        fleet = _delete(fleet, names)
        return advance(_count_change(fleet, {vm.group for vm in selected}), now), names
    for name in names:
        fleet, _ = schedule(fleet, Plan(event_type=TERMINATE, resources=(name,)), now)
    return fleet, names


def protect(fleet: Fleet, name: str, protected: bool, now: datetime) -> Fleet:
    """Set or lift instance protection; it stops a scale-in, not a deletion by hand."""
    fleet = advance(fleet, now)
    running_vm(fleet, name)
    vms = (replace(vm, protected=protected) if vm.name == name else vm for vm in fleet.vms)
    return replace(fleet, vms=tuple(vms))


def approve(fleet: Fleet, vm: Vm, event_ids: Iterable[str], now: datetime) -> Fleet:
    """One StartRequests POST: all ids are pending in the VM's scope, or none is approved.

    IMDS: approval is for every VM in Resources, and again approving is no error. It sets nothing
    back: what has started stays started, and NotBefore stays where it is.
    """
    fleet = advance(fleet, now)
    approved = {find(fleet, event_id, vm.group).event_id for event_id in event_ids}
    pending = (replace(s, approved=True) if s.event_id in approved else s for s in fleet.pending)
    return advance(replace(fleet, pending=tuple(pending)), now)


def cancel(fleet: Fleet, event_id: str, now: datetime) -> Fleet:
    """Azure thinks better of it: IMDS, "goes directly from Scheduled to being removed"."""
    fleet = advance(fleet, now)
    scheduled = find(fleet, event_id)
    if scheduled.is_started:
        raise AlreadyStartedError(f"{scheduled.event_id} has started, nobody can cancel it now")
    fleet = _end(fleet, scheduled, CANCELED)
    return advance(_count_change(fleet, {scheduled.group}), now)


def is_switched_off(fleet: Fleet, vm: Vm, now: datetime) -> bool:
    """Whether the scope's next request is a "first call", which enables the feature."""
    polled_at = fleet.scopes[vm.group].polled_at
    return polled_at is None or now - polled_at >= SWITCH_OFF_AFTER


def poll(fleet: Fleet, vm: Vm, now: datetime) -> Fleet:
    """Note that the scope was asked for; after a switch-off its incarnation starts again at 1."""
    fleet = advance(fleet, now)
    scope = fleet.scopes[vm.group]
    restarted = is_switched_off(fleet, vm, now)
    scope = Scope(incarnation=1 if restarted else scope.incarnation, polled_at=now)
    return _with_scope(fleet, vm.group, scope)


def find(fleet: Fleet, event_id: str, group: int | None = None) -> ScheduledEvent:
    """The pending scheduled event with this id; GUIDs are compared without case."""
    for scheduled in fleet.pending:
        if scheduled.event_id.casefold() == event_id.casefold() and group in (
            None,
            scheduled.group,
        ):
            return scheduled
    raise UnknownScheduledEventError(f"no pending scheduled event has the EventId {event_id!r}")


def running_vm(fleet: Fleet, name: str) -> Vm:
    for vm in fleet.vms:
        if vm.name == name and vm.is_running:
            return vm
    raise FleetError(f"no running VM is called {name!r}")


def waiting_on(fleet: Fleet, scheduled: ScheduledEvent) -> tuple[str, ...]:
    """The EventIds that hold an approved Terminate back.

    Terminate, "Approve all pending deletes": VM_2, approved, is not deleted until VM_1 is approved
    or its timeout has elapsed. "Approve all simultaneous deletes" (equal NotBefore) follows.
    """
    if scheduled.event_type != TERMINATE or scheduled.is_started or not scheduled.approved:
        return ()
    return tuple(s.event_id for s in fleet.pending if _holds_deletes_back(s))


def _holds_deletes_back(scheduled: ScheduledEvent) -> bool:
    return scheduled.event_type == TERMINATE and not scheduled.approved and not scheduled.is_started


def _are_deletes_held(fleet: Fleet) -> bool:
    return any(_holds_deletes_back(scheduled) for scheduled in fleet.pending)


def _due_at(fleet: Fleet, scheduled: ScheduledEvent, *, held: bool) -> datetime:
    """When a scheduled event's next change comes, if nobody does anything."""
    if scheduled.started_at is not None:
        return scheduled.started_at + timedelta(seconds=scheduled.lasts_s)
    if scheduled.approved and not (held and scheduled.event_type == TERMINATE):
        return min(fleet.now, scheduled.not_before_at)
    return scheduled.not_before_at


def _happen(fleet: Fleet) -> Fleet:
    """One instant: all that is due at fleet.now starts or ends together."""
    held = _are_deletes_held(fleet)
    due = [s for s in fleet.pending if _due_at(fleet, s, held=held) <= fleet.now]
    starting = {s.event_id for s in due if not s.is_started}
    pending = (
        replace(s, started_at=fleet.now) if s.event_id in starting else s for s in fleet.pending
    )
    fleet = replace(fleet, pending=tuple(pending))
    for scheduled in due:
        # A deletion at this same instant may have taken it along.
        if scheduled.is_started and scheduled in fleet.pending:
            fleet = _complete(fleet, scheduled)
    return _count_change(fleet, {s.group for s in due})


def _complete(fleet: Fleet, scheduled: ScheduledEvent) -> Fleet:
    fleet = _end(fleet, scheduled, COMPLETED)
    if scheduled.event_type in DELETING_TYPES:
        fleet = _delete(fleet, scheduled.resources)
    return fleet


def _end(fleet: Fleet, scheduled: ScheduledEvent, because: str) -> Fleet:
    ended = Ended(scheduled_event=scheduled, ended_at=fleet.now, because=because)
    pending = tuple(s for s in fleet.pending if s.event_id != scheduled.event_id)
    return replace(fleet, pending=pending, ended=(*fleet.ended, ended)[-ENDED_KEPT_MAX:])


def _delete(fleet: Fleet, names: tuple[str, ...]) -> Fleet:
    """The VMs are gone, and with them their place in other scheduled events."""
    vms = (
        replace(vm, gone_at=fleet.now) if vm.name in names and vm.is_running else vm
        for vm in fleet.vms
    )
    fleet = replace(fleet, vms=tuple(vms))
    for scheduled in fleet.pending:
        left = tuple(name for name in scheduled.resources if name not in names)
        if not left:
            fleet = _end(fleet, scheduled, CANCELED)
        elif left != scheduled.resources:
            smaller = replace(scheduled, resources=left)
            pending = (smaller if s is scheduled else s for s in fleet.pending)
            fleet = replace(fleet, pending=tuple(pending))
    return fleet


def _count_change(fleet: Fleet, groups: set[int]) -> Fleet:
    """IMDS: the incarnation "increases when the events array changes", in each scope for itself."""
    for group in groups:
        scope = fleet.scopes[group]
        fleet = _with_scope(fleet, group, replace(scope, incarnation=scope.incarnation + 1))
    return fleet


def _with_scope(fleet: Fleet, group: int, scope: Scope) -> Fleet:
    return replace(fleet, scopes=(*fleet.scopes[:group], scope, *fleet.scopes[group + 1 :]))


def _make(fleet: Fleet, plan: Plan) -> ScheduledEvent:
    _check(fleet, plan)
    event_type = plan.event_type
    duration_s = DURATION_IN_SECONDS[event_type] if plan.duration_s is None else plan.duration_s
    # 0 (no interruption) and -1 (unknown) say nothing about how long Started is shown.
    lasts_s = plan.duration_s if plan.duration_s and plan.duration_s > 0 else LASTS_S[event_type]
    return ScheduledEvent(
        event_id=_event_id(fleet),
        event_type=event_type,
        resources=plan.resources,
        source=SOURCE[event_type] if plan.source is None else plan.source,
        description=DESCRIPTION[event_type] if plan.description is None else plan.description,
        duration_in_seconds=duration_s,
        lasts_s=lasts_s / fleet.shorten,
        group=_group(fleet, plan.resources),
        not_before_at=_not_before_at(fleet, plan),
        # IMDS: with a hardware failure "Azure bypasses the Scheduled state".
        started_at=fleet.now if plan.started else None,
    )


def _check(fleet: Fleet, plan: Plan) -> None:
    if len(fleet.pending) >= PENDING_MAX:
        raise FleetError(f"{PENDING_MAX} scheduled events are pending, that is the limit")
    if fleet.spot and plan.event_type == TERMINATE:
        raise FleetError("spot VMs get no Terminate: terminate notification is not for spot")
    if len(set(plan.resources)) < len(plan.resources):
        raise FleetError("a VM is named twice in the resources")


def _group(fleet: Fleet, resources: tuple[str, ...]) -> int:
    groups = {running_vm(fleet, name).group for name in resources}
    if len(groups) != 1:
        raise FleetError("the resources of a scheduled event are VMs of one placement group")
    return groups.pop()


def _not_before_at(fleet: Fleet, plan: Plan) -> datetime:
    """Whole seconds, because that is what RFC 1123 can say, and never less than the notice."""
    notice_s = _notice_s(fleet, plan.event_type) if plan.not_before_s is None else plan.not_before_s
    exact = fleet.now.astimezone(UTC) + timedelta(seconds=notice_s / fleet.shorten)
    whole = exact.replace(microsecond=0)
    return whole if whole == exact else whole + timedelta(seconds=1)


def _notice_s(fleet: Fleet, event_type: str) -> int:
    if event_type == TERMINATE:
        return fleet.terminate_notification_s or TERMINATE_NOTIFICATION_S_MIN
    return NOTICE_S[event_type]


def _event_id(fleet: Fleet) -> str:
    # Upper case as in the documentation's samples: a client that folds it and sends the folded
    # form back is served all the same, one that compares by bytes is found out.
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{fleet.seed}/{fleet.made}")).upper()
