"""Instance metadata: who am I, by the rules of /metadata/instance and /metadata/versions."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from bridge.simulator.server import Simulator

Simulate = Callable[..., Awaitable[Simulator]]


async def get(
    http: aiohttp.ClientSession, simulator: Simulator, path: str, vm: str = "web_10"
) -> tuple[int, Any]:
    url = f"{simulator.endpoint(vm)}/metadata/{path}"
    async with http.get(url, headers={"Metadata": "true"}) as response:
        is_json = response.content_type == "application/json"
        return response.status, await (response.json() if is_json else response.text())


async def test_compute_tells_who_the_vm_is(simulate: Simulate, http: aiohttp.ClientSession) -> None:
    """Name, scale set, zone, ids and place are those of this instance."""
    simulator = await simulate()
    _, compute = await get(http, simulator, "instance/compute?api-version=2021-12-13")
    expected = {
        "name": "web_10",
        "vmScaleSetName": "web",
        "zone": "1",
        "location": "westeurope",
        "resourceGroupName": "simulated",
        "priority": "Regular",
        "evictionPolicy": "",
    }

    assert expected.items() <= compute.items()
    assert compute["resourceId"].endswith(
        "/providers/Microsoft.Compute/virtualMachineScaleSets/web/virtualMachines/10"
    )
    assert str(uuid.UUID(compute["vmId"])) == compute["vmId"]
    assert compute["osProfile"]["computerName"] == "web00000a"


async def test_vm_id_is_stable_and_its_own(simulate: Simulate, http: aiohttp.ClientSession) -> None:
    """A VM keeps its vmId over restarts of the simulator, and shares it with none."""
    path = "instance/compute/vmId?api-version=2021-12-13&format=text"
    first, second = await simulate(), await simulate()
    answers = [
        await get(http, first, path),
        await get(http, second, path),
        await get(http, first, path, "web_1"),
    ]

    assert answers[0] == answers[1] != answers[2]


async def test_whole_instance_has_compute_and_network(
    simulate: Simulate, http: aiohttp.ClientSession
) -> None:
    """/metadata/instance holds both, and can be walked down by keys and indexes."""
    simulator = await simulate()
    _, whole = await get(http, simulator, "instance?api-version=2025-04-07")
    _, nic = await get(http, simulator, "instance/network/interface/0?api-version=2025-04-07")

    assert set(whole) == {"compute", "network"}
    assert nic == whole["network"]["interface"][0]
    assert whole["compute"]["physicalZone"] == "westeurope-az1"


async def test_leaf_needs_format_text(simulate: Simulate, http: aiohttp.ClientSession) -> None:
    """When filtering to a leaf, json does not work and text has to be asked for."""
    simulator = await simulate()

    assert await get(
        http, simulator, "instance/compute/name?api-version=2017-04-02&format=text"
    ) == (200, "web_10")
    assert (await get(http, simulator, "instance/compute/name?api-version=2017-04-02"))[0] == 400


async def test_format_text_lists_the_children(
    simulate: Simulate, http: aiohttp.ClientSession
) -> None:
    """As text, a node is one line a child, with a slash where it goes on."""
    simulator = await simulate()

    assert await get(http, simulator, "instance?api-version=2021-12-13&format=text") == (
        200,
        "compute/\nnetwork/",
    )


@pytest.mark.parametrize(
    "path",
    ["compute/nothing", "network/interface/1", "network/interface/x", "compute/name/x", "compute/"],
)
async def test_path_that_leads_nowhere_is_not_found(
    simulate: Simulate, http: aiohttp.ClientSession, path: str
) -> None:
    """404: the requested element does not exist; a slash at the end does no harm."""
    simulator = await simulate()
    status, _ = await get(http, simulator, f"instance/{path}?api-version=2021-12-13")

    assert status == (200 if path == "compute/" else 404)


async def test_fields_come_with_their_versions(
    simulate: Simulate, http: aiohttp.ClientSession
) -> None:
    """Under an old version the fields that came later are not there."""
    simulator = await simulate()
    _, old = await get(http, simulator, "instance/compute?api-version=2017-04-02")
    _, middle = await get(http, simulator, "instance/compute?api-version=2019-03-11")

    assert {"name", "vmId", "location"} <= set(old)
    assert not {"resourceId", "vmScaleSetName", "zone", "priority"} & set(old)
    assert {"resourceId", "vmScaleSetName", "zone"} <= set(middle)
    assert "priority" not in middle


async def test_versions_of_scheduled_events_are_another_list(
    simulate: Simulate, http: aiohttp.ClientSession
) -> None:
    """2020-07-01 is the newest for scheduled events and unknown to instance metadata."""
    simulator = await simulate()
    status, body = await get(http, simulator, "instance?api-version=2020-07-01")

    assert status == 400
    assert body["newest-versions"] == ["2025-04-07", "2024-07-17", "2024-03-15"]


async def test_versions_needs_no_version(simulate: Simulate, http: aiohttp.ClientSession) -> None:
    """/metadata/versions is the only endpoint without one, and lists them from the oldest."""
    simulator = await simulate()
    status, body = await get(http, simulator, "versions")

    assert status == 200
    assert body["apiVersions"][0] == "2017-03-01"
    assert body["apiVersions"] == sorted(body["apiVersions"])
    assert "2021-12-13" in body["apiVersions"]


async def test_spot_vm_says_so(simulate: Simulate, http: aiohttp.ClientSession) -> None:
    """Priority and eviction policy are those of a spot VM."""
    simulator = await simulate(spot=True)
    _, compute = await get(http, simulator, "instance/compute?api-version=2021-12-13")

    assert (compute["priority"], compute["evictionPolicy"]) == ("Spot", "Delete")
