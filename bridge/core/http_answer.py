"""One HTTP/1.1 answer, as far as IMDS speaks it: bytes in, as they come; status, headers, body out.

Every size is bounded; time is the caller's. Where a body ends must be beyond doubt, or there is no
answer: half a document would look like the end of events.
"""

import re
from collections.abc import Generator
from typing import TypeVar

HEAD_BYTES_MAX = 64 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([^\r\n]*))?\r?\n")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LENGTH = re.compile(rb"[0-9]{1,12}")
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_BODILESS_STATUSES = frozenset({204, 304})

# A parser that gives way whenever it needs more than has come.
_Result = TypeVar("_Result")
_Steps = Generator[None, None, _Result]


class BodyTooLarge(ValueError):
    """As much of the body as is allowed was read, and there is more."""


class Answer:
    """As much of an HTTP answer as has come; a status, once read, stays."""

    def __init__(self, *, body_bytes_max: int) -> None:
        self._came = bytearray()  # and was not read yet
        self._ended = False
        self._head_left = HEAD_BYTES_MAX
        self._body = bytearray()
        self._body_bytes_max = body_bytes_max
        self._version = b""
        self._headers: dict[bytes, bytes] = {}
        self._keeps_alive = False
        self._steps = self._read()
        self.status: int | None = None
        self.reason = b""
        self.is_whole = False

    @property
    def body(self) -> bytes:
        return bytes(self._body)

    def header(self, name: str) -> str:
        return self._headers.get(name.lower().encode(), b"").decode("latin-1")

    @property
    def is_reusable(self) -> bool:
        """All of it was read and nothing else came, and the peer said nothing against another."""
        return self.is_whole and self._keeps_alive and not self._came

    def feed(self, data: bytes) -> None:
        """More of it. ValueError when it is no answer, or too much of one."""
        self._came += data
        next(self._steps, None)

    def end(self) -> None:
        """The peer will send no more. ConnectionResetError when that was too early."""
        self._ended = True
        next(self._steps, None)

    def _read(self) -> _Steps[None]:
        yield from self._read_status()
        yield from self._read_headers()
        yield from self._read_body()
        self.is_whole = True

    def _read_status(self) -> _Steps[None]:
        while True:
            line = yield from self._line()
            found = _STATUS_LINE.fullmatch(line)
            if found is None:
                raise ValueError(f"not an HTTP answer: {excerpt(line, characters_max=60)}")
            if int(found[2]) >= 200:
                break
            yield from self._read_headers()  # an interim answer
        self._version, self.status, self.reason = found[1], int(found[2]), found[3] or b""

    def _read_headers(self) -> _Steps[None]:
        self._headers = {}
        while (line := (yield from self._line())).strip():
            name, _, value = line.partition(b":")
            name = name.strip().lower()
            if name in _FRAMING and name in self._headers:
                raise ValueError("an answer that says twice where it ends")
            self._headers[name] = value.strip()

    def _read_body(self) -> _Steps[None]:
        encoding = self._headers.get(b"transfer-encoding", b"").lower()
        length = self._headers.get(b"content-length")
        if self.status in _BODILESS_STATUSES:
            pass
        elif encoding:
            if encoding != b"chunked" or length is not None:
                raise ValueError("an answer in an encoding that was not asked for")
            yield from self._read_chunks()
        elif length is None:
            yield from self._read_to_end()
            return
        elif _LENGTH.fullmatch(length):
            yield from self._take(int(length))
        else:
            raise ValueError("Content-Length is not a number")
        closing = self._headers.get(b"connection", b"").lower() == b"close"
        self._keeps_alive = self._version != b"0" and not closing

    def _read_chunks(self) -> _Steps[None]:
        while True:
            line = _CHUNK_LINE.fullmatch((yield from self._line()))
            if line is None:
                raise ValueError("a chunk without its size")
            size = int(line[1], 16)
            if size == 0:
                break
            yield from self._take(size)
            if (yield from self._line()).strip():
                raise ValueError("a chunk is longer than it said")
        while (yield from self._line()).strip():
            pass  # trailers

    def _read_to_end(self) -> _Steps[None]:
        """HTTP/1.0: the body is over when the connection is."""
        while True:
            self._keep(len(self._came))
            if self._ended:
                return
            yield

    def _take(self, size: int) -> _Steps[None]:
        while True:
            size -= self._keep(min(size, len(self._came)))
            if size == 0:
                return
            yield from self._more()

    def _keep(self, size: int) -> int:
        """Move as much to the body."""
        self._body += self._came[:size]
        del self._came[:size]
        if len(self._body) > self._body_bytes_max:
            del self._body[self._body_bytes_max :]
            raise BodyTooLarge(f"the body exceeds {self._body_bytes_max} bytes")
        return size

    def _line(self) -> _Steps[bytes]:
        while True:
            end = self._came.find(b"\n") + 1
            if (end or len(self._came)) >= self._head_left:
                raise ValueError(f"the answer's head exceeds {HEAD_BYTES_MAX} bytes")
            if end:
                break
            yield from self._more()
        line = bytes(self._came[:end])
        del self._came[:end]
        self._head_left -= end
        return line

    def _more(self) -> _Steps[None]:
        if self._ended:
            raise ConnectionResetError("the connection ended before the answer")
        yield


def excerpt(raw: bytes, *, characters_max: int = 200) -> str:
    """What a person can read of a body, on one line."""
    text = raw[: characters_max * 8].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[:characters_max]
