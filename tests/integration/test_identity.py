"""Entra tokens: from a scripted IMDS, by azure-identity from elsewhere, and into MQTT's CONNECT."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from bridge.assembly import token_provider
from bridge.config import Mqtt, MqttTls
from bridge.errors import SinkUnavailable
from bridge.identity import EVENT_GRID_SCOPE, managed_identity_token
from bridge.transports.mqtt import MqttTransport
from tests.support.certificates import DAY, Authority
from tests.support.mosquitto import free_port
from tests.support.mqtt5_peer import NOT_AUTHORIZED, Mqtt5Peer
from tests.support.scripted_imds import HANG, Request, Script, ScriptedImds, answer
from tests.support.waiting import until

LIFETIME_S = 4


def token_answer(token: str, lifetime_s: float = 3600) -> bytes:
    body = {
        "access_token": token,
        "expires_on": str(int(time.time() + lifetime_s)),
        "resource": "https://eventgrid.azure.net",
        "token_type": "Bearer",
    }
    return answer(200, json.dumps(body).encode(), Content_Type="application/json")


@asynccontextmanager
async def token_endpoint(
    monkeypatch: pytest.MonkeyPatch, script: Script
) -> AsyncIterator[ScriptedImds]:
    async with ScriptedImds(script) as imds:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", imds.endpoint)
        yield imds


@pytest.mark.parametrize("client_id", ["", "11111111-2222-3333-4444-555555555555"])
async def test_token_asks_imds_for_event_grids_audience(
    monkeypatch: pytest.MonkeyPatch, client_id: str
) -> None:
    """The system's identity or the one that is named; never through a proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    async with token_endpoint(monkeypatch, lambda _: token_answer("secret-1")) as imds:
        token, expires_at = await managed_identity_token(client_id, EVENT_GRID_SCOPE)()

    (request,) = imds.requests
    url = urlsplit(request.path)
    assert (token, round(expires_at - time.time(), -2)) == ("secret-1", 3600)
    assert url.path == "/metadata/identity/oauth2/token"
    assert parse_qs(url.query)["resource"] == ["https://eventgrid.azure.net"]
    assert parse_qs(url.query).get("client_id", [""]) == [client_id]
    assert request.headers["metadata"] == "true"


async def test_token_is_fresh_each_time_and_nothing_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that broke because its token was revoked must not get it again."""
    tokens = iter(["first", "second"])
    async with token_endpoint(monkeypatch, lambda _: token_answer(next(tokens))):
        provide = managed_identity_token("", EVENT_GRID_SCOPE)

        assert [(await provide())[0], (await provide())[0]] == ["first", "second"]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (answer(400, b'{"error": "invalid_request"}'), "not been assigned to this resource"),
        (answer(403, b"denied by the guest proxy"), "gives no token"),
        (answer(500, b"{}"), "gives no token"),
        (answer(200, b"<html>", Content_Type="text/html"), "gives no token"),
        (answer(200, b'{"access_token": "hush"}'), "without access_token or expires_on"),
        (answer(200, b'{"access_token": "hush", "expires_on": "soon"}'), "gives no token"),
        (answer(200, b'{"access_token": "hush", "expires_on"'), "what is no token"),
        (answer(200, b'{"access_token": "", "expires_on": "1"}'), "gives no token"),
    ],
)
async def test_token_refused_says_who_and_why(
    monkeypatch: pytest.MonkeyPatch, step: bytes, why: str
) -> None:
    """One request, then an error that the reconnect loop understands."""
    async with token_endpoint(monkeypatch, lambda _: step) as imds:
        with pytest.raises(SinkUnavailable) as caught:
            await managed_identity_token("", EVENT_GRID_SCOPE)()

    assert "the VM's managed identity" in str(caught.value)
    assert why in str(caught.value)
    assert "assign an identity to this VM" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert len(imds.requests) == 1


async def test_token_without_an_imds_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens there."""
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://127.0.0.1:{free_port()}")

    with pytest.raises(SinkUnavailable, match="gives no token: no answer from IMDS"):
        await managed_identity_token("", EVENT_GRID_SCOPE)()


async def test_token_of_the_vm_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """azure-identity and what it imports would be most of the agent's memory."""
    program = (
        "import asyncio, sys\n"
        "from bridge.identity import EVENT_GRID_SCOPE, managed_identity_token\n"
        "token, _ = asyncio.run(managed_identity_token('', EVENT_GRID_SCOPE)())\n"
        "print(token, sorted({'azure', 'aiohttp', 'requests'} & set(sys.modules)))"
    )
    async with token_endpoint(monkeypatch, lambda _: token_answer("light")):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()

    assert printed.decode().strip() == "light []"


async def test_identity_from_elsewhere_is_asked_for_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """App Service, and by the same way a pod of AKS or an Arc machine: IMDS is left alone."""

    def script(request: Request) -> bytes:
        elsewhere = request.headers.get("x-identity-header") == "its-secret"
        return token_answer("from-elsewhere" if elsewhere else "from-imds")

    async with token_endpoint(monkeypatch, script) as imds:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{imds.endpoint}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "its-secret")
        token, _ = await managed_identity_token("", EVENT_GRID_SCOPE)()

    assert token == "from-elsewhere"
    assert {urlsplit(request.path).path for request in imds.requests} == {"/msi/token"}


async def test_token_endpoint_that_hangs_leaves_the_loop_turning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait is bounded, and others run meanwhile."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    async with token_endpoint(monkeypatch, lambda _: HANG):
        turning = asyncio.create_task(turn())
        with pytest.raises(SinkUnavailable) as caught:
            await managed_identity_token("my-id", EVENT_GRID_SCOPE, timeout_s=1.0)()
        turning.cancel()

    assert "the managed identity my-id gives no token within 1 s" in str(caught.value)
    assert turns > 10


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def connected(peer: Mqtt5Peer, authority: Authority) -> AsyncIterator[MqttTransport]:
    config = Mqtt(
        host="127.0.0.1",
        port=peer.port,
        auth="entra-jwt",
        reconnect_s_max=0.2,
        tls=MqttTls(enabled=True, ca_file=str(authority.ca_file)),
    )
    transport = MqttTransport(
        config,
        root="root",
        client_id="agent",
        will=lambda: b"{}",
        pending=tuple,
        token_provider=token_provider(config),
    )
    running = asyncio.create_task(transport.run())
    try:
        yield transport
    finally:
        await transport.close()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_connect_carries_the_token_and_renews_it_before_it_expires(
    monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    """Event Grid sees its method and a token that is still good, again and again."""
    issued = authority.issue("broker", ends=30 * DAY)
    given: list[tuple[str, float]] = []

    def give(_: Request) -> bytes:
        now = asyncio.get_running_loop().time()
        given.append((f"token-{len(given)}", now + LIFETIME_S))
        return token_answer(given[-1][0], LIFETIME_S)

    tokens = {f"token-{number}" for number in range(100)}
    async with (
        token_endpoint(monkeypatch, give),
        Mqtt5Peer(*issued, tokens) as peer,
        connected(peer, authority) as transport,
    ):
        await until(lambda: len(peer.connects) >= 3)
        await until(lambda: transport.connected)

    expiry = dict(given)
    for earlier, later in zip(peer.connects, peer.connects[1:], strict=False):
        assert later.data != earlier.data
        assert later.at < expiry[earlier.data]
    assert {(c.level, c.method, c.code) for c in peer.connects} == {(5, "OAUTH2-JWT", 0)}


async def test_connect_with_a_wrong_token_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    """A refusal is the transport's problem until a token is taken, and MQTT 5 is kept."""
    issued = authority.issue("broker", ends=30 * DAY)
    async with (
        token_endpoint(monkeypatch, lambda _: token_answer("a-token")),
        Mqtt5Peer(*issued, tokens=set()) as peer,
        connected(peer, authority) as transport,
    ):
        await until(lambda: len(peer.connects) >= 2)
        problem = transport.problem
        peer.tokens.add("a-token")
        await until(lambda: transport.connected)

    assert "Not authorized" in problem
    assert peer.connects[0][:4] == (5, "OAUTH2-JWT", "a-token", NOT_AUTHORIZED)
    assert peer.connects[-1].code == 0


def test_token_provider_only_for_entra() -> None:
    """Nobody asks for tokens where a password or a certificate speaks."""
    assert token_provider(Mqtt()) is None
    tls = MqttTls(enabled=True)
    assert token_provider(msgspec.structs.replace(Mqtt(), auth="entra-jwt", tls=tls)) is not None
