"""ImdsClient against a server that does as it is told."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from bridge import imds as imds_module
from bridge.clock import SystemClock
from bridge.config import Imds
from bridge.errors import ImdsUnavailable, StoreError
from bridge.imds import Identity, ImdsClient
from bridge.version import VERSION
from tests.support.scripted_imds import Action, Request, Script, ScriptedImds, answer

DOCUMENT = b'{"DocumentIncarnation":1,"Events":[]}'
COMPUTE = {
    "name": "web_3",
    "vmId": "5c08b38e",
    "resourceId": "/subscriptions/s/x",
    "vmScaleSetName": "web",
    "zone": "2",
    "location": "westeurope",
    "resourceGroupName": "rg",
    "subscriptionId": "s",
}
Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server with a script and a client that talks to it."""
    servers: list[ScriptedImds] = []
    clients: list[ImdsClient] = []

    async def run(script: Script, **options: Any) -> tuple[ScriptedImds, ImdsClient]:
        server = await ScriptedImds(script).__aenter__()
        servers.append(server)
        options = {"requests_per_s_max": 1000.0, "timeout_s": 2.0, "first_timeout_s": 2.0} | options
        prefix = options.pop("prefix", "")
        client = ImdsClient(Imds(endpoint=server.endpoint + prefix, **options), SystemClock())
        clients.append(client)
        return server, client

    yield run
    for client in clients:
        await client.close()
    for server in servers:
        await server.__aexit__()


def version_of(request: Request) -> str:
    return request.path.partition("api-version=")[2]


async def test_request_carries_the_required_headers(start: Start) -> None:
    """A GET has Metadata: true, our User-Agent, no cookies and the literal URL with its prefix."""
    server, client = await start(lambda _: answer(200, DOCUMENT, Set_Cookie="a=b"), prefix="/vm/w/")
    assert await client.get_document() == DOCUMENT
    await client.get_document()
    request = server.requests[1]
    assert request.path == "/vm/w/metadata/scheduledevents?api-version=2020-07-01"
    assert request.headers["metadata"] == "true"
    assert request.headers["user-agent"] == f"sebridge/{VERSION}"
    assert "cookie" not in request.headers
    assert server.connections == 1
    assert client.statuses == {"200": 2}


async def test_proxies_of_the_environment_are_ignored(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP_PROXY and ALL_PROXY do not divert a GET."""
    proxy, _ = await start(lambda _: answer(502))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.endpoint)
    _, client = await start(lambda _: answer(200, DOCUMENT))
    assert await client.get_document() == DOCUMENT
    assert proxy.requests == []


async def test_redirect_is_not_followed(start: Start) -> None:
    """A 307 is an error after exactly one request."""
    server, client = await start(lambda _: answer(307, Location="/metadata/elsewhere"))
    with pytest.raises(ImdsUnavailable, match="redirects") as caught:
        await client.get_document()
    assert caught.value.status == 307
    assert len(server.requests) == 1


async def test_ladder_steps_down_at_once_and_stays(start: Start) -> None:
    """A 400 for the newest version moves on to the next in the same call, for good."""
    server, client = await start(
        lambda r: answer(200, DOCUMENT) if version_of(r) == "2019-08-01" else answer(400)
    )
    assert client.api_version == "2020-07-01"
    assert await client.get_document() == DOCUMENT
    assert client.api_version == "2019-08-01"
    await client.get_document()
    assert [version_of(r) for r in server.requests] == ["2020-07-01", "2019-08-01", "2019-08-01"]


async def test_ladder_takes_a_400_to_a_version_that_worked_for_a_fault(start: Start) -> None:
    """Fewer fields would look like a change; only the third refusal in a row is believed."""
    refusing = False

    def imds(request: Request) -> bytes:
        newest = version_of(request) == "2020-07-01"
        return answer(400) if newest and refusing else answer(200, DOCUMENT)

    _, client = await start(imds)
    await client.get_document()
    for _ in range(2):  # what worked in between counts
        refusing = True
        for _ in range(2):
            with pytest.raises(ImdsUnavailable, match="which it took before") as caught:
                await client.get_document()
            assert caught.value.status is None
        refusing = False
        await client.get_document()
    assert client.api_version == "2020-07-01"

    refusing = True
    for _ in range(2):
        with pytest.raises(ImdsUnavailable):
            await client.get_document()
    assert await client.get_document() == DOCUMENT
    assert client.api_version == "2019-08-01"


async def test_ladder_starts_again_when_all_refuse(start: Start) -> None:
    """When every version is refused the error is a 400 and the next call starts at the top."""
    server, client = await start(lambda _: answer(400, b"Bad request"))
    for _ in range(2):
        with pytest.raises(ImdsUnavailable, match=r"api_version.*Bad request") as caught:
            await client.get_document()
        assert caught.value.status == 400
    assert [version_of(r) for r in server.requests] == [
        "2020-07-01",
        "2019-08-01",
        "2019-01-01",
    ] * 2
    assert client.api_version == "2020-07-01"


async def test_ladder_never_steps_up(start: Start) -> None:
    """An old configured version is not answered with newer ones."""
    server, client = await start(lambda _: answer(400), api_version="2019-01-01")
    with pytest.raises(ImdsUnavailable):
        await client.get_document()
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [201, 204, 403, 404, 405, 410, 500, 503])
async def test_other_status_is_unavailable(start: Start, status: int) -> None:
    """Anything but 200 is ImdsUnavailable with its status, asked once."""
    server, client = await start(lambda _: answer(status))
    with pytest.raises(ImdsUnavailable, match=f"HTTP {status}") as caught:
        await client.get_document()
    assert (caught.value.status, caught.value.retry_after_s) == (status, None)
    assert client.statuses == {str(status): 1}
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("soon", None), ("-1", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)],
)
async def test_retry_after_is_read(start: Start, value: str, seconds: float | None) -> None:
    """Retry-After of a 429 is handed on when it is a number of seconds or a date."""
    _, client = await start(lambda _: answer(429, Retry_After=value))
    with pytest.raises(ImdsUnavailable) as caught:
        await client.get_document()
    assert (caught.value.status, caught.value.retry_after_s) == (429, seconds)


async def test_empty_body_passes_through(start: Start) -> None:
    """A 200 without a body is b'': the parser decides what that means."""
    _, client = await start(lambda _: answer(200))
    assert await client.get_document() == b""


async def test_too_large_body_is_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body beyond the limit is not read to its end."""
    monkeypatch.setattr(imds_module, "BODY_BYTES_MAX", 100)
    _, client = await start(lambda _: answer(200, b" " * 101))
    with pytest.raises(ImdsUnavailable, match="exceeds 100 bytes"):
        await client.get_document()


@pytest.mark.parametrize(
    "action",
    [
        Action("drop"),
        Action("reset"),
        Action("drop", b"HTTP/1.1 20"),
        Action("drop", b"nonsense\r\n\r\n"),
    ],
)
async def test_broken_answer_has_no_status(start: Start, action: Action) -> None:
    """No answer, half of one or garbage is ImdsUnavailable without a status."""
    _, client = await start(lambda _: action)
    with pytest.raises(ImdsUnavailable, match="check") as caught:
        await client.get_document()
    assert caught.value.status is None
    assert client.statuses == {"error": 1}


async def test_short_body_is_no_document(start: Start) -> None:
    """A body cut short is not handed on, though its status was 200."""
    _, client = await start(lambda _: Action("drop", answer(200, DOCUMENT)[:-5]))
    with pytest.raises(ImdsUnavailable) as caught:
        await client.get_document()
    assert caught.value.status is None


async def test_error_with_hanging_body_keeps_its_status(start: Start) -> None:
    """A status that was read counts even if the words that explain it never come."""
    head = b"HTTP/1.1 410 Gone\r\nContent-Length: 50\r\n\r\n"
    _, client = await start(lambda _: Action("hang", head), first_timeout_s=0.1)
    with pytest.raises(ImdsUnavailable) as caught:
        await client.get_document()
    assert caught.value.status == 410


async def test_connection_refused(start: Start) -> None:
    """A closed port is ImdsUnavailable that names the endpoint setting."""
    server, client = await start(lambda _: answer(200))
    await server.__aexit__()
    with pytest.raises(ImdsUnavailable, match=r"imds\.endpoint"):
        await client.get_document()


async def test_first_timeout_holds_until_one_success(start: Start) -> None:
    """The long timeout is for the first document; a hang after it ends sooner."""
    slow = Action("drip", answer(200, DOCUMENT), 0.004)
    steps = [answer(500), slow, Action("hang")]
    _, client = await start(lambda _: steps.pop(0), first_timeout_s=10, timeout_s=0.1)
    with pytest.raises(ImdsUnavailable):
        await client.get_document()
    assert await client.get_document() == DOCUMENT
    with pytest.raises(ImdsUnavailable, match=r"within 0\.1 s"):
        await client.get_document()


async def test_drip_is_bounded_as_a_whole(start: Start) -> None:
    """Bytes that keep coming slowly do not stretch the timeout."""
    _, client = await start(lambda _: Action("drip", answer(200, b"x" * 999)), first_timeout_s=0.2)
    began = time.monotonic()
    with pytest.raises(ImdsUnavailable, match=r"within 0\.2 s"):
        await client.get_document()
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("wrap", [True, False])
async def test_identity(start: Start, wrap: bool) -> None:
    """Both shapes of the answer give the same identity, which survives the store."""
    body = msgspec.json.encode({"compute": COMPUTE, "network": {}} if wrap else COMPUTE)
    server, client = await start(lambda _: answer(200, body))
    identity = await client.get_identity()
    assert server.requests[0].path == "/metadata/instance?api-version=2021-12-13"
    assert (identity.vm.name, identity.vm.vm_id, identity.vm.zone) == ("web_3", "5c08b38e", "2")
    assert (identity.vm.scale_set, identity.vm.location) == ("web", "westeurope")
    assert identity.vm.resource_id == "/subscriptions/s/x"
    assert (identity.resource_group, identity.subscription_id) == ("rg", "s")
    assert Identity.from_json(identity.to_json()) == identity


ID_PREFIX = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute"


@pytest.mark.parametrize(
    ("changes", "resource_id"),
    [
        ({}, "/virtualMachineScaleSets/web/virtualMachines/3"),
        ({"name": "web_1a2b3c4d"}, "/virtualMachines/web_1a2b3c4d"),
        ({"virtualMachineScaleSet": {"id": "/x"}}, "/virtualMachines/web_3"),
        ({"vmScaleSetName": "", "name": "db"}, "/virtualMachines/db"),
    ],
)
async def test_identity_composes_the_id(
    start: Start, changes: dict[str, Any], resource_id: str
) -> None:
    """Without resourceId the id is composed, for scale set instances too; vmId may be missing."""
    compute = COMPUTE | {"resourceId": "", "vmId": None} | changes
    _, client = await start(lambda _: answer(200, msgspec.json.encode(compute)))
    vm = (await client.get_identity()).vm
    assert (vm.resource_id, vm.vm_id) == (ID_PREFIX + resource_id, "")


async def test_identity_name_override_and_ladder(start: Start) -> None:
    """imds.vm_name wins, and a 400 steps down the instance versions without the document's."""
    body = msgspec.json.encode(COMPUTE)
    server, client = await start(
        lambda r: answer(200, body) if version_of(r) == "2019-06-01" else answer(400), vm_name="me"
    )
    assert (await client.get_identity()).vm.name == "me"
    assert [version_of(r) for r in server.requests] == ["2021-12-13", "2020-09-01", "2019-06-01"]
    assert client.api_version == "2020-07-01"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"compute":{"name":""}}', b"\xff"])
async def test_identity_without_a_name(start: Start, body: bytes) -> None:
    """An identity that cannot be read or has no name is ImdsUnavailable."""
    _, client = await start(lambda _: answer(200, body))
    with pytest.raises(ImdsUnavailable, match=r"imds\."):
        await client.get_identity()


def test_damaged_stored_identity() -> None:
    """What the store gives back and cannot be read is the store's error."""
    with pytest.raises(StoreError, match="identity"):
        Identity.from_json(b"{")


async def test_budget_spaces_requests(start: Start) -> None:
    """GETs wait for the budget, and a POST made elsewhere takes its share without waiting."""
    server, client = await start(lambda _: answer(200), requests_per_s_max=20.0)
    began = time.monotonic()
    await asyncio.gather(*(client.get_document() for _ in range(3)))
    client.spend_token()
    await client.get_document()
    assert 0.19 < time.monotonic() - began < 1
    assert len(server.requests) == 4
