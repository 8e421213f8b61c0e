"""A port that plays an MQTT broker by a script: one function a connection, after its CONNECT."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]

MQTT_5, MQTT_311 = 5, 4  # as CONNECT names them
_PUBLISH, _SUBSCRIBE = 0x30, 0x82
_CONNACK = {MQTT_5: b"\x20\x03\x00%c\x00", MQTT_311: b"\x20\x02\x00%c"}


@asynccontextmanager
async def scripted_broker(serve: Serve) -> AsyncIterator[int]:
    """`serve` gets the level of the protocol that the client asked for."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            _, connect = await read_packet(reader)
            await serve(reader, writer, connect[6])
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class SlowBroker:
    """Acknowledges nothing of what is published before it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.published: list[str] = []
        self.subscribed: list[str] = []
        self._answers: set[asyncio.Task[None]] = set()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: int
    ) -> None:
        """An MQTT 3.1.1 broker, as far as the agent needs one."""
        writer.write(connack(level))
        while True:
            kind, body = await read_packet(reader)
            if kind & 0xF0 == _PUBLISH:
                topic_end = 2 + int.from_bytes(body[:2])
                self.published.append(body[2:topic_end].decode())
                mid = body[topic_end : topic_end + 2]
                self._answers.add(asyncio.create_task(self._acknowledge(writer, mid)))
            elif kind == _SUBSCRIBE:
                self.subscribed.append(body[4:-1].decode())
                writer.write(b"\x90\x03" + body[:2] + b"\x01")

    async def _acknowledge(self, writer: asyncio.StreamWriter, mid: bytes) -> None:
        await self.told.wait()
        writer.write(b"\x40\x02" + mid)


def connack(level: int, code: int = 0) -> bytes:
    return _CONNACK[level] % code


def publish(topic: str, payload: bytes, *, mid: int = 0) -> bytes:
    """An MQTT 3.1.1 PUBLISH, with QoS 1 if it has a message id."""
    body = len(topic).to_bytes(2) + topic.encode() + (mid.to_bytes(2) if mid else b"") + payload
    length, digits = len(body), b""
    while length or not digits:
        length, digit = divmod(length, 128)
        digits += bytes([digit | (128 if length else 0)])
    return bytes([0x32 if mid else 0x30]) + digits + body


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        digit = (await reader.readexactly(1))[0]
        length |= (digit & 0x7F) << shift
        shift += 7
        if digit < 0x80:
            return kind, await reader.readexactly(length)
