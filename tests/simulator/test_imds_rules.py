"""The rules of IMDS as a VM observes them: every request here is plain HTTP."""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import aiohttp
import pytest

from bridge.simulator.server import Simulator

Simulate = Callable[..., Awaitable[Simulator]]
Call = Callable[..., Awaitable[Any]]

TRUE = {"Metadata": "true"}
VERSION = "api-version=2020-07-01"
EVENTS = "/vm/web_1/metadata/scheduledevents"
REBOOT = {"type": "Reboot", "resources": ["web_1"]}


async def ask(http: aiohttp.ClientSession, url: str, **options: Any) -> tuple[int, Any]:
    options = {"method": "GET", "headers": TRUE, **options}
    async with http.request(options.pop("method"), url, **options) as response:
        assert response.content_type == "application/json"
        return response.status, await response.json()


async def test_no_scheduled_events_is_an_empty_array(simulate: Simulate, document: Call) -> None:
    """An empty array means that currently no events are scheduled."""
    assert await document(await simulate(), "web_1") == {"DocumentIncarnation": 1, "Events": []}


@pytest.mark.parametrize("headers", [{}, {"Metadata": "false"}, {"Metadata": ""}])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_metadata_header_missing_is_a_bad_request(
    simulate: Simulate, http: aiohttp.ClientSession, headers: dict[str, str], method: str
) -> None:
    """`Metadata: true` is required for all requests, POST included."""
    simulator = await simulate()
    url = f"{simulator.url}{EVENTS}?{VERSION}"
    status, body = await ask(http, url, method=method, headers=headers)

    assert status == 400
    assert "metadata header" in body["error"]


async def test_x_forwarded_for_is_rejected(simulate: Simulate, http: aiohttp.ClientSession) -> None:
    """A request must not contain X-Forwarded-For: IMDS is not for use behind a proxy."""
    simulator = await simulate()
    headers = {**TRUE, "X-Forwarded-For": "10.0.0.1"}
    status, body = await ask(http, f"{simulator.url}{EVENTS}?{VERSION}", headers=headers)

    assert status == 400
    assert "X-Forwarded-For" in body["error"]


async def test_duplicate_query_parameters_are_rejected(
    simulate: Simulate, http: aiohttp.ClientSession
) -> None:
    """Requests with duplicate query parameter names are rejected, even if they agree."""
    simulator = await simulate()
    status, body = await ask(http, f"{simulator.url}{EVENTS}?{VERSION}&{VERSION}")

    assert status == 400
    assert "Duplicate" in body["error"]


@pytest.mark.parametrize(
    "query", ["", "?api-version=latest", "?api-version=2021-12-13", "?api-version="]
)
async def test_api_version_missing_or_unknown_is_a_bad_request(
    simulate: Simulate, http: aiohttp.ClientSession, query: str
) -> None:
    """Versions are mandatory, `latest` is gone, and the error lists the newest."""
    simulator = await simulate()
    status, body = await ask(http, f"{simulator.url}{EVENTS}{query}")

    assert status == 400
    assert body["newest-versions"] == ["2020-07-01", "2019-08-01", "2019-04-01"]


@pytest.mark.parametrize(
    ("api_version", "absent"),
    [
        ("2017-03-01", {"Description", "EventSource", "DurationInSeconds"}),
        ("2017-08-01", {"Description", "EventSource", "DurationInSeconds"}),
        ("2017-11-01", {"Description", "EventSource", "DurationInSeconds"}),
        ("2019-01-01", {"Description", "EventSource", "DurationInSeconds"}),
        ("2019-04-01", {"EventSource", "DurationInSeconds"}),
        ("2019-08-01", {"DurationInSeconds"}),
        ("2020-07-01", set()),
    ],
)
async def test_api_version_decides_on_the_fields(
    simulate: Simulate, control: Call, document: Call, api_version: str, absent: set[str]
) -> None:
    """Description, EventSource and DurationInSeconds came with their own versions."""
    simulator = await simulate()
    await control(simulator, "POST", "events", REBOOT)
    (entry,) = (await document(simulator, "web_1", api_version))["Events"]
    always = {"EventId", "EventType", "ResourceType", "Resources", "EventStatus", "NotBefore"}

    assert set(entry) == (always | {"Description", "EventSource", "DurationInSeconds"}) - absent


@pytest.mark.parametrize(
    ("api_version", "types"),
    [
        ("2017-08-01", ["Freeze"]),
        ("2017-11-01", ["Freeze", "Preempt"]),
        ("2019-01-01", ["Freeze", "Preempt", "Terminate"]),
    ],
)
async def test_api_version_decides_on_the_types(
    simulate: Simulate, control: Call, document: Call, api_version: str, types: list[str]
) -> None:
    """Preempt is seen since 2017-11-01 and Terminate since 2019-01-01."""
    simulator = await simulate()
    for event_type in ("Freeze", "Preempt", "Terminate"):
        await control(simulator, "POST", "events", {"type": event_type, "resources": ["web_1"]})
    seen = (await document(simulator, "web_1", api_version))["Events"]

    assert [entry["EventType"] for entry in seen] == types


async def test_first_api_version_has_an_underscore_before_names(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """2017-08-01 removed the underscore that 2017-03-01 put before resource names."""
    simulator = await simulate()
    await control(simulator, "POST", "events", REBOOT)

    assert (await document(simulator, "web_1", "2017-03-01"))["Events"][0]["Resources"] == [
        "_web_1"
    ]
    assert (await document(simulator, "web_1", "2017-08-01"))["Events"][0]["Resources"] == ["web_1"]


async def test_entry_reads_as_documented(simulate: Simulate, control: Call, document: Call) -> None:
    """NotBefore is RFC 1123 in GMT, and every field has its documented value."""
    simulator = await simulate()
    body = {**REBOOT, "source": "User", "notBeforeS": 900, "durationS": 60, "description": "why"}
    event_id = (await control(simulator, "POST", "events", body))["eventId"]
    (entry,) = (await document(simulator, "web_1"))["Events"]

    assert entry == {
        "EventId": event_id,
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_1"],
        "NotBefore": "Wed, 18 Nov 2026 12:15:00 GMT",
        "Description": "why",
        "EventSource": "User",
        "DurationInSeconds": 60,
    }
    assert re.fullmatch(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", event_id)


async def test_life_of_a_scheduled_event_keeps_its_id_and_blanks_not_before(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """Scheduled, Started with a blank NotBefore and the same EventId, then no longer returned."""
    simulator = await simulate()
    body = {**REBOOT, "durationS": 60}
    event_id = (await control(simulator, "POST", "events", body))["eventId"]
    await control(simulator, "POST", "clock", {"advanceS": 900})
    started = (await document(simulator, "web_1"))["Events"][0]

    assert (started["EventId"], started["EventStatus"], started["NotBefore"]) == (
        event_id,
        "Started",
        "",
    )

    await control(simulator, "POST", "clock", {"advanceS": 60})

    assert (await document(simulator, "web_1"))["Events"] == []


async def test_incarnation_grows_only_when_the_events_change(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """Documents with the same incarnation contain the same event information."""
    simulator = await simulate()
    numbers = []
    for event in (None, REBOOT, None, None, REBOOT):
        if event:
            await control(simulator, "POST", "events", event)
        numbers.append((await document(simulator, "web_2"))["DocumentIncarnation"])
        await control(simulator, "POST", "clock", {"advanceS": 1})

    assert numbers == [1, 2, 2, 2, 3]


async def test_incarnation_restarts_after_24_hours_without_a_request(
    simulate: Simulate, control: Call, document: Call
) -> None:
    """Switched off after a day of silence, the count begins again; a day with polls keeps it."""
    simulator = await simulate()
    await document(simulator, "web_1")
    for _ in range(3):
        await control(simulator, "POST", "events", {**REBOOT, "notBeforeS": 300_000})
    for _ in range(2):
        await control(simulator, "POST", "clock", {"advanceS": 43_200})
        assert (await document(simulator, "web_9"))["DocumentIncarnation"] == 4
    await control(simulator, "POST", "clock", {"advanceS": 86_400})
    after = await document(simulator, "web_1")

    assert after["DocumentIncarnation"] == 1
    assert len(after["Events"]) == 3


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
async def test_other_verbs_are_not_allowed(
    simulate: Simulate, http: aiohttp.ClientSession, method: str
) -> None:
    """GET and POST are all there is."""
    simulator = await simulate()
    status, _ = await ask(http, f"{simulator.url}{EVENTS}?{VERSION}", method=method)

    assert status == 405


@pytest.mark.parametrize("path", ["", "/", "/nothing", "/scheduledevents/1", "/versions/1"])
async def test_unknown_element_is_not_found(
    simulate: Simulate, http: aiohttp.ClientSession, path: str
) -> None:
    """404: the requested element does not exist."""
    simulator = await simulate()
    status, _ = await ask(http, f"{simulator.url}/vm/web_1/metadata{path}?{VERSION}")

    assert status == 404


async def test_unknown_vm_is_not_found(simulate: Simulate, http: aiohttp.ClientSession) -> None:
    """A VM that never was has no IMDS."""
    simulator = await simulate()
    status, _ = await ask(http, f"{simulator.url}/vm/web_99/metadata/scheduledevents?{VERSION}")

    assert status == 404


async def test_gone_vm_has_no_imds(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession, document: Call, noon: datetime
) -> None:
    """When a VM is gone its connections are cut, while the others go on."""
    simulator = await simulate()
    await control(simulator, "POST", "events", {"type": "Preempt", "resources": ["web_1"]})
    await control(simulator, "POST", "clock", {"advanceS": 60})

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await ask(http, f"{simulator.url}{EVENTS}?{VERSION}")
    assert (await document(simulator, "web_2"))["Events"] == []
