"""paho on the event loop: what its own thread used to look after."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from bridge.config import Mqtt, MqttTls
from bridge.transports.mqtt.client import Message
from bridge.transports.mqtt.connection import Connection
from bridge.transports.mqtt.pump import Pump
from tests.support.certificates import DAY, Authority
from tests.support.mosquitto import Mosquitto
from tests.support.mqtt_script import connack, read_packet, scripted_broker

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def broker_that(serve: Serve) -> AsyncIterator[int]:
    """A port where `serve` plays the broker, after CONNECT and CONNACK."""

    async def welcome(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: int
    ) -> None:
        writer.write(connack(level))
        await serve(reader, writer)

    async with scripted_broker(welcome) as port:
        yield port


@asynccontextmanager
async def connected(
    port: int, on_command: Callable[[Connection, MQTTMessage], None], **options: Any
) -> AsyncIterator[Connection]:
    connection = Connection(
        Mqtt(host="127.0.0.1", port=port, **options),
        client_id="pump",
        version="3.1.1",
        will=Message(topic="will", payload=b""),
        on_command=on_command,
        commands_bytes_max=65_536,
    )
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


async def test_tls_holds_nothing_back(tmp_path: Path) -> None:
    """Messages that share a TLS record all arrive, though the socket announces only the first."""
    authority = Authority(tmp_path)
    issued = authority.issue("broker", ends=90 * DAY)
    lines = ["allow_anonymous true", f"certfile {issued.cert_file}", f"keyfile {issued.key_file}"]
    arrived: list[bytes] = []
    tls = MqttTls(enabled=True, ca_file=str(authority.ca_file))

    def keep(connection: Connection, message: MQTTMessage) -> None:
        arrived.append(bytes(message.payload))
        connection.ack(message)

    with Mosquitto(tmp_path, lines) as broker:
        async with connected(broker.port, keep, tls=tls) as connection:
            assert await connection.subscribe("t/#") == 1
            sent = [b"%03d" % number for number in range(300)]
            acks = [connection.publish(Message(topic="t/x", payload=body)) for body in sent]
            async with asyncio.timeout(20):
                await asyncio.gather(*acks)
                while len(arrived) < len(sent):
                    await asyncio.sleep(0.01)

    assert sent == arrived


async def test_full_socket_is_waited_for() -> None:
    """What does not fit into the socket leaves when the broker reads on, whole and in order."""
    go_on = asyncio.Event()
    payloads = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        while True:
            kind, body = await read_packet(reader)
            if kind & 0xF0 != 0x30:
                return
            end = 2 + struct.unpack_from("!H", body)[0]
            payloads.append(body[end + 2 :])
            writer.write(b"\x40\x02" + body[end : end + 2])

    async with broker_that(slow) as port, connected(port, lambda *_: None) as connection:
        sent = [bytes([number]) * 1_000_000 for number in range(20)]
        acks = [connection.publish(Message(topic="t", payload=body)) for body in sent]
        await asyncio.sleep(0.1)
        assert not any(ack.done() for ack in acks)
        go_on.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*acks)

    assert sent == payloads


async def test_silent_broker_is_left() -> None:
    """A ping without an answer ends the connection, as paho's own thread would."""

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    ended = asyncio.Event()
    client = Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
    client.on_disconnect = lambda *_: ended.set()
    async with broker_that(silent) as port:
        await asyncio.to_thread(client.connect, "127.0.0.1", port, 1)
        pump = Pump(client, 1, on_failure=pytest.fail)
        pump.start()
        async with asyncio.timeout(10):
            await ended.wait()

    assert client.socket() is None


@pytest.mark.parametrize(
    "garbage", [b"\x30\x02\x00\x09", b"\x90\x01\x00", b"\xf0\x00", b"\x40\x00"]
)
async def test_unreadable_packet_ends_the_connection(garbage: bytes) -> None:
    """What paho cannot read ends this connection, and nothing else."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)
        await reader.read()

    async with broker_that(babble) as port, connected(port, lambda *_: None) as connection:
        async with asyncio.timeout(10):
            await asyncio.wait({connection.closed})

        assert connection.closed.result()


async def test_late_connection_is_not_kept() -> None:
    """An attempt that was given up closes its socket when it gets through after all."""
    left = asyncio.Event()

    async def notice(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # a reset is an end, too
            await reader.read()
        left.set()

    async with broker_that(notice) as port:
        connection = Connection(
            Mqtt(host="127.0.0.1", port=port),
            client_id="late",
            version="3.1.1",
            will=Message(topic="will", payload=b""),
            on_command=lambda *_: None,
            commands_bytes_max=65_536,
        )
        connection._abandoned = True
        await asyncio.to_thread(connection._connect)
        async with asyncio.timeout(10):
            await left.wait()

        assert connection._client.socket() is None
