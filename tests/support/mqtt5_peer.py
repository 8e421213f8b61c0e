"""A peer that speaks just enough MQTT 5 over TLS to stand for an Event Grid namespace.

It reads CONNECT's authentication method and data, admits the tokens it is told to, and
acknowledges whatever follows.
"""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import NamedTuple, Self

NOT_AUTHORIZED = 135
BAD_METHOD = 140
_CONNECT, _PUBLISH, _SUBSCRIBE, _UNSUBSCRIBE, _PINGREQ, _DISCONNECT = 1, 3, 8, 10, 12, 14
# MQTT 5, 2.2.2.2: how long the value of each property in a CONNECT is; 0 means length-prefixed.
_PROPERTY_BYTES = {0x11: 4, 0x15: 0, 0x16: 0, 0x17: 1, 0x19: 1, 0x21: 2, 0x22: 2, 0x27: 4}
_METHOD, _DATA = 0x15, 0x16


class Connect(NamedTuple):
    level: int  # 5
    method: str
    data: str
    code: int  # what was answered
    at: float  # on the event loop's clock


class Mqtt5Peer:
    """`async with Mqtt5Peer(cert, key, tokens) as peer:` listens on 127.0.0.1."""

    def __init__(self, cert_file: Path, key_file: Path, tokens: set[str]) -> None:
        self.tokens = tokens
        self.connects: list[Connect] = []
        self.topics: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert_file, key_file)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while answer := self._answer(*await _packet(reader)):
                    writer.write(answer)
                    await writer.drain()
        finally:
            writer.transport.abort()

    def _answer(self, first: int, body: bytes) -> bytes:
        """The answer's bytes; empty to hang up."""
        kind = first >> 4
        if kind == _CONNECT:
            code = self._admit(body)
            return bytes([0x20, 3, 0, code, 0])
        if kind == _PUBLISH:
            length = int.from_bytes(body[:2])
            self.topics.append(body[2 : 2 + length].decode())
            return bytes([0x40, 2]) + body[2 + length : 4 + length]
        if kind == _SUBSCRIBE:
            return bytes([0x90, 4]) + body[:2] + bytes([0, 1])
        if kind == _UNSUBSCRIBE:
            return bytes([0xB0, 4]) + body[:2] + bytes([0, 0])
        assert kind in {_PINGREQ, _DISCONNECT}, kind
        return bytes([0xD0, 0]) if kind == _PINGREQ else b""

    def _admit(self, body: bytes) -> int:
        assert body[:6] == b"\x00\x04MQTT"
        level, properties = body[6], _properties(body[10:])
        method = properties.get(_METHOD, b"").decode()
        token = properties.get(_DATA, b"").decode()
        code = 0 if token in self.tokens else NOT_AUTHORIZED
        if method != "OAUTH2-JWT":
            code = BAD_METHOD
        now = asyncio.get_running_loop().time()
        self.connects.append(Connect(level, method, token, code, now))
        return code


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first = (await reader.readexactly(1))[0]
    length, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return first, await reader.readexactly(length)


def _properties(rest: bytes) -> dict[int, bytes]:
    length, position, shift = 0, 0, 0
    while True:
        byte = rest[position]
        length |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    end = position + length
    found = {}
    while position < end:
        name = rest[position]
        size, position = _PROPERTY_BYTES[name], position + 1
        if not size:
            size, position = int.from_bytes(rest[position : position + 2]), position + 2
        found[name] = rest[position : position + size]
        position += size
    return found
