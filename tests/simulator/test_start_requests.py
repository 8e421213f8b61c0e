"""Approving over HTTP: what the documentation says of POST, and what bad bodies get."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.simulator import imds
from bridge.simulator.server import Simulator

Simulate = Callable[..., Awaitable[Simulator]]
Call = Callable[..., Awaitable[Any]]

REBOOT = {"type": "Reboot", "resources": ["web_1"]}


async def scheduled(control: Call, simulator: Simulator, **values: Any) -> str:
    answer = await control(simulator, "POST", "events", {**REBOOT, **values})
    return str(answer["eventId"])


async def test_post_starts_the_event_for_all_vms(
    simulate: Simulate, control: Call, approve: Call, document: Call
) -> None:
    """One VM approves, and the scheduled event is Started in every VM's document."""
    simulator = await simulate()
    event_id = await scheduled(control, simulator, resources=["web_1", "web_2"])

    assert await approve(simulator, "web_1", event_id) == 200
    for vm in ("web_1", "web_2", "web_11"):
        assert (await document(simulator, vm))["Events"][0]["EventStatus"] == "Started"


async def test_post_is_success_even_if_another_vm_approved_before(
    simulate: Simulate, control: Call, approve: Call
) -> None:
    """Always 200 for a valid event id, approved already or not, started or not."""
    simulator = await simulate()
    event_id = await scheduled(control, simulator)

    assert [await approve(simulator, vm, event_id) for vm in ("web_1", "web_2", "web_1")] == [
        200
    ] * 3


async def test_post_may_hold_several_ids(
    simulate: Simulate, control: Call, approve: Call, document: Call
) -> None:
    """The list of StartRequests can name several events."""
    simulator = await simulate()
    event_ids = [await scheduled(control, simulator) for _ in range(2)]

    assert await approve(simulator, "web_3", *event_ids) == 200
    statuses = {entry["EventStatus"] for entry in (await document(simulator, "web_3"))["Events"]}
    assert statuses == {"Started"}


async def test_post_id_is_compared_without_case(
    simulate: Simulate, control: Call, approve: Call
) -> None:
    """A GUID is the same GUID in lower case."""
    simulator = await simulate()
    event_id = await scheduled(control, simulator)

    assert await approve(simulator, "web_1", event_id.lower()) == 200


async def test_post_unknown_or_ended_id_is_a_bad_request_that_changes_nothing(
    simulate: Simulate, control: Call, approve: Call, document: Call
) -> None:
    """An id that is not pending is no valid event id, and spoils the request as a whole."""
    simulator = await simulate()
    event_id = await scheduled(control, simulator)
    ended = await scheduled(control, simulator)
    await control(simulator, "DELETE", f"events/{ended}")
    before = await document(simulator, "web_1")

    assert await approve(simulator, "web_1", "00000000-0000-0000-0000-000000000000") == 400
    assert await approve(simulator, "web_1", event_id, ended) == 400
    assert await document(simulator, "web_1") == before


async def test_post_from_another_placement_group_is_a_bad_request(
    simulate: Simulate, control: Call, approve: Call, document: Call
) -> None:
    """Only VMs of the same placement group see an event and may approve it."""
    simulator = await simulate(instances=",".join(str(n) for n in range(101)))
    event_id = await scheduled(control, simulator, resources=["web_5"])

    assert (await document(simulator, "web_100"))["Events"] == []
    assert await approve(simulator, "web_100", event_id) == 400
    assert await approve(simulator, "web_99", event_id) == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"no JSON",
        b'{"StartRequests": []}',
        b'{"StartRequests": {}}',
        b'{"StartRequests": ["id"]}',
        b'{"StartRequests": [{}]}',
        b'{"StartRequests": [{"EventId": 7}]}',
        b'{"StartRequests": [{"EventId": null}]}',
        b'{"startrequests": [{"eventid": "x"}]}',
        b'{"StartRequests": [{"EventId": "\xff"}]}',
        b'{"StartRequests": ' + b"[" * 5000,
        b'{"x": ' + b"[" * 5000,
    ],
)
async def test_post_malformed_body_is_a_bad_request(
    simulate: Simulate, http: aiohttp.ClientSession, body: bytes
) -> None:
    """A 400 indicates that the payload was malformed; it says how, in JSON."""
    simulator = await simulate()
    url = f"{simulator.endpoint('web_1')}/metadata/scheduledevents?api-version=2020-07-01"
    async with http.post(url, data=body, headers={"Metadata": "true"}) as response:
        assert response.status == 400
        assert (await response.json())["error"].startswith("Bad request. ")


async def test_post_needs_no_content_type(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession
) -> None:
    """Microsoft's own samples send the body as a form; the service does not insist."""
    simulator = await simulate()
    event_id = await scheduled(control, simulator)
    url = f"{simulator.endpoint('web_1')}/metadata/scheduledevents?api-version=2019-08-01"
    headers = {"Metadata": "true", "Content-Type": "application/x-www-form-urlencoded"}
    body = msgspec.json.encode({"StartRequests": [{"EventId": event_id}], "DocumentIncarnation": 2})
    async with http.post(url, data=body, headers=headers) as response:
        assert response.status == 200


async def test_scale_in_goes_together_only_when_all_are_approved(
    simulate: Simulate, control: Call, approve: Call, document: Call, state: Call
) -> None:
    """Two VMs leave by policy: one approval moves nothing, the second lets both go."""
    simulator = await simulate(policy="OldestVM")
    selected = (await control(simulator, "POST", "scale-in", {"count": 2}))["selected"]
    ids = {e["Resources"][0]: e["EventId"] for e in (await document(simulator, "web_1"))["Events"]}
    await approve(simulator, "web_2", ids["web_2"])
    waiting = {e["resources"][0]: e["waitingOn"] for e in (await state(simulator))["events"]}

    assert selected == ["web_2", "web_3"]
    assert waiting == {"web_2": [ids["web_3"]], "web_3": []}

    await approve(simulator, "web_3", ids["web_3"])
    await control(simulator, "POST", "clock", {"advanceS": 60})
    gone = [vm["name"] for vm in (await state(simulator))["vms"] if vm["state"] == "gone"]

    assert gone == ["web_2", "web_3"]


async def test_requests_are_counted_and_posts_logged(
    simulate: Simulate, control: Call, approve: Call, document: Call, state: Call
) -> None:
    """The state tells how often each VM asked, and every POST with its ids and answer."""
    simulator = await simulate()
    event_id = await scheduled(control, simulator)
    await document(simulator, "web_1")
    await document(simulator, "web_1")
    await approve(simulator, "web_1", event_id)
    await approve(simulator, "web_2", "unknown")
    seen = await state(simulator)
    log = [(p["vm"], p["eventIds"], p["status"], p["taken"]) for p in seen["startRequests"]]

    assert seen["requests"]["web_1"] == {"GET": 2, "POST": 1}
    assert seen["requests"]["web_2"] == {"GET": 0, "POST": 1}
    assert log == [("web_1", [event_id], 200, True), ("web_2", ["unknown"], 400, True)]


@given(st.binary(max_size=200))
def test_event_ids_any_bytes_are_ids_or_malformed(body: bytes) -> None:
    """Whatever comes in, it is understood or it is a DecodeError."""
    try:
        event_ids = imds.event_ids(body)
    except msgspec.DecodeError:
        return
    assert event_ids
