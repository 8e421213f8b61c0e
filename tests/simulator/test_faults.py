"""Faults: each kind as the VM sees it, and whether the request was taken all the same."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from bridge.simulator.server import Simulator

Simulate = Callable[..., Awaitable[Simulator]]
Call = Callable[..., Awaitable[Any]]

TRUE = {"Metadata": "true"}


async def get(
    http: aiohttp.ClientSession, simulator: Simulator, vm: str = "web_1"
) -> tuple[int, bytes]:
    url = f"{simulator.endpoint(vm)}/metadata/scheduledevents?api-version=2020-07-01"
    async with http.get(url, headers=TRUE) as response:
        return response.status, await response.read()


@pytest.mark.parametrize("status", [410, 429, 500, 503])
async def test_status_answers_so_often_and_then_no_more(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession, status: int
) -> None:
    """The next `count` requests get the status; then all is well."""
    simulator = await simulate()
    body = {"vm": None, "method": "GET", "kind": "status", "status": status, "count": 2}
    await control(simulator, "POST", "faults", body)
    statuses = [(await get(http, simulator, vm))[0] for vm in ("web_1", "web_2", "web_1")]

    assert statuses == [status, status, 200]


async def test_empty_is_a_200_without_a_body(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession
) -> None:
    """As seen in production: success and nothing in it."""
    simulator = await simulate()
    await control(simulator, "POST", "faults", {"kind": "empty"})

    assert await get(http, simulator) == (200, b"")


async def test_garbage_is_a_200_that_does_not_parse(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession
) -> None:
    """A document cut off in the middle of a character."""
    simulator = await simulate()
    await control(simulator, "POST", "faults", {"kind": "garbage"})
    status, body = await get(http, simulator)

    assert status == 200
    with pytest.raises(UnicodeDecodeError):
        body.decode()


@pytest.mark.parametrize(
    ("kind", "error"),
    [("drop", aiohttp.ServerDisconnectedError), ("reset", aiohttp.ClientOSError)],
)
async def test_cut_connection_gives_no_answer(
    simulate: Simulate,
    control: Call,
    http: aiohttp.ClientSession,
    kind: str,
    error: type[Exception],
) -> None:
    """Drop ends in silence, reset with an RST."""
    simulator = await simulate()
    # Twice, because aiohttp tries a GET a second time by itself.
    await control(simulator, "POST", "faults", {"kind": kind, "count": 2})

    with pytest.raises(error):
        await get(http, simulator)


async def test_delay_answers_late(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession
) -> None:
    """The true answer comes, after the delay."""
    simulator = await simulate()
    await control(simulator, "POST", "faults", {"kind": "delay", "delayS": 0.2})
    begin = asyncio.get_running_loop().time()

    assert (await get(http, simulator))[0] == 200
    assert asyncio.get_running_loop().time() - begin >= 0.19


@pytest.mark.parametrize(
    ("fault", "taken", "answered"),
    [
        ({"kind": "status", "status": 500}, False, 500),
        ({"kind": "status", "status": 500, "taken": True}, True, 500),
        ({"kind": "reset"}, False, None),
        ({"kind": "reset", "taken": True}, True, None),
        ({"kind": "drop"}, True, None),
        ({"kind": "empty"}, True, 200),
        ({"kind": "garbage"}, True, 200),
        ({"kind": "delay", "delayS": 0.01}, True, 200),
    ],
)
async def test_post_under_a_fault_is_taken_or_not(
    simulate: Simulate,
    control: Call,
    approve: Call,
    state: Call,
    *,
    fault: dict[str, Any],
    taken: bool,
    answered: int | None,
) -> None:
    """A lost answer is not a lost request: the approval counts where it was taken."""
    simulator = await simulate()
    event_id = (
        await control(simulator, "POST", "events", {"type": "Reboot", "resources": ["web_1"]})
    )["eventId"]
    await control(simulator, "POST", "faults", {"method": "POST", **fault})
    try:
        status = await approve(simulator, "web_1", event_id)
    except aiohttp.ClientError:
        status = None
    seen = await state(simulator)

    assert status == answered
    assert seen["events"][0]["status"] == ("Started" if taken else "Scheduled")
    assert [(p["eventIds"], p["status"], p["taken"]) for p in seen["startRequests"]] == [
        ([event_id], answered, taken)
    ]


async def test_fault_hits_only_its_vm_method_and_endpoint(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession, approve: Call, state: Call
) -> None:
    """Other VMs, verbs and endpoints do not notice, and do not use it up."""
    simulator = await simulate()
    fault = {"vm": "web_2", "method": "GET", "kind": "status", "status": 503}
    await control(simulator, "POST", "faults", fault)
    instance = f"{simulator.endpoint('web_2')}/metadata/instance?api-version=2021-12-13"

    assert (await get(http, simulator, "web_1"))[0] == 200
    assert await approve(simulator, "web_2", "unknown") == 400
    async with http.get(instance, headers=TRUE) as response:
        assert response.status == 200
    assert len((await state(simulator))["faults"]) == 1
    assert (await get(http, simulator, "web_2"))[0] == 503


async def test_fault_on_instance_metadata(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession
) -> None:
    """The other endpoint can fail as well."""
    simulator = await simulate()
    await control(
        simulator, "POST", "faults", {"kind": "status", "status": 500, "endpoint": "instance"}
    )
    url = f"{simulator.endpoint('web_1')}/metadata/instance?api-version=2021-12-13"
    async with http.get(url, headers=TRUE) as response:
        assert response.status == 500


async def test_faults_come_in_order_and_can_be_cleared(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession
) -> None:
    """First come, first served; DELETE takes all that are left away."""
    simulator = await simulate()
    for status in (500, 503, 410):
        await control(simulator, "POST", "faults", {"kind": "status", "status": status})

    assert [(await get(http, simulator))[0] for _ in range(2)] == [500, 503]
    assert await control(simulator, "DELETE", "faults") == {"faults": []}
    assert (await get(http, simulator))[0] == 200


async def test_too_many_requests_use_up_no_fault_and_are_not_taken(
    simulate: Simulate, control: Call, http: aiohttp.ClientSession, approve: Call, state: Call
) -> None:
    """The rate limit stands before everything; its 429 for a POST is in the log."""
    simulator = await simulate(requests_per_s_max=1)
    await get(http, simulator)
    await control(simulator, "POST", "faults", {"kind": "drop"})
    status = await approve(simulator, "web_1", "some-id")
    seen = await state(simulator)

    assert status == 429
    assert len(seen["faults"]) == 1
    assert [(p["status"], p["taken"]) for p in seen["startRequests"]] == [(429, False)]


async def test_vm_that_goes_while_it_waits_gets_no_answer(
    simulate: Simulate, control: Call, state: Call, http: aiohttp.ClientSession
) -> None:
    """A request that waits for the slow first call is cut off when its VM is gone by then."""
    simulator = await simulate(first_call_delay_s=0.2)
    await control(simulator, "POST", "events", {"type": "Preempt", "resources": ["web_1"]})
    waiting = asyncio.create_task(get(http, simulator))
    async with asyncio.timeout(5):
        while not (await state(simulator))["requests"]["web_1"]["GET"]:
            pass
    await control(simulator, "POST", "clock", {"advanceS": 60})

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await waiting


async def test_stop_does_not_wait_for_a_delayed_answer(
    simulate: Simulate, control: Call, state: Call, http: aiohttp.ClientSession
) -> None:
    """The end comes at once, whoever still waits."""
    simulator = await simulate()
    await control(simulator, "POST", "faults", {"kind": "delay", "delayS": 3600})
    waiting = asyncio.create_task(get(http, simulator))
    async with asyncio.timeout(5):
        while not (await state(simulator))["requests"]["web_1"]["GET"]:
            pass
        await simulator.stop()

    with pytest.raises(aiohttp.ClientError):
        await waiting
