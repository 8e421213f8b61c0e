"""A fleet to reason about, a simulator to talk to, and a client that knows nothing of either."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from bridge.simulator.model import Fleet
from bridge.simulator.server import Simulator, start
from bridge.simulator.settings import Settings, build_fleet

NOON = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def noon() -> datetime:
    return NOON


@pytest.fixture
def fleet_of() -> Callable[..., Fleet]:
    """Build a fleet from settings; noon is its time."""
    return lambda **values: build_fleet(Settings(**values), "seed", NOON)


@pytest.fixture
async def simulate() -> AsyncIterator[Callable[..., Awaitable[Simulator]]]:
    """Start simulators whose clock stands at noon, unless the settings say otherwise."""
    running: list[Simulator] = []

    async def begin(**values: Any) -> Simulator:
        defaults = {"start_at": NOON, "speed": 0.0, "requests_per_s_max": 0}
        running.append(await start(Settings(**{**defaults, **values})))
        return running[-1]

    yield begin
    await asyncio.gather(*(simulator.stop() for simulator in running))


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=10)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        yield session


@pytest.fixture
def control(http: aiohttp.ClientSession) -> Callable[..., Awaitable[Any]]:
    """Call the control API; the answer must have the expected status."""

    async def call(
        simulator: Simulator, method: str, path: str, body: Any = None, *, status: int = 200
    ) -> Any:
        url = f"{simulator.url}/control/{path}"
        data = body if isinstance(body, bytes) else None
        json = None if isinstance(body, bytes) else body
        async with http.request(method, url, json=json, data=data) as response:
            answer = await response.json()

            assert status == response.status, answer
            return answer

    return call


@pytest.fixture
def state(control: Callable[..., Awaitable[Any]]) -> Callable[[Simulator], Awaitable[Any]]:
    return lambda simulator: control(simulator, "GET", "state")


@pytest.fixture
def document(http: aiohttp.ClientSession) -> Callable[..., Awaitable[Any]]:
    """Poll the scheduled events document of one VM."""

    async def get(simulator: Simulator, vm: str, api_version: str = "2020-07-01") -> Any:
        url = f"{simulator.url}/vm/{vm}/metadata/scheduledevents"
        params = {"api-version": api_version}
        async with http.get(url, params=params, headers={"Metadata": "true"}) as response:
            assert response.status == 200
            return await response.json()

    return get


@pytest.fixture
def approve(http: aiohttp.ClientSession) -> Callable[..., Awaitable[int]]:
    """Send StartRequests from one VM, and tell the status."""

    async def post(simulator: Simulator, vm: str, *event_ids: str) -> int:
        url = f"{simulator.url}/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
        body = {"StartRequests": [{"EventId": event_id} for event_id in event_ids]}
        async with http.post(url, json=body, headers={"Metadata": "true"}) as response:
            return response.status

    return post
