"""The life of a scheduled event, sentence by sentence of the documentation."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from bridge.simulator import documents
from bridge.simulator import fleet as fleets
from bridge.simulator.model import (
    AlreadyStartedError,
    Fleet,
    FleetError,
    Plan,
    UnknownScheduledEventError,
)

FleetOf = Callable[..., Fleet]


def plan(event_type: str = "Reboot", *resources: str, **values: Any) -> Plan:
    return Plan(event_type=event_type, resources=resources or ("web_1",), **values)


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@pytest.mark.parametrize(
    ("event_type", "notice_s"),
    [("Freeze", 900), ("Reboot", 900), ("Redeploy", 600), ("Preempt", 30), ("Terminate", 300)],
)
def test_schedule_gives_the_minimum_notice_of_the_type(
    fleet_of: FleetOf, noon: datetime, event_type: str, notice_s: int
) -> None:
    """Each type has its documented minimum notice."""
    fleet, _ = fleets.schedule(fleet_of(), plan(event_type), noon)

    assert noon + seconds(notice_s) == fleet.pending[0].not_before_at


def test_schedule_terminate_has_the_notice_of_the_profile(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """Terminate's delay is what the scale set's notBeforeTimeout says."""
    fleet, _ = fleets.schedule(fleet_of(terminate_notification="PT12M"), plan("Terminate"), noon)

    assert noon + timedelta(minutes=12) == fleet.pending[0].not_before_at


def test_shorten_divides_notice_and_duration_and_leaves_the_clock(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """Time lapse for agents on a real clock: a tenth of the notice, a tenth of the duration."""
    fleet = fleet_of(shorten=10.0, terminate_notification="PT15M")
    fleet, _ = fleets.schedule(fleet, plan("Terminate", "web_1"), noon)
    fleet, _ = fleets.schedule(fleet, plan("Reboot", "web_2", duration_s=120), noon)
    fleet = fleets.advance(fleet, noon + seconds(90))

    assert [noon + seconds(90)] * 2 == [s.not_before_at for s in fleet.pending]
    assert [noon + seconds(90)] * 2 == [s.started_at for s in fleet.pending]
    assert [6, 12] == [s.lasts_s for s in fleet.pending]
    assert fleet.pending[1].duration_in_seconds == 120


def test_schedule_between_two_seconds_never_shortens_the_notice(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """NotBefore has whole seconds, rounded so that the notice is kept."""
    fleet, _ = fleets.schedule(fleet_of(), plan("Preempt"), noon + seconds(0.25))

    assert noon + seconds(31) == fleet.pending[0].not_before_at


@pytest.mark.parametrize("source", ["Platform", "User"])
def test_schedule_keeps_the_source(fleet_of: FleetOf, noon: datetime, source: str) -> None:
    """Platform and User can both be the initiator."""
    fleet, _ = fleets.schedule(fleet_of(), plan(source=source), noon)

    assert source == fleet.pending[0].source


def test_advance_starts_at_not_before_without_approval(fleet_of: FleetOf, noon: datetime) -> None:
    """Without approval it is Scheduled until NotBefore, and Started from then on."""
    fleet, _ = fleets.schedule(fleet_of(), plan(), noon)

    assert fleets.advance(fleet, noon + seconds(899.999)).pending[0].status == "Scheduled"
    assert fleets.advance(fleet, noon + seconds(900)).pending[0].status == "Started"


def test_advance_ends_after_its_duration(fleet_of: FleetOf, noon: datetime) -> None:
    """Started lasts as long as planned, then the scheduled event is gone and the VM stays."""
    fleet, _ = fleets.schedule(fleet_of(), plan(duration_s=60), noon)

    assert len(fleets.advance(fleet, noon + seconds(959.999)).pending) == 1

    fleet = fleets.advance(fleet, noon + seconds(960))

    assert fleet.pending == ()
    assert fleet.ended[0].because == "Completed"
    assert all(vm.is_running for vm in fleet.vms)


@pytest.mark.parametrize(
    ("duration_s", "shown", "lasts_s"), [(None, 9, 300), (0, 0, 300), (-1, -1, 300), (5, 5, 5)]
)
def test_schedule_duration_is_shown_and_lasts(
    fleet_of: FleetOf, noon: datetime, duration_s: int | None, shown: int, lasts_s: int
) -> None:
    """0 (no interruption) and -1 (unknown) are shown, and last as long as the type's default."""
    fleet, _ = fleets.schedule(fleet_of(), plan("Freeze", duration_s=duration_s), noon)

    assert (shown, lasts_s) == (fleet.pending[0].duration_in_seconds, fleet.pending[0].lasts_s)


def test_approve_starts_at_once(fleet_of: FleetOf, noon: datetime) -> None:
    """An approval lets it start before NotBefore."""
    fleet, event_id = fleets.schedule(fleet_of(), plan(), noon)
    fleet = fleets.approve(fleet, fleet.vms[0], [event_id], noon + seconds(5))

    assert noon + seconds(5) == fleet.pending[0].started_at


def test_approve_by_another_vm_of_the_scope_is_for_all_resources(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """Any VM of the placement group may approve, and it goes for every VM in Resources."""
    fleet, event_id = fleets.schedule(fleet_of(), plan("Preempt", "web_1", "web_2"), noon)
    fleet = fleets.approve(fleet, fleets.running_vm(fleet, "web_9"), [event_id], noon)
    fleet = fleets.advance(fleet, noon + seconds(30))

    assert [vm.name for vm in fleet.vms if not vm.is_running] == ["web_1", "web_2"]


def test_approve_again_changes_nothing(fleet_of: FleetOf, noon: datetime) -> None:
    """A second approval is no error, restarts nothing and extends nothing."""
    fleet, event_id = fleets.schedule(fleet_of(), plan(duration_s=60), noon)
    once = fleets.approve(fleet, fleet.vms[0], [event_id], noon + seconds(5))
    twice = fleets.approve(once, fleet.vms[1], [event_id.lower()], noon + seconds(50))

    assert once.pending == twice.pending
    assert once.scopes == twice.scopes
    assert fleets.advance(twice, noon + seconds(65)).pending == ()


def test_approve_one_unknown_id_approves_none(fleet_of: FleetOf, noon: datetime) -> None:
    """A request with an id that is not pending does nothing at all."""
    fleet, event_id = fleets.schedule(fleet_of(), plan(), noon)

    with pytest.raises(UnknownScheduledEventError, match="nothing-like-it"):
        fleets.approve(fleet, fleet.vms[0], [event_id, "nothing-like-it"], noon)


def test_cancel_scheduled_removes_it(fleet_of: FleetOf, noon: datetime) -> None:
    """Azure may take it back: from Scheduled directly to gone, and the VM stays."""
    fleet, event_id = fleets.schedule(fleet_of(), plan("Terminate"), noon)
    fleet = fleets.cancel(fleet, event_id, noon + seconds(1))

    assert fleet.pending == ()
    assert fleet.ended[0].because == "Canceled"
    assert all(vm.is_running for vm in fleets.advance(fleet, noon + seconds(9999)).vms)


def test_cancel_started_is_refused(fleet_of: FleetOf, noon: datetime) -> None:
    """What has started goes its way."""
    fleet, event_id = fleets.schedule(fleet_of(), plan(started=True), noon)

    with pytest.raises(AlreadyStartedError):
        fleets.cancel(fleet, event_id, noon)


def test_schedule_hardware_failure_appears_started(fleet_of: FleetOf, noon: datetime) -> None:
    """A hardware failure bypasses Scheduled."""
    fleet, _ = fleets.schedule(fleet_of(), plan("Redeploy", started=True), noon)

    assert fleet.pending[0].status == "Started"
    assert fleets.advance(fleet, noon + seconds(600)).pending == ()


@pytest.mark.parametrize("event_type", ["Preempt", "Terminate"])
def test_advance_deleting_type_completed_takes_its_vms(
    fleet_of: FleetOf, noon: datetime, event_type: str
) -> None:
    """When a Preempt or Terminate is over, its VMs are gone, and not before."""
    fleet, _ = fleets.schedule(fleet_of(), plan(event_type, duration_s=20), noon)
    started_at = fleet.pending[0].not_before_at

    assert fleets.advance(fleet, started_at + seconds(19)).vms[0].is_running
    assert not fleets.advance(fleet, started_at + seconds(20)).vms[0].is_running


def test_advance_gone_vm_leaves_other_scheduled_events(fleet_of: FleetOf, noon: datetime) -> None:
    """A deleted VM is no longer named by others; those that named only it disappear."""
    fleet, _ = fleets.schedule(fleet_of(), plan("Freeze", "web_1", "web_2"), noon)
    fleet, _ = fleets.schedule(fleet, plan("Reboot", "web_1"), noon)
    fleet, _ = fleets.schedule(fleet, plan("Preempt", "web_1"), noon)
    fleet = fleets.advance(fleet, noon + seconds(60))

    assert [(s.event_type, s.resources) for s in fleet.pending] == [("Freeze", ("web_2",))]


def test_schedule_terminate_on_spot_is_refused(fleet_of: FleetOf, noon: datetime) -> None:
    """Spot VMs get Preempt, never Terminate."""
    with pytest.raises(FleetError, match="spot"):
        fleets.schedule(fleet_of(spot=True), plan("Terminate"), noon)


@pytest.mark.parametrize(
    ("resources", "message"),
    [(("web_99",), "web_99"), (("web_1", "web_1"), "twice"), (("web_1", "web_102"), "placement")],
)
def test_schedule_impossible_resources_are_refused(
    fleet_of: FleetOf, noon: datetime, resources: tuple[str, ...], message: str
) -> None:
    """Resources are different running VMs of one placement group."""
    many = ",".join(str(n) for n in range(1, 99)) + ",100,101,102"
    with pytest.raises(FleetError, match=message):
        fleets.schedule(fleet_of(instances=many), plan("Reboot", *resources), noon)


def test_placement_groups_hold_up_to_100_vms_and_see_only_their_own(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """100 VMs see a scheduled event; the 101st is in another group and sees nothing."""
    fleet = fleet_of(instances=",".join(str(n) for n in range(101)))
    fleet, event_id = fleets.schedule(fleet, plan("Reboot", "web_0"), noon)
    seen = [bool(documents.scheduled_events(fleet, vm, "2020-07-01")["Events"]) for vm in fleet.vms]

    assert seen == [True] * 100 + [False]
    assert [scope.incarnation for scope in fleet.scopes] == [2, 1]
    with pytest.raises(UnknownScheduledEventError):
        fleets.approve(fleet, fleet.vms[100], [event_id], noon)


def test_placement_group_reaches_over_all_zones(fleet_of: FleetOf, noon: datetime) -> None:
    """Scheduled events are delivered regardless of availability zones."""
    fleet, _ = fleets.schedule(fleet_of(), plan("Reboot", "web_3"), noon)

    assert all(documents.scheduled_events(fleet, vm, "2020-07-01")["Events"] for vm in fleet.vms)


def test_poll_after_24_hours_of_silence_restarts_the_incarnation(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """The feature is switched off after 24 h without a request; then it counts from 1 again."""
    fleet = fleets.poll(fleet_of(), fleet_of().vms[0], noon)
    for _ in range(5):
        fleet, _ = fleets.schedule(fleet, plan(not_before_s=9e5), noon)
    day = timedelta(hours=24)

    assert fleets.poll(fleet, fleet.vms[1], noon + day - seconds(1)).scopes[0].incarnation == 6
    assert fleets.poll(fleet, fleet.vms[1], noon + day).scopes[0].incarnation == 1
