"""The named scenarios, each watched through a VM's document on the virtual clock."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bridge.simulator.scenarios import SCENARIOS
from bridge.simulator.server import Simulator
from bridge.simulator.settings import Settings
from bridge.simulator.world import World

Simulate = Callable[..., Awaitable[Simulator]]
Call = Callable[..., Awaitable[Any]]


async def watch(
    simulator: Simulator, control: Call, document: Call, *, until_s: int, vm: str
) -> list[Any]:
    """Every document that differs from the one before, polled every ten seconds."""
    documents = [await document(simulator, vm)]
    for _ in range(0, until_s, 10):
        await control(simulator, "POST", "clock", {"advanceS": 10})
        current = await document(simulator, vm)
        if current != documents[-1]:
            documents.append(current)
    return documents


def brief(document: Any) -> list[tuple[str, str, str]]:
    return [
        (e["EventType"], e["EventStatus"], ",".join(e["Resources"])) for e in document["Events"]
    ]


async def test_scale_in_comes_by_policy(simulate: Simulate, control: Call, document: Call) -> None:
    """Two VMs, then a third; without approvals each goes at its own timeout."""
    simulator = await simulate(scenario="scale-in", policy="OldestVM")
    seen = [brief(d) for d in await watch(simulator, control, document, until_s=700, vm="web_11")]

    assert seen[0] == []
    assert seen[1] == [("Terminate", "Scheduled", "web_2"), ("Terminate", "Scheduled", "web_3")]
    assert seen[2] == [*seen[1], ("Terminate", "Scheduled", "web_1")]
    assert seen[-1] == []


async def test_scenario_is_shortened_with_its_notices(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """Ten times shorter, the first scale-in comes after one second, and all is over in a minute."""
    simulator = await simulate(scenario="scale-in", shorten=10.0)
    await control(simulator, "POST", "clock", {"advanceS": 1})
    first = await document(simulator, "web_1")
    await control(simulator, "POST", "clock", {"advanceS": 60})

    assert len(first["Events"]) == 2
    assert (await document(simulator, "web_1"))["Events"] == []


async def test_rolling_reboot_takes_one_vm_at_a_time(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """Every VM has its turn, and no two are named at the same time."""
    simulator = await simulate(scenario="rolling-reboot", instances="1:1;2:2;3:3")
    seen = [brief(d) for d in await watch(simulator, control, document, until_s=3300, vm="web_1")]

    assert max(len(entries) for entries in seen) == 1
    assert [e[2] for entries in seen for e in entries if e[1] == "Started"] == [
        "web_1",
        "web_2",
        "web_3",
    ]


async def test_spot_eviction_gives_half_a_minute(
    simulate: Simulate, control: Call, document: Call, state: Call
) -> None:
    """Spot VMs are preempted one after the other, and are gone."""
    simulator = await simulate(scenario="spot-eviction")
    seen = [brief(d) for d in await watch(simulator, control, document, until_s=120, vm="web_11")]
    after = await state(simulator)

    assert seen[1] == [("Preempt", "Scheduled", "web_1")]
    assert after["scaleSet"]["spot"] is True
    assert [vm["name"] for vm in after["vms"] if vm["state"] == "gone"] == [
        "web_1",
        "web_2",
        "web_3",
    ]


async def test_host_failure_appears_started_for_all_its_vms(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """No notice for the host that failed, days of it for the one that is predicted to."""
    simulator = await simulate(scenario="host-failure")
    seen = await watch(simulator, control, document, until_s=60, vm="web_5")

    assert brief(seen[1]) == [("Redeploy", "Started", "web_1,web_2")]
    assert seen[-1]["Events"][1]["NotBefore"] == "Wed, 25 Nov 2026 12:00:40 GMT"


async def test_canceled_disappears_without_starting(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """Announced, taken back after eight minutes, never Started."""
    simulator = await simulate(scenario="canceled")
    seen = [brief(d) for d in await watch(simulator, control, document, until_s=1200, vm="web_1")]

    assert seen == [[], [("Freeze", "Scheduled", "web_1")], []]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("scale-in", {"count": 1}),
        ("protect", {"vm": "web_1", "protected": True}),
        ("events", {"type": "Reboot", "resources": ["web_1"]}),
        ("clock", {"speed": 2}),
    ],
)
async def test_step_that_is_due_survives_a_control_call(
    simulate: Simulate, control: Call, state: Call, path: str, body: dict[str, Any]
) -> None:
    """What the scenario did in the moment of a call is not undone by the call."""
    simulator = await simulate(scenario="canceled")
    simulator.world.clock.advance(10)
    await control(simulator, "POST", path, body)

    assert (await state(simulator))["events"][0]["type"] == "Freeze"


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("instances", ["0", "1:0;2:1", "1:1,2,3;2:4"])
def test_scenario_fits_every_fleet_however_it_is_watched(scenario: str, instances: str) -> None:
    """One look at the end sees the same fleet as a look every few seconds."""
    start_at = datetime(2026, 11, 18, 12, tzinfo=UTC)
    settings = Settings(
        scenario=scenario, instances=instances, start_at=start_at, speed=0, seed="s"
    )
    patient, restless = World(settings), World(settings)
    patient.clock.advance(9 * 86_400)
    patient.advance()
    for _ in range(9 * 24):
        restless.clock.advance(3600)
        restless.advance()

    assert patient.fleet == restless.fleet
    assert not patient.steps
    assert patient.fleet.pending == ()
