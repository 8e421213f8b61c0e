"""How slow and how often: the first call, the switch-off, and five requests a second."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from bridge.simulator.imds import Request
from bridge.simulator.server import Simulator
from bridge.simulator.settings import Settings
from bridge.simulator.world import World

Simulate = Callable[..., Awaitable[Simulator]]
Call = Callable[..., Awaitable[Any]]

VERSION = "api-version=2020-07-01"


async def ask(http: aiohttp.ClientSession, url: str) -> int:
    async with http.get(url, headers={"Metadata": "true"}) as response:
        return response.status


async def test_first_call_is_slow_for_everybody_who_asks_meanwhile(
    simulate: Simulate, document: Call
) -> None:
    """The first call waits, and whoever asks meanwhile waits with it."""
    simulator = await simulate(first_call_delay_s=0.3)
    begin = asyncio.get_running_loop().time()
    await asyncio.gather(document(simulator, "web_1"), document(simulator, "web_2"))

    assert asyncio.get_running_loop().time() - begin >= 0.29


def test_first_call_is_slow_once_and_again_after_a_switch_off() -> None:
    """Later calls are quick, until 24 h of silence have switched the feature off."""
    real = [0.0]
    world = World(Settings(first_call_delay_s=120, speed=0), monotonic=lambda: real[0])
    query = (("api-version", "2020-07-01"),)
    request = Request(
        method="GET", path=("scheduledevents",), query=query, metadata="true", forwarded_for=None
    )
    waits = []
    for real_s, advance_s in ((0, 0), (50, 0), (120, 0), (130, 86_399), (140, 86_400)):
        real[0] = real_s
        world.clock.advance(advance_s)
        waits.append(world.first_call_wait_s(world.fleet.vms[0], request))
        world.exchange(world.fleet.vms[0], request, None)

    assert waits == [120, 70, 0, 0, 120]


async def test_refused_call_enables_nothing(
    simulate: Simulate, http: aiohttp.ClientSession
) -> None:
    """A bad request is answered at once; it is no request for events."""
    simulator = await simulate(first_call_delay_s=60)
    url = f"{simulator.url}/vm/web_1/metadata/scheduledevents"

    assert await ask(http, url) == 400


async def test_sixth_request_in_a_second_is_too_many(
    simulate: Simulate, http: aiohttp.ClientSession
) -> None:
    """5 requests a second for a VM over all of IMDS, then 429; other VMs have their own five."""
    simulator = await simulate(requests_per_s_max=5)
    url = f"{simulator.url}/vm/web_1/metadata/"
    paths = [f"scheduledevents?{VERSION}", "versions", "instance?api-version=2021-12-13"] * 2
    statuses = [await ask(http, url + path) for path in paths]

    assert statuses == [200] * 5 + [429]
    assert await ask(http, f"{simulator.url}/vm/web_2/metadata/versions") == 200
