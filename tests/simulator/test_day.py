"""A day of simulated time in seconds, judged by a scripted client that knows only IMDS."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Any

from bridge.simulator.server import Simulator

Simulate = Callable[..., Awaitable[Simulator]]
Call = Callable[..., Awaitable[Any]]

HOURS = 24
MINUTES = 60


class Watcher:
    """Checks each document against the one before by what the documentation promises."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.before = first
        self.seen: dict[str, list[str]] = {}

    def look(self, document: dict[str, Any]) -> None:
        grew = document["DocumentIncarnation"] - self.before["DocumentIncarnation"]
        assert (grew > 0) == (document["Events"] != self.before["Events"])
        for entry in document["Events"]:
            states = self.seen.setdefault(entry["EventId"], [])
            if entry["EventStatus"] not in states[-1:]:
                states.append(entry["EventStatus"])
            assert (entry["NotBefore"] == "") == (entry["EventStatus"] == "Started")
            assert entry["NotBefore"] == "" or parsedate_to_datetime(entry["NotBefore"]).tzinfo
            assert states in (["Scheduled"], ["Scheduled", "Started"], ["Started"])
        self.before = document


async def test_a_day_of_maintenance(
    simulate: Simulate, control: Call, document: Call, approve: Call, state: Call
) -> None:
    """Every hour something is announced, every other one is approved, and all ends well."""
    simulator = await simulate(instances="1:1,4;2:2,5;3:3,6")
    watcher = Watcher(await document(simulator, "web_1"))
    types = ["Freeze", "Reboot", "Redeploy"]
    for hour in range(HOURS):
        body = {"type": types[hour % 3], "resources": [f"web_{hour % 6 + 1}"], "durationS": 300}
        event_id = (await control(simulator, "POST", "events", body))["eventId"]
        if hour % 2:
            await approve(simulator, f"web_{hour % 6 + 1}", event_id)
        for _ in range(MINUTES):
            await control(simulator, "POST", "clock", {"advanceS": 60})
            watcher.look(await document(simulator, "web_1"))
    after = await state(simulator)

    assert after["clock"]["now"] == "2026-11-19T12:00:00Z"
    assert Counter(map(tuple, watcher.seen.values())) == {
        ("Scheduled", "Started"): HOURS // 2,
        ("Started",): HOURS // 2,
    }
    assert after["events"] == []
    assert len(after["startRequests"]) == HOURS // 2
    assert after["requests"]["web_1"]["GET"] == HOURS * MINUTES + 1


async def test_time_lapse_needs_no_help(simulate: Simulate, document: Call, control: Call) -> None:
    """At speed, an hour's notice and what follows pass by themselves."""
    simulator = await simulate(speed=5_000)
    await control(
        simulator,
        "POST",
        "events",
        {"type": "Freeze", "resources": ["web_1"], "notBeforeS": 3600, "durationS": 3600},
    )
    seen: list[list[str]] = []
    async with asyncio.timeout(10):
        while not seen or seen[-1]:
            seen.append([e["EventStatus"] for e in (await document(simulator, "web_1"))["Events"]])
    statuses = [entry for index, entry in enumerate(seen) if entry not in seen[:index]]

    assert statuses == [["Scheduled"], ["Started"], []]
