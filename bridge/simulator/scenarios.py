"""Stories that come by themselves: pure lists of (when, what), played on the virtual clock.

VMs are meant by their place among the running ones, so a story fits every fleet.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final, assert_never

from msgspec import Struct

from bridge.simulator import fleet as fleets
from bridge.simulator.model import FREEZE, PREEMPT, REBOOT, REDEPLOY, Fleet, FleetError, Plan

DAY_S: Final = 24 * 3600


class ScaleIn(Struct, frozen=True, kw_only=True):
    count: int


class Raise(Struct, frozen=True, kw_only=True):
    event_type: str
    # Places among the running VMs, in the order of instance ids.
    places: tuple[int, ...]
    source: str | None = None
    not_before_s: float | None = None
    started: bool = False
    duration_s: int | None = None
    description: str | None = None


class CancelNewest(Struct, frozen=True, kw_only=True):
    """Azure takes back what it scheduled last and has not started."""


Action = ScaleIn | Raise | CancelNewest


class Step(Struct, frozen=True, kw_only=True):
    # Simulated seconds after the start.
    at_s: float
    action: Action


def scale_in(_: int) -> tuple[Step, ...]:
    """Load falls twice; the second time while the first VMs may still be leaving."""
    return (
        Step(at_s=10, action=ScaleIn(count=2)),
        Step(at_s=190, action=ScaleIn(count=1)),
    )


def rolling_reboot(vm_count: int) -> tuple[Step, ...]:
    """Every VM in turn, each after the one before is through, even if nobody approves."""
    lasts_s, notice_s = 120, 900
    return tuple(
        Step(
            at_s=10 + place * (notice_s + lasts_s + 60),
            action=Raise(event_type=REBOOT, places=(place,), duration_s=lasts_s),
        )
        for place in range(vm_count)
    )


def spot_eviction(_: int) -> tuple[Step, ...]:
    """Capacity is wanted back: three evictions with half a minute's notice each."""
    return tuple(
        Step(at_s=at_s, action=Raise(event_type=PREEMPT, places=(place,)))
        for place, at_s in enumerate((10, 25, 40))
    )


def host_failure(_: int) -> tuple[Step, ...]:
    """A host dies under two VMs without notice; another is predicted to, within days."""
    return (
        Step(
            at_s=10,
            action=Raise(
                event_type=REDEPLOY,
                places=(0, 1),
                started=True,
                description="Host server suffered a hardware failure.",
            ),
        ),
        Step(
            at_s=40,
            action=Raise(event_type=REDEPLOY, places=(2,), not_before_s=7 * DAY_S),
        ),
    )


def canceled(_: int) -> tuple[Step, ...]:
    """Maintenance is announced and taken back after eight minutes, as seen in the field."""
    return (
        Step(at_s=10, action=Raise(event_type=FREEZE, places=(0,))),
        Step(at_s=490, action=CancelNewest()),
    )


SCENARIOS: Final[dict[str, Callable[[int], tuple[Step, ...]]]] = {
    "scale-in": scale_in,
    "rolling-reboot": rolling_reboot,
    "spot-eviction": spot_eviction,
    "host-failure": host_failure,
    "canceled": canceled,
}


def play(fleet: Fleet, action: Action, now: datetime) -> Fleet:
    """One step; what no longer fits, because VMs have gone meanwhile, is left out."""
    fleet = fleets.advance(fleet, now)
    try:
        match action:
            case ScaleIn():
                return fleets.scale_in(fleet, action.count, now)[0]
            case Raise():
                return fleets.schedule(fleet, _plan(fleet, action), now)[0]
            case CancelNewest():
                return _cancel_newest(fleet, now)
    except FleetError:
        return fleet
    assert_never(action)


def _plan(fleet: Fleet, action: Raise) -> Plan:
    running = [vm.name for vm in fleet.vms if vm.is_running]
    if not running:
        raise FleetError("no VM is running any more")
    # A set, because two places may fall on one VM in a small fleet.
    names = sorted({running[place % len(running)] for place in action.places})
    return Plan(
        event_type=action.event_type,
        resources=tuple(names),
        source=action.source,
        not_before_s=action.not_before_s,
        started=action.started,
        duration_s=action.duration_s,
        description=action.description,
    )


def _cancel_newest(fleet: Fleet, now: datetime) -> Fleet:
    scheduled = [s for s in fleet.pending if not s.is_started]
    if not scheduled:
        return fleet
    return fleets.cancel(fleet, scheduled[-1].event_id, now)
