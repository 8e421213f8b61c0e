"""What the GETs and the one POST to IMDS have in common: address, answer, readable excerpts.

HTTP/1.1 as far as IMDS speaks it, on asyncio streams. No proxies, no redirects, no TLS, no cookies,
no retries; every size is bounded, and times are bounded by the callers.
"""

import asyncio
import re
from urllib.parse import urlsplit

import msgspec

from bridge.version import VERSION

SCHEDULED_EVENTS = "/metadata/scheduledevents"
INSTANCE = "/metadata/instance"
USER_AGENT = f"sebridge/{VERSION}"
# What every GET carries.
HEADERS = {"Metadata": "true", "User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
HEAD_BYTES_MAX = 64 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([^\r\n]*))?\r?\n")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_BODILESS_STATUSES = frozenset({204, 304})


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


async def connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(address.hostname, address.port, limit=HEAD_BYTES_MAX)


class BodyTooLarge(ValueError):
    """As much of the body as is allowed was read, and there is more."""


class Answer:
    """As much of an HTTP answer as has been read; a status, once read, stays."""

    def __init__(self, reader: asyncio.StreamReader, *, body_bytes_max: int) -> None:
        self._reader = reader
        self._head_left = HEAD_BYTES_MAX
        self._body_left = body_bytes_max
        self._body_bytes_max = body_bytes_max
        self._headers: dict[bytes, bytes] = {}
        self._keeps_alive = False
        self.status: int | None = None
        self.reason = b""
        self.body = b""

    def header(self, name: str) -> str:
        return self._headers.get(name.lower().encode(), b"").decode("latin-1")

    @property
    def is_reusable(self) -> bool:
        """All of it was read, and the peer said nothing against another request."""
        return self._keeps_alive

    async def read_status(self) -> None:
        while True:
            line = await self._line()
            found = _STATUS_LINE.fullmatch(line)
            if found is None:
                raise ValueError(f"not an HTTP answer: {excerpt(line, characters_max=60)}")
            if int(found[2]) >= 200:
                break
            await self.read_headers()  # an interim answer
        self._version, self.status, self.reason = found[1], int(found[2]), found[3] or b""

    async def read_headers(self) -> None:
        self._headers = {}
        while (line := await self._line()).strip():
            name, _, value = line.partition(b":")
            self._headers[name.strip().lower()] = value.strip()

    async def read_body(self) -> None:
        encoding = self._headers.get(b"transfer-encoding", b"").lower()
        length = self._headers.get(b"content-length")
        if self.status in _BODILESS_STATUSES:
            pass
        elif encoding:
            if encoding != b"chunked" or length is not None:
                raise ValueError("an answer in an encoding that was not asked for")
            await self._read_chunks()
        elif length is None:
            await self._read_to_end()
            return
        elif re.fullmatch(rb"[0-9]{1,12}", length):
            await self._take(int(length))
        else:
            raise ValueError("Content-Length is not a number")
        closing = self._headers.get(b"connection", b"").lower() == b"close"
        self._keeps_alive = self._version != b"0" and not closing

    async def _read_chunks(self) -> None:
        while True:
            line = _CHUNK_LINE.fullmatch(await self._line())
            if line is None:
                raise ValueError("a chunk without its size")
            size = int(line[1], 16)
            if size == 0:
                break
            await self._take(size)
            if (await self._line()).strip():
                raise ValueError("a chunk is longer than it said")
        while (await self._line()).strip():
            pass  # trailers

    async def _read_to_end(self) -> None:
        """HTTP/1.0: the body is over when the connection is."""
        while chunk := await self._reader.read(HEAD_BYTES_MAX):
            self._add(chunk)

    async def _take(self, size: int) -> None:
        while size > 0:
            chunk = await self._reader.read(min(size, HEAD_BYTES_MAX))
            if not chunk:
                raise ConnectionResetError("the connection ended before the answer")
            self._add(chunk)
            size -= len(chunk)

    def _add(self, chunk: bytes) -> None:
        self.body += chunk[: self._body_left]
        self._body_left -= len(chunk)
        if self._body_left < 0:
            raise BodyTooLarge(f"the body exceeds {self._body_bytes_max} bytes")

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the connection ended before the answer") from error
        except asyncio.LimitOverrunError as error:
            raise ValueError("a line of the answer is too long") from error
        self._head_left -= len(line)
        if self._head_left <= 0:
            raise ValueError(f"the answer's head exceeds {HEAD_BYTES_MAX} bytes")
        return line


def excerpt(raw: bytes, *, characters_max: int = 200) -> str:
    """What a person can read of a body, on one line."""
    text = raw[: characters_max * 8].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[:characters_max]
