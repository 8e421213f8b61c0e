"""Terminate notification: "Tips and best practices", one test a tip, as a VM would see it."""

from collections.abc import Callable
from datetime import datetime, timedelta

from bridge.simulator import fleet as fleets
from bridge.simulator.model import Fleet, Plan

FleetOf = Callable[..., Fleet]


def statuses(fleet: Fleet) -> dict[str, str]:
    return {s.resources[0]: s.status for s in fleet.pending}


def two_leaving(fleet: Fleet, first: datetime, second: datetime) -> tuple[Fleet, str, str]:
    fleet, id_1 = fleets.schedule(fleet, Plan(event_type="Terminate", resources=("web_1",)), first)
    fleet, id_2 = fleets.schedule(fleet, Plan(event_type="Terminate", resources=("web_2",)), second)
    return fleet, id_1, id_2


def test_no_mandatory_wait_an_approved_delete_goes_at_once(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """The terminate operation can be started at any time before NotBefore."""
    fleet, (name,) = fleets.scale_in(fleet_of(), 1, noon)
    vm = fleets.running_vm(fleet, name)
    fleet = fleets.approve(fleet, vm, [fleet.pending[0].event_id], noon + timedelta(seconds=7))

    assert {name: "Started"} == statuses(fleet)


def test_mandatory_delete_at_timeout(fleet_of: FleetOf, noon: datetime) -> None:
    """Once the timeout expires the VM is deleted, approved or not."""
    fleet, (name,) = fleets.scale_in(fleet_of(), 1, noon)
    fleet = fleets.advance(fleet, noon + timedelta(minutes=5))

    assert {name: "Started"} == statuses(fleet)

    fleet = fleets.advance(fleet, noon + timedelta(minutes=6))

    assert [name] == [vm.name for vm in fleet.vms if not vm.is_running]


def test_approve_all_an_unapproved_delete_holds_approved_ones_back(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """VM_2, approved, is not deleted until VM_1 is approved; then both are."""
    later = noon + timedelta(minutes=1)
    fleet, id_1, id_2 = two_leaving(fleet_of(), noon, later)
    fleet = fleets.approve(fleet, fleet.vms[1], [id_2], later)

    assert statuses(fleet) == {"web_1": "Scheduled", "web_2": "Scheduled"}
    assert (id_1,) == fleets.waiting_on(fleet, fleets.find(fleet, id_2))

    fleet = fleets.approve(fleet, fleet.vms[0], [id_1], later + timedelta(seconds=30))

    assert statuses(fleet) == {"web_1": "Started", "web_2": "Started"}
    assert len({s.started_at for s in fleet.pending}) == 1


def test_approve_all_a_timeout_frees_the_approved_ones(fleet_of: FleetOf, noon: datetime) -> None:
    """VM_2, approved, goes when VM_1's timeout has elapsed, before its own NotBefore."""
    fleet, _, id_2 = two_leaving(fleet_of(), noon, noon + timedelta(minutes=2))
    fleet = fleets.approve(fleet, fleet.vms[1], [id_2], noon + timedelta(minutes=3))
    fleet = fleets.advance(fleet, noon + timedelta(minutes=4, seconds=59))

    assert statuses(fleet) == {"web_1": "Scheduled", "web_2": "Scheduled"}

    fleet = fleets.advance(fleet, noon + timedelta(minutes=5))

    assert statuses(fleet) == {"web_1": "Started", "web_2": "Started"}


def test_approve_all_a_canceled_delete_no_longer_holds_back(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """What is taken back is not pending, so nobody waits for it."""
    fleet, id_1, id_2 = two_leaving(fleet_of(), noon, noon)
    fleet = fleets.approve(fleet, fleet.vms[1], [id_2], noon)
    fleet = fleets.cancel(fleet, id_1, noon + timedelta(seconds=1))

    assert statuses(fleet) == {"web_2": "Started"}


def test_equal_not_before_both_approved_or_neither_goes_early(
    fleet_of: FleetOf, noon: datetime
) -> None:
    """With the same NotBefore one approval is not enough for either VM."""
    fleet, id_1, id_2 = two_leaving(fleet_of(), noon, noon)
    fleet = fleets.approve(fleet, fleet.vms[0], [id_1], noon)

    assert statuses(fleet) == {"web_1": "Scheduled", "web_2": "Scheduled"}

    fleet = fleets.approve(fleet, fleet.vms[1], [id_2], noon)

    assert statuses(fleet) == {"web_1": "Started", "web_2": "Started"}


def test_a_new_delete_holds_back_no_started_one(fleet_of: FleetOf, noon: datetime) -> None:
    """A Terminate that has started goes on, whatever is announced after it."""
    fleet, id_1 = fleets.schedule(
        fleet_of(), Plan(event_type="Terminate", resources=("web_1",)), noon
    )
    fleet = fleets.approve(fleet, fleet.vms[0], [id_1], noon)
    fleet, _ = fleets.schedule(fleet, Plan(event_type="Terminate", resources=("web_2",)), noon)

    assert statuses(fleet) == {"web_1": "Started", "web_2": "Scheduled"}


def test_other_types_neither_hold_nor_are_held(fleet_of: FleetOf, noon: datetime) -> None:
    """Only deletions wait for each other."""
    fleet, id_1, _ = two_leaving(fleet_of(), noon, noon)
    fleet, reboot = fleets.schedule(fleet, Plan(event_type="Reboot", resources=("web_3",)), noon)
    fleet = fleets.approve(fleet, fleet.vms[0], [id_1, reboot], noon)

    assert statuses(fleet) == {"web_1": "Scheduled", "web_2": "Scheduled", "web_3": "Started"}


def test_nothing_extends_a_timeout(fleet_of: FleetOf, noon: datetime) -> None:
    """Neither a later scale-in nor an approval moves a NotBefore that was given."""
    fleet, id_1, id_2 = two_leaving(fleet_of(), noon, noon + timedelta(minutes=2))
    given = fleets.find(fleet, id_1).not_before_at
    fleet = fleets.approve(fleet, fleet.vms[1], [id_2], noon + timedelta(minutes=3))
    fleet, _ = fleets.scale_in(fleet, 3, noon + timedelta(minutes=4))

    assert given == fleets.find(fleet, id_1).not_before_at
    assert statuses(fleets.advance(fleet, given))["web_1"] == "Started"
