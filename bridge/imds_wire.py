"""What the GETs and the one POST to IMDS have in common: the address, and a connection to it.

No proxies, no redirects, no TLS, no cookies, no retries. Sizes are bounded by the answer's reader,
times by the callers.
"""

import asyncio
import re
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import msgspec

from bridge.core.http_answer import Answer
from bridge.version import VERSION

SCHEDULED_EVENTS = "/metadata/scheduledevents"
INSTANCE = "/metadata/instance"
USER_AGENT = f"sebridge/{VERSION}"
# What every GET carries.
HEADERS = {"Metadata": "true", "User-Agent": USER_AGENT, "Accept-Encoding": "identity"}


class Address(msgspec.Struct, frozen=True):
    """Where IMDS listens, and the path prefix that a simulated VM has."""

    hostname: str
    port: int
    host: str  # as the Host header has it
    prefix: str

    def target(self, path: str, api_version: str) -> str:
        """The request line's target; ValueError for what could break the line."""
        target = f"{self.prefix}{path}?api-version={api_version}"
        if not re.fullmatch(r"[!-~]+", self.host + target):
            raise ValueError("not a usable address; check imds.endpoint and imds.api_version")
        return target


def parse(endpoint: str) -> Address:
    url = urlsplit(endpoint)
    if not url.hostname:
        raise ValueError("no host; check imds.endpoint")
    host = url.netloc.rpartition("@")[2]
    return Address(url.hostname, url.port or 80, host, url.path.rstrip("/"))


async def connect(address: Address) -> "Connection":
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, address.hostname, address.port)
    return connection


class Connection(asyncio.Protocol):
    """One request at a time, and its answer as it comes.

    A protocol and not a stream: the answer is read in one go when it comes in one piece, which it
    does, and each wait of a stream would cost as much as all of the reading.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._problem: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self.is_stale = False  # closed by the peer, or spoilt by bytes that nobody asked for

    def ask(self, request: bytes, answer: Answer) -> None:
        """Send a request, and let its answer fill as it comes. OSError when the peer has gone."""
        if self._transport is None or self.is_stale:
            raise ConnectionResetError("the connection ended before the request")
        self._answer = answer
        self._transport.write(request)

    async def until(self, is_there: Callable[[], object]) -> None:
        """Wait for a part of the answer. OSError or ValueError when it will not come."""
        while not is_there():
            if self._problem is not None:
                raise self._problem
            self._news = asyncio.get_running_loop().create_future()
            await self._news

    def abort(self) -> None:
        self.is_stale = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.is_whole:
            self.abort()
        elif self._problem is None:
            self._read(lambda answer: answer.feed(data))

    def eof_received(self) -> None:
        self.is_stale = True
        self._read(lambda answer: answer.end())

    def connection_lost(self, error: Exception | None) -> None:
        self.is_stale = True
        if error is not None:
            self._problem = self._problem or error
        self._read(lambda answer: answer.end())

    def _read(self, step: Callable[[Answer], None]) -> None:
        if self._answer is not None and self._problem is None:
            try:
                step(self._answer)
            except (OSError, ValueError) as error:
                self._problem = error
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
