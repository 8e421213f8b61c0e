"""The agent's own HTTP server, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bridge import http as http_module
from bridge.config import Http
from bridge.errors import BridgeError
from bridge.http import HttpServer


def server_on(port: int, **pages: Any) -> HttpServer:
    answers: dict[str, Any] = {
        "healthy": lambda: "",
        "ready": lambda: "no good poll",
        "metrics": lambda: b"sebridge_up 1\n",
        "status": lambda: {"vm": "web_3"},
        "audit": list,
    }
    return HttpServer(Http(listen=f"127.0.0.1:{port}"), **(answers | pages))


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def server(port: int) -> AsyncIterator[HttpServer]:
    server = server_on(port)
    await server.start()
    yield server
    await server.close()


async def exchange(port: int, request: bytes) -> bytes:
    """Send raw bytes; everything that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def get(port: int, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    raw = await exchange(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


@pytest.mark.parametrize(
    ("path", "status", "content_type", "body"),
    [
        ("/healthz", 200, "text/plain; charset=utf-8", b"ok\n"),
        ("/readyz", 503, "text/plain; charset=utf-8", b"no good poll\n"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", b"sebridge_up 1\n"),
        ("/status?x=y", 200, "application/json", b'{"vm":"web_3"}'),
        ("/audit", 200, "application/json", b"[]"),
        ("/else", 404, "text/plain; charset=utf-8", b"404: Not Found\n"),
    ],
)
async def test_pages(
    server: HttpServer, port: int, *, path: str, status: int, content_type: str, body: bytes
) -> None:
    """Each page has its status, its type and its length, and cannot be taken for a web page."""
    got, head, content = await get(port, path)

    assert (status, body) == (got, content)
    assert f"Content-Type: {content_type}\r\n" in head
    assert f"Content-Length: {len(body)}" in head
    assert "X-Content-Type-Options: nosniff" in head


async def test_head_has_no_body(server: HttpServer, port: int) -> None:
    """HEAD answers with the length that GET would have."""
    status, head, body = await get(port, "/healthz", "HEAD")

    assert (200, b"") == (status, body)
    assert "Content-Length: 3" in head


async def test_nothing_can_be_changed(server: HttpServer, port: int) -> None:
    """Other methods are refused and told which are not."""
    status, head, _ = await get(port, "/status", "POST")

    assert status == 405
    assert "Allow: GET, HEAD" in head


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET http://x/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_told_so(
    server: HttpServer, port: int, request_bytes: bytes
) -> None:
    """A bad request line is answered with 400."""
    assert (await exchange(port, request_bytes)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000,
    ],
)
async def test_endless_requests_are_cut(
    server: HttpServer, port: int, request_bytes: bytes
) -> None:
    """A request line or headers without end are not read to their end; the server lives on."""
    assert await exchange(port, request_bytes) == b""
    assert (await get(port, "/healthz"))[0] == 200


async def test_silent_client_is_given_up(
    server: HttpServer, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without a request ends by itself."""
    monkeypatch.setattr(http_module, "REQUEST_TIMEOUT_S", 0.1)

    assert await exchange(port, b"GET / HT") == b""


async def test_connections_are_bounded(
    server: HttpServer, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit a connection is cut at once; when one ends there is room again."""
    monkeypatch.setattr(http_module, "CONNECTIONS_MAX", 1)
    _, idle = await asyncio.open_connection("127.0.0.1", port)
    while not server._connections:
        await asyncio.sleep(0.01)

    assert await exchange(port, b"GET /healthz HTTP/1.1\r\n\r\n") == b""

    idle.close()
    while server._connections:
        await asyncio.sleep(0.01)
    assert (await get(port, "/healthz"))[0] == 200


async def test_page_that_fails_is_an_answer_too(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An error while a page is made is logged, answered with 500, and ends nothing."""

    def fail() -> dict[str, Any]:
        raise RuntimeError("broken page")

    server = server_on(port, status=fail)
    await server.start()
    try:
        assert (await get(port, "/status"))[0] == 500
        assert (await get(port, "/healthz"))[0] == 200
    finally:
        await server.close()
    assert "broken page" in caplog.text


async def test_port_in_use_is_a_configuration_error(server: HttpServer, port: int) -> None:
    """The message names the option."""
    with pytest.raises(BridgeError, match=rf"http\.listen 127\.0\.0\.1:{port}"):
        await server_on(port).start()


async def test_close_does_not_wait_for_clients(server: HttpServer, port: int) -> None:
    """A client that never asks does not hold up the agent's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await server.close()

    assert await reader.read() == b""
    writer.close()
