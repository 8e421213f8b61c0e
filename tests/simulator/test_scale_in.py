"""Scale-in: zone balance first, then the policy, never a protected instance."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.simulator import fleet as fleets
from bridge.simulator.model import Fleet, Vm
from bridge.simulator.scale_in import select
from bridge.simulator.settings import INSTANCES, parse_instances

EXAMPLE = parse_instances(INSTANCES, "web")

FLEETS = st.lists(st.tuples(st.sampled_from("123"), st.booleans()), min_size=1, max_size=20).map(
    lambda drawn: [
        Vm(name=f"web_{n}", instance_id=n, zone=zone, group=0, protected=protected)
        for n, (zone, protected) in enumerate(drawn)
    ]
)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("OldestVM", [(2, "2"), (3, "1"), (1, "3"), (4, "1"), (6, "2"), (5, "1")]),
        ("NewestVM", [(11, "2"), (10, "1"), (9, "2"), (8, "3"), (5, "1"), (7, "3")]),
    ],
)
def test_select_documentation_example_reproduces_the_table(
    policy: str, expected: list[tuple[int, str]]
) -> None:
    """Both six-row tables of the scale-in page come out, VM by VM and zone by zone."""
    selected = select(EXAMPLE, policy, 6)

    assert expected == [(vm.instance_id, vm.zone) for vm in selected]


def test_select_default_policy_takes_the_highest_instance_id() -> None:
    """Default balances zones, then takes the VM with the highest instance id."""
    selected = select(EXAMPLE, "Default", 6)

    assert [vm.instance_id for vm in selected] == [11, 10, 9, 8, 5, 7]


def test_select_without_zones_goes_by_age_alone() -> None:
    """A scale set without zones has nothing to balance."""
    vms = parse_instances("4,1,3,2", "web")

    assert [vm.instance_id for vm in select(vms, "OldestVM", 3)] == [1, 2, 3]
    assert [vm.instance_id for vm in select(vms, "NewestVM", 3)] == [4, 3, 2]


def test_select_fullest_zone_all_protected_goes_to_the_next() -> None:
    """When nothing in the fullest zone may go, the fullest zone that has anything is next."""
    vms = [
        *(Vm(name=f"a_{n}", instance_id=n, zone="1", group=0, protected=True) for n in range(3)),
        Vm(name="a_7", instance_id=7, zone="2", group=0),
    ]

    assert [vm.name for vm in select(vms, "OldestVM", 5)] == ["a_7"]


@given(
    vms=FLEETS,
    policy=st.sampled_from(["Default", "NewestVM", "OldestVM"]),
    count=st.integers(0, 25),
)
def test_select_any_fleet_takes_what_it_may_once(vms: list[Vm], policy: str, count: int) -> None:
    """Never a protected VM, never one twice, and as many as asked for if there are so many."""
    selected = select(vms, policy, count)

    assert not any(vm.protected for vm in selected)
    assert len(set(selected)) == len(selected)
    assert min(count, sum(not vm.protected for vm in vms)) == len(selected)


@given(vms=FLEETS, policy=st.sampled_from(["Default", "NewestVM", "OldestVM"]))
def test_select_any_fleet_deletes_from_the_fullest_zone(vms: list[Vm], policy: str) -> None:
    """No zone with an unprotected VM is fuller than the one a VM is taken from."""
    remaining = list(vms)
    for victim in select(vms, policy, len(vms)):
        sizes = Counter(vm.zone for vm in remaining)

        assert sizes[victim.zone] == max(sizes[vm.zone] for vm in remaining if not vm.protected)
        remaining.remove(victim)


def test_scale_in_gives_each_vm_a_terminate_event_of_its_own(
    fleet_of: Callable[..., Fleet], noon: datetime
) -> None:
    """VMs that leave together have one Terminate each, with the same NotBefore."""
    fleet, selected = fleets.scale_in(fleet_of(policy="OldestVM"), 2, noon)

    assert selected == ("web_2", "web_3")
    assert [s.resources for s in fleet.pending] == [("web_2",), ("web_3",)]
    assert {"Terminate"} == {s.event_type for s in fleet.pending}
    assert {noon + timedelta(minutes=5)} == {s.not_before_at for s in fleet.pending}


def test_scale_in_again_goes_on_where_the_first_left_off(
    fleet_of: Callable[..., Fleet], noon: datetime
) -> None:
    """VMs that are already leaving are neither chosen nor counted a second time."""
    fleet = fleet_of(policy="NewestVM")
    order: list[str] = []
    for _ in range(6):
        fleet, selected = fleets.scale_in(fleet, 1, noon)
        order += selected

    assert order == ["web_11", "web_10", "web_9", "web_8", "web_5", "web_7"]


def test_scale_in_skips_protected_instances(fleet_of: Callable[..., Fleet], noon: datetime) -> None:
    """Instance protection keeps a VM out of a scale-in, and gives it back when lifted."""
    fleet = fleets.protect(fleet_of(policy="OldestVM"), "web_2", True, noon)

    assert fleets.scale_in(fleet, 1, noon)[1] == ("web_3",)

    fleet = fleets.protect(fleet, "web_2", False, noon)

    assert fleets.scale_in(fleet, 1, noon)[1] == ("web_2",)


@pytest.mark.parametrize("settings", [{"terminate_notification": "off"}, {"spot": True}])
def test_scale_in_without_terminate_notification_deletes_at_once(
    fleet_of: Callable[..., Fleet], noon: datetime, settings: dict[str, object]
) -> None:
    """Without the profile, and always on spot, a deletion comes without notice."""
    fleet, selected = fleets.scale_in(fleet_of(**settings), 1, noon)

    assert selected == ("web_11",)
    assert fleet.pending == ()
    assert noon == fleet.vms[-1].gone_at
