"""MQTT 3.1.1 on a bare socket: the subscriber that takes the time, and the floor for publishers.

Only what a measurement needs: CONNECT, SUBSCRIBE, PUBLISH and their answers, in order.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import cast

CONNECT, PUBLISH, PUBACK, SUBSCRIBE = 0x10, 0x30, 0x40, 0x82


def packet(kind: int, body: bytes) -> bytes:
    length, encoded = len(body), bytearray()
    while True:
        length, digit = divmod(length, 128)
        encoded.append(digit | (0x80 if length else 0))
        if not length:
            return bytes([kind, *encoded]) + body


def connect(client_id: str) -> bytes:
    return packet(CONNECT, b"\0\4MQTT\4\2\0\0" + text(client_id))


def publish(topic: str, payload: bytes, identifier: int) -> bytes:
    return packet(PUBLISH | 2, text(topic) + struct.pack("!H", identifier) + payload)


def subscribe(topic: str, qos: int) -> bytes:
    return packet(SUBSCRIBE, b"\0\1" + text(topic) + bytes([qos]))


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("!H", len(raw)) + raw


class Packets:
    """Bytes in, whole packets out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        self._buffer += data
        found = []
        while (whole := self._next()) is not None:
            found.append(whole)
        return found

    def _next(self) -> tuple[int, bytes] | None:
        length = shift = 0
        for position in range(1, min(len(self._buffer), 5)):
            length |= (self._buffer[position] & 0x7F) << shift
            shift += 7
            if self._buffer[position] < 0x80:
                end = position + 1 + length
                if len(self._buffer) < end:
                    return None
                whole = self._buffer[0], bytes(self._buffer[position + 1 : end])
                del self._buffer[:end]
                return whole
        return None


class Client(asyncio.Protocol):
    """Subscribes at QoS 0, calls back with topic and payload; publishes at QoS 1."""

    def __init__(self, on_message: Callable[[str, bytes], None]) -> None:
        self._on_message = on_message
        self._packets = Packets()
        self._transport: asyncio.Transport | None = None
        self._identifier = 0
        self.ready = asyncio.Event()
        self.acks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for kind, body in self._packets.feed(data):
            if kind & 0xF0 == PUBLISH:
                end = 2 + struct.unpack_from("!H", body)[0]
                self._on_message(body[2:end].decode(), body[end + (2 if kind & 6 else 0) :])
            elif kind == PUBACK:
                self.acks += 1
            else:
                self.ready.set()  # CONNACK, SUBACK

    def publish(self, topic: str, payload: bytes) -> None:
        self._identifier = self._identifier % 65_535 + 1
        self._write(publish(topic, payload, self._identifier))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    @classmethod
    async def open(
        cls, port: int, topic: str, on_message: Callable[[str, bytes], None]
    ) -> "Client":
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(on_message), "127.0.0.1", port)
        for data in (connect(f"bench-{id(client)}"), subscribe(topic, 0)):
            client.ready.clear()
            client._write(data)
            await client.ready.wait()
        return client
