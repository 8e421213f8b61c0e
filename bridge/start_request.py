"""The one request that changes something: the POST that approves an event.

A fresh connection each, connect and send apart, no pool, no proxy, no redirect, no retry:
the caller commits "sending" to the ledger between the two steps, and what `connect` raises
proves that nothing left this machine.
"""

import asyncio
import re
from urllib.parse import urlsplit

import msgspec

from bridge.errors import ImdsUnavailable
from bridge.imds_wire import SCHEDULED_EVENTS, USER_AGENT, excerpt

ANSWER_BYTES_MAX = 64 * 1024
# Once the status is known, this long for the words that explain it.
DETAIL_TIMEOUT_S = 1.0

_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: [^\r\n]*)?\r?\n")


class PostResult(msgspec.Struct, frozen=True):
    status: int | None  # None: sent, perhaps, and no answer that can be trusted
    detail: str


async def connect(endpoint: str, api_version: str, timeout_s: float) -> "StartRequestConnection":
    """Open the connection. ImdsUnavailable means that nothing was sent, provably."""
    url = urlsplit(endpoint)
    host = url.netloc.rpartition("@")[2]
    target = f"{url.path.rstrip('/')}{SCHEDULED_EVENTS}?api-version={api_version}"
    if not url.hostname or not re.fullmatch(r"[!-~]+", host + target):
        raise ImdsUnavailable(
            f"POST {endpoint}{SCHEDULED_EVENTS}: not a usable address;"
            " check imds.endpoint and imds.api_version"
        )
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                url.hostname, url.port or 80, limit=ANSWER_BYTES_MAX
            )
    except (OSError, ValueError) as error:
        reason = (
            f"no connection within {timeout_s:g} s"
            if isinstance(error, TimeoutError)
            else str(error)
        )
        raise ImdsUnavailable(
            f"POST to {host}: {reason}; nothing was sent, check imds.endpoint"
        ) from error
    return StartRequestConnection(reader, writer, host=host, target=target)


class StartRequestConnection:
    """Connected, and good for one POST."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        host: str,
        target: str,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._target = target
        self._used = False

    async def post(self, event_id: str, timeout_s: float) -> PostResult:
        """Send the approval once and read the answer. Raises nothing but CancelledError."""
        if self._used:
            return PostResult(None, "this connection has carried its one request already")
        self._used = True
        answer = _Answer(self._reader)
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(self._request(event_id))
                await self._writer.drain()
                await answer.read()
        except TimeoutError:
            lost = f"no answer within {timeout_s:g} s"
        except asyncio.IncompleteReadError:
            lost = "the connection ended before the answer"
        except Exception as error:  # noqa: BLE001 - whatever it was, the request may have arrived
            lost = f"{type(error).__name__}: {error}"
        else:
            lost = ""
        if answer.status is None:
            return PostResult(None, lost)
        return PostResult(answer.status, excerpt(answer.reason + b" " + answer.body))

    def close(self) -> None:
        self._writer.transport.abort()

    def _request(self, event_id: str) -> bytes:
        body = msgspec.json.encode({"StartRequests": [{"EventId": event_id}]})
        head = (
            f"POST {self._target} HTTP/1.1\r\n"
            f"Host: {self._host}\r\n"
            "Metadata: true\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n"
            f"User-Agent: {USER_AGENT}\r\n"
            "\r\n"
        )
        return head.encode("ascii") + body


class _Answer:
    """As much of an HTTP answer as has been read; a status, once read, stays."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = ANSWER_BYTES_MAX
        self.status: int | None = None
        self.reason = b""
        self.body = b""

    async def read(self) -> None:
        line = await self._line()
        while (status := _status(line)) < 200:
            await self._skip_headers()
            line = await self._line()
        self.status = status
        self.reason = line.split(b" ", 2)[-1] if line.count(b" ") > 1 else b""
        if status != 200:
            async with asyncio.timeout(DETAIL_TIMEOUT_S):
                await self._read_detail()

    async def _read_detail(self) -> None:
        left = min(await self._skip_headers(), self._left)
        while left > 0 and (chunk := await self._reader.read(left)):
            self.body += chunk
            left -= len(chunk)

    async def _skip_headers(self) -> int:
        """Read up to the empty line; returns the body's length, or the most we would take."""
        length = self._left
        while (line := await self._line()).strip():
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and re.fullmatch(
                rb"[0-9]{1,9}", value.strip()
            ):
                length = int(value)
        return length

    async def _line(self) -> bytes:
        line = await self._reader.readuntil(b"\n")
        self._left -= len(line)
        if self._left <= 0:
            raise ValueError(f"the answer exceeds {ANSWER_BYTES_MAX} bytes")
        return line


def _status(line: bytes) -> int:
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not an HTTP answer: {excerpt(line, characters_max=60)}")
    return int(found[1])
