"""Managed identity: IMDS is asked for a token, which reaches $cbs over TLS, and is renewed."""

import asyncio
import gc
import os
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from azure.core.exceptions import ClientAuthenticationError

from bridge.config import Config, EventHubs, Events
from bridge.core.cloudevents import CloudEvent, encode
from bridge.errors import SinkUnavailable
from bridge.eventhubs.client import TOKEN_SCOPE
from bridge.eventhubs.credential import VmCredential
from bridge.transports import Outgoing
from bridge.transports.eventhubs.check import check
from bridge.transports.eventhubs.sink import EventHubsSink
from tests.support.eventhubs_server import EventHubsServer
from tests.support.scripted_imds import Action, Request, ScriptedImds, answer
from tests.support.transport_harness import EVENTS_HUB, VM, running
from tests.support.waiting import until

# The client library does not close every connection that was cut off under it.
pytestmark = pytest.mark.filterwarnings("ignore:(?i)unclosed|loop is closed:ResourceWarning")


class TokenImds:
    """The token endpoint of IMDS: gives tokens 1, 2, 3 … that live as long as a test wants."""

    def __init__(self) -> None:
        self.lifetime_s = 3600
        self.issued: list[str] = []
        self.asked: list[str] = []
        self.has_identity = True

    def script(self, request: Request) -> bytes | Action:
        self.asked.append(request.path)
        if not self.has_identity:
            body = {"error": "invalid_request", "error_description": "Identity not found"}
            return answer(400, msgspec.json.encode(body), Content_Type="application/json")
        self.issued.append(f"token-{len(self.issued) + 1}")
        body = {
            "access_token": self.issued[-1],
            "expires_in": str(self.lifetime_s),
            "expires_on": str(int(time.time()) + self.lifetime_s),
            "resource": parse_qs(urlsplit(request.path).query)["resource"][0],
            "token_type": "Bearer",
        }
        return answer(200, msgspec.json.encode(body), Content_Type="application/json")


@pytest.fixture
async def imds(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TokenImds]:
    tokens = TokenImds()
    async with ScriptedImds(tokens.script) as server:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.endpoint)
        yield tokens


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
async def server(certificate: tuple[Path, Path]) -> AsyncIterator[EventHubsServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with EventHubsServer(ssl_context=context) as server:
        server.add_hub(EVENTS_HUB)
        yield server


@pytest.fixture
def config(server: EventHubsServer, certificate: tuple[Path, Path]) -> EventHubs:
    return EventHubs(
        namespace="example.servicebus.windows.net",
        endpoint=server.endpoint.removeprefix("sb://"),
        ca_file=str(certificate[0]),
        reconnect_s_max=0.3,
    )


@pytest.fixture(autouse=True)
def leaks_of_the_client() -> Iterator[None]:
    """Meet the sockets that the client library forgets, while their warnings are still ignored."""
    yield
    gc.collect()


def row(number: int) -> Outgoing:
    event = CloudEvent(
        specversion="1.0",
        id=f"e{number}",
        source="/vm",
        type="t",
        time="2026-01-01T00:00:00Z",
        datacontenttype="application/json",
        data=msgspec.Raw(b"{}"),
    )
    return Outgoing(sequence=number, channel="events", event_id="E-1", cloudevent=encode(event))


async def first_problem(sink: EventHubsSink) -> str:
    task = asyncio.create_task(sink.run())
    await until(lambda: sink.problem != "not connected yet")
    problem = sink.problem
    await sink.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return problem


async def test_token_of_the_vm_opens_the_hub(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """The token that IMDS gave is the one that $cbs gets, as a JWT and for Event Hubs."""
    server.allow_bearer_token("token-1")

    async with running(EventHubsSink(config, vm_name=VM)) as sink:
        await sink.publish([row(1)])

    assert {("jwt", "token-1")} == set(server.counters.tokens)
    assert ["e1"] == [event.message_id for event in server.hub(EVENTS_HUB).events()]
    assert imds.issued == ["token-1"]
    assert imds.asked[0].startswith("/metadata/identity/oauth2/token?")
    assert "resource=https" in imds.asked[0]
    assert "eventhubs.azure.net" in imds.asked[0]


async def test_user_assigned_identity_is_asked_for_by_its_client_id(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """`identity_client_id` reaches IMDS."""
    server.allow_bearer_token("token-1")
    own = msgspec.structs.replace(config, identity_client_id="11111111-2222")

    async with running(EventHubsSink(own, vm_name=VM)):
        pass

    assert "client_id=11111111-2222" in imds.asked[0]


async def test_expired_token_is_renewed_without_a_lost_row(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """A token of a few seconds runs out under an open link; the next one is fetched and used."""
    imds.lifetime_s = 3
    for number in range(1, 9):
        server.allow_bearer_token(f"token-{number}")

    async with running(EventHubsSink(config, vm_name=VM)) as sink:
        await sink.publish([row(1)])
        first = server.counters.tokens[-1]
        number = 2
        while server.counters.tokens[-1] == first:
            try:
                await sink.publish([row(number)])
                number += 1
            except SinkUnavailable:
                await until(lambda: not sink.problem)
            await asyncio.sleep(0.2)

    stored = [event.message_id for event in server.hub(EVENTS_HUB).events()]
    assert [f"e{each}" for each in range(1, number)] == list(dict.fromkeys(stored))
    assert len({token for _, token in server.counters.tokens}) >= 2


@pytest.mark.parametrize(("lifetime_s", "kept_s"), [(86_400, 43_200), (3_600, 1_800), (400, 100)])
async def test_token_is_renewed_at_half_its_life(
    imds: TokenImds, monkeypatch: pytest.MonkeyPatch, lifetime_s: int, kept_s: int
) -> None:
    """A client asks when a tenth is left of the token it has: an old one would not last it."""
    imds.lifetime_s = lifetime_s
    credential = VmCredential("")
    first = await credential.get_token(TOKEN_SCOPE)
    began = time.time()

    monkeypatch.setattr("bridge.eventhubs.credential.time.time", lambda: began + kept_s - 5)
    assert await credential.get_token(TOKEN_SCOPE) is first
    monkeypatch.setattr("bridge.eventhubs.credential.time.time", lambda: began + kept_s + 5)
    assert (await credential.get_token(TOKEN_SCOPE)).token == "token-2"


async def test_token_is_asked_for_once_and_used_to_its_end(imds: TokenImds) -> None:
    """Clients that connect together share it; near its end it still counts if IMDS is away."""
    credential = VmCredential("")
    together = await asyncio.gather(*(credential.get_token(TOKEN_SCOPE) for _ in range(5)))
    assert {token.token for token in together} == {"token-1"}

    imds.lifetime_s = 200
    short = VmCredential("")
    await short.get_token(TOKEN_SCOPE)
    imds.has_identity = False
    assert (await short.get_token(TOKEN_SCOPE)).token == "token-2"
    imds.has_identity = True
    assert (await short.get_token(TOKEN_SCOPE)).token == "token-3"

    imds.lifetime_s = 0
    expired = VmCredential("")
    await expired.get_token(TOKEN_SCOPE)
    imds.has_identity = False
    with pytest.raises(ClientAuthenticationError, match="not been assigned"):
        await expired.get_token(TOKEN_SCOPE)


async def test_identity_from_elsewhere_opens_the_hub(
    monkeypatch: pytest.MonkeyPatch, imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """Where the environment names another place, azure-identity asks there, and IMDS is left alone."""
    monkeypatch.setenv(
        "IDENTITY_ENDPOINT", f"{os.environ['AZURE_POD_IDENTITY_AUTHORITY_HOST']}/msi/token"
    )
    monkeypatch.setenv("IDENTITY_HEADER", "its-secret")
    server.allow_bearer_token("token-1")

    async with running(EventHubsSink(config, vm_name=VM)) as sink:
        await sink.publish([row(1)])

    assert {("jwt", "token-1")} == set(server.counters.tokens)
    assert all(path.startswith("/msi/token?") for path in imds.asked)


async def test_vm_without_an_identity_is_told_so(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """IMDS knows no identity: nothing reaches the namespace, and the remedy is named."""
    imds.has_identity = False

    problem = await first_problem(EventHubsSink(config, vm_name=VM))

    assert "no managed identity token" in problem
    assert "Assign an identity to the VM" in problem
    assert not server.counters.tokens


async def test_identity_that_the_namespace_refuses_is_told_so(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """A token that is not believed is another matter than one that is missing."""
    problem = await first_problem(EventHubsSink(config, vm_name=VM))

    assert "refuses the managed identity for hub scheduled-events" in problem
    assert server.counters.put_tokens_refused


async def test_identity_without_a_role_is_told_which_one(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """The service's words on a missing claim become the name of the role."""
    server.allow_bearer_token("token-1")
    server.faults.refuse_link(
        "amqp:unauthorized-access",
        description="Unauthorized access. 'Send' claim(s) are required to perform this operation.",
        times=None,
        node=EVENTS_HUB,
    )

    problem = await first_problem(EventHubsSink(config, vm_name=VM))

    assert "the managed identity may not use hub scheduled-events" in problem
    assert "Azure Event Hubs Data Sender" in problem


async def test_untrusted_certificate_is_told_so(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """Without the authority's file the connection is refused, and the option is named."""
    strict = msgspec.structs.replace(config, ca_file="")

    problem = await first_problem(EventHubsSink(strict, vm_name=VM))

    assert "eventhubs.ca_file" in problem
    assert not server.counters.tokens


async def test_check_finds_the_identity(
    imds: TokenImds, server: EventHubsServer, config: EventHubs
) -> None:
    """The doctor asks IMDS first, then the hub."""
    server.allow_bearer_token("token-1")
    whole: Any = Config(events=Events(sinks=("eventhubs",)), eventhubs=config)

    good = await check(whole)
    imds.has_identity = False
    bad = await check(whole)

    assert [(each.name, each.ok) for each in good] == [
        ("eventhubs login", True),
        ("events hub", True),
    ]
    assert [(each.name, each.ok) for each in bad] == [("eventhubs login", False)]
    assert "Assign an identity" in bad[0].remedy
