"""What a probe, Prometheus or an operator on the VM can ask: /healthz /readyz /metrics /status.

Plain answers from callables; it knows nothing of the loops behind them. As much HTTP/1.1 as a
handful of GETs need, one a connection: a whole web server would be most of the agent's memory.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from bridge.config import Http
from bridge.errors import BridgeError
from bridge.metrics import CONTENT_TYPE

logger = logging.getLogger("sebridge.http")

REQUEST_BYTES_MAX = 16 * 1024
REQUEST_TIMEOUT_S = 10.0
# A few probes, a scrape and an operator; whoever opens more is not one of them.
CONNECTIONS_MAX = 32

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[0-9]\r?\n")
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"


class Page(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


class HttpServer:
    def __init__(
        self,
        config: Http,
        *,
        healthy: Callable[[], str],
        ready: Callable[[], str],
        metrics: Callable[[], bytes],
        status: Callable[[], dict[str, Any]],
        audit: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._config = config
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._pages: dict[str, Callable[[], Page]] = {
            "/healthz": lambda: _probe(healthy()),
            "/readyz": lambda: _probe(ready()),
            "/metrics": lambda: Page(HTTPStatus.OK, CONTENT_TYPE, metrics()),
            "/status": lambda: _json(status()),
            "/audit": lambda: _json(audit()),
        }

    async def start(self) -> None:
        host, port = self._config.address()
        try:
            self._server = await asyncio.start_server(
                self._accept, host or None, port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            message = f"http.listen {self._config.listen}: {error.strerror or error}"
            raise BridgeError(message) from error

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer. A client that hangs, babbles or leaves costs nobody anything."""
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    request = await reader.readuntil(b"\n")
                    await _skip_headers(reader)
                    writer.write(self._answer(request))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    def _answer(self, request: bytes) -> bytes:
        found = _REQUEST_LINE.fullmatch(request)
        if found is None:
            return _encode(_error(HTTPStatus.BAD_REQUEST))
        method, target = found[1].decode(), found[2].decode()
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return _encode(_error(HTTPStatus.NOT_FOUND))
        if method not in {"GET", "HEAD"}:
            return _encode(_error(HTTPStatus.METHOD_NOT_ALLOWED))
        return _encode(self._made(target, page), with_body=method == "GET")

    def _made(self, target: str, page: Callable[[], Page]) -> Page:
        try:
            return page()
        except Exception:
            logger.exception("no answer to %s", target)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _skip_headers(reader: asyncio.StreamReader) -> None:
    left = REQUEST_BYTES_MAX
    while (line := await reader.readuntil(b"\n")).strip():
        left -= len(line)
        if left <= 0:
            raise ConnectionAbortedError("too many headers")


def _probe(problem: str) -> Page:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
    return Page(status, _TEXT, f"{problem or 'ok'}\n".encode())


def _json(content: Any) -> Page:
    return Page(HTTPStatus.OK, _JSON, msgspec.json.encode(content))


def _error(status: HTTPStatus) -> Page:
    return Page(status, _TEXT, f"{status.value}: {status.phrase}\n".encode())


def _encode(page: Page, *, with_body: bool = True) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if page.status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{allow}"
        # Descriptions come from outside: no browser shall take JSON for a page.
        "X-Content-Type-Options: nosniff\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    return head.encode("ascii") + (page.body if with_body else b"")
