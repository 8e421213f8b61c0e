"""The control API: what it does, and that bad input says what and where and does nothing."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bridge.simulator.server import Simulator

Simulate = Callable[..., Awaitable[Simulator]]
Call = Callable[..., Awaitable[Any]]


async def test_state_shows_clock_vms_events_and_requests(
    simulate: Simulate, control: Call, state: Call
) -> None:
    """Everything the contract names is in the state, under the names it promises."""
    simulator = await simulate(instances="1:1;2:2")
    event_id = (
        await control(simulator, "POST", "events", {"type": "Freeze", "resources": ["web_2"]})
    )["eventId"]
    seen = await state(simulator)

    assert seen["clock"] == {"now": "2026-11-18T12:00:00Z", "speed": 0.0}
    assert seen["vms"][0] == {
        "name": "web_1",
        "instanceId": 1,
        "zone": "1",
        "placementGroup": 0,
        "protected": False,
        "state": "running",
        "goneAt": None,
        "endpoint": "/vm/web_1",
    }
    assert seen["events"][0] == {
        "eventId": event_id,
        "type": "Freeze",
        "resources": ["web_2"],
        "status": "Scheduled",
        "source": "Platform",
        "notBefore": "2026-11-18T12:15:00Z",
        "approved": False,
        "waitingOn": [],
        "startedAt": None,
        "lastsS": 300.0,
        "durationInSeconds": 9,
        "description": "Host server is undergoing maintenance.",
    }
    assert seen["requests"] == {"web_1": {"GET": 0, "POST": 0}, "web_2": {"GET": 0, "POST": 0}}


async def test_scale_in_selects_by_policy_and_protection(simulate: Simulate, control: Call) -> None:
    """Protected VMs are passed over, and the answer names who goes."""
    simulator = await simulate(policy="OldestVM")
    answer = await control(simulator, "POST", "protect", {"vm": "web_2", "protected": True})

    assert answer == {"vm": "web_2", "protected": True}
    assert await control(simulator, "POST", "scale-in", {"count": 2}) == {
        "selected": ["web_3", "web_6"]
    }


async def test_scale_in_more_than_there_are_selects_what_there_is(
    simulate: Simulate, control: Call
) -> None:
    """A scale-in takes no more than the unprotected VMs."""
    simulator = await simulate(instances="1:1;2:2")

    assert await control(simulator, "POST", "scale-in", {"count": 9}) == {
        "selected": ["web_2", "web_1"]
    }


async def test_event_started_has_no_notice(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """A hardware failure appears Started, for all VMs on the host in one event."""
    simulator = await simulate()
    body = {"type": "Redeploy", "resources": ["web_1", "web_2"], "status": "Started"}
    await control(simulator, "POST", "events", body)
    (entry,) = (await document(simulator, "web_7"))["Events"]

    assert (entry["EventStatus"], entry["NotBefore"]) == ("Started", "")
    assert entry["Resources"] == ["web_1", "web_2"]


async def test_delete_cancels_what_is_scheduled(
    simulate: Simulate, control: Call, document: Call, state: Call
) -> None:
    """A canceled event is gone from the document; the state remembers why."""
    simulator = await simulate()
    event_id = (
        await control(simulator, "POST", "events", {"type": "Reboot", "resources": ["web_1"]})
    )["eventId"]

    assert await control(simulator, "DELETE", f"events/{event_id.lower()}") == {
        "canceled": event_id.lower()
    }
    assert (await document(simulator, "web_1"))["Events"] == []
    assert (await state(simulator))["ended"][0]["because"] == "Canceled"


async def test_delete_unknown_or_started_event_is_refused(
    simulate: Simulate, control: Call
) -> None:
    """404 for what is not pending, 409 for what has started."""
    simulator = await simulate()
    body = {"type": "Reboot", "resources": ["web_1"], "status": "Started"}
    event_id = (await control(simulator, "POST", "events", body))["eventId"]

    assert "nothing" in (await control(simulator, "DELETE", "events/nothing", status=404))["error"]
    assert (
        "started" in (await control(simulator, "DELETE", f"events/{event_id}", status=409))["error"]
    )


async def test_clock_advances_and_changes_speed(simulate: Simulate, control: Call) -> None:
    """Advance jumps, speed lets simulated time run; both can come together."""
    simulator = await simulate()

    assert await control(simulator, "POST", "clock", {"advanceS": 300}) == {
        "now": "2026-11-18T12:05:00Z",
        "speed": 0.0,
    }
    running = await control(simulator, "POST", "clock", {"advanceS": 55 * 60, "speed": 60})
    assert (running["now"][:16], running["speed"]) == ("2026-11-18T13:00", 60.0)


async def test_clock_jump_plays_what_lies_between_in_order(
    simulate: Simulate, control: Call, document: Call, state: Call
) -> None:
    """One jump over start and end leaves the same incarnation as going step by step."""
    simulator, stepper = await simulate(), await simulate()
    for world in (simulator, stepper):
        await document(world, "web_1")
        await control(
            world, "POST", "events", {"type": "Reboot", "resources": ["web_1"], "durationS": 60}
        )
    await control(simulator, "POST", "clock", {"advanceS": 3600})
    for _ in range(60):
        await control(stepper, "POST", "clock", {"advanceS": 60})

    assert await document(simulator, "web_1") == await document(stepper, "web_1")
    assert (await document(simulator, "web_1"))["DocumentIncarnation"] == 4
    assert (await state(simulator))["ended"][0]["endedAt"] == "2026-11-18T12:16:00Z"


BAD = [
    ("scale-in", b"", "truncated"),
    ("scale-in", b"no JSON", "malformed"),
    ("scale-in", b"[" * 9000, ""),
    ("scale-in", b"\xff", "malformed"),
    ("scale-in", [], "Expected `object`"),
    ("scale-in", {}, "count"),
    ("scale-in", {"count": "2"}, "$.count"),
    ("scale-in", {"count": 0}, "$.count"),
    ("scale-in", {"count": 1.5}, "$.count"),
    ("scale-in", {"count": 1, "policy": "OldestVM"}, "policy"),
    ("protect", {"vm": "web_99", "protected": True}, "$.vm"),
    ("protect", {"vm": "web_1"}, "protected"),
    ("protect", {"vm": "web_1", "protected": 1}, "$.protected"),
    ("events", {"type": "Reimage", "resources": ["web_1"]}, "$.type"),
    ("events", {"type": "Reboot", "resources": []}, "$.resources"),
    ("events", {"type": "Reboot", "resources": ["web_1", "web_99"]}, "$.resources[1]"),
    ("events", {"type": "Reboot", "resources": ["web_1", "web_1"]}, "twice"),
    ("events", {"type": "Reboot", "resources": ["web_1"], "notBeforeS": -1}, "$.notBeforeS"),
    ("events", {"type": "Reboot", "resources": ["web_1"], "durationS": -2}, "$.durationS"),
    ("events", {"type": "Reboot", "resources": ["web_1"], "status": "Completed"}, "$.status"),
    ("events", {"type": "Reboot", "resources": ["web_1"], "source": "Me"}, "$.source"),
    ("clock", {}, "advanceS"),
    ("clock", {"speed": -1}, "$.speed"),
    ("clock", {"advanceS": 1e300}, "$.advanceS"),
    ("clock", {"advanceS": -5}, "$.advanceS"),
    ("faults", {}, "kind"),
    ("faults", {"kind": "explode"}, "$.kind"),
    ("faults", {"kind": "status"}, "$.status"),
    ("faults", {"kind": "drop", "status": 500}, "$.status"),
    ("faults", {"kind": "status", "status": 99}, "$.status"),
    ("faults", {"kind": "delay"}, "$.delayS"),
    ("faults", {"kind": "drop", "vm": "web_99"}, "$.vm"),
    ("faults", {"kind": "drop", "count": 0}, "$.count"),
    ("faults", {"kind": "drop", "method": "PUT"}, "$.method"),
]


@pytest.mark.parametrize(("path", "body", "where"), BAD)
async def test_bad_input_says_what_and_where(
    simulate: Simulate, control: Call, state: Call, *, path: str, body: Any, where: str
) -> None:
    """A 400 with a JSON error that names the place, and nothing has changed."""
    simulator = await simulate()
    before = await state(simulator)
    answer = await control(simulator, "POST", path, body, status=400)

    assert where in answer["error"]
    assert await state(simulator) == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "nothing", 404),
        ("GET", "clock", 405),
        ("POST", "state", 405),
        ("PUT", "faults", 405),
    ],
)
async def test_unknown_calls_are_answered_in_json(
    simulate: Simulate, control: Call, method: str, path: str, status: int
) -> None:
    """Wrong paths and verbs get a JSON error, too."""
    answer = await control(await simulate(), method, path, status=status)

    assert method in answer["error"]


async def test_clock_beyond_the_calendar_is_refused(simulate: Simulate, control: Call) -> None:
    """Simulated time stays inside what dates can hold."""
    simulator = await simulate(start_at=datetime(8999, 6, 1, tzinfo=UTC))
    answer = await control(simulator, "POST", "clock", {"advanceS": 366 * 86_400}, status=400)

    assert "9000" in answer["error"]


async def test_oversized_body_is_refused(simulate: Simulate, control: Call) -> None:
    """A body has a limit."""
    await control(await simulate(), "POST", "scale-in", b" " * 100_000, status=413)
