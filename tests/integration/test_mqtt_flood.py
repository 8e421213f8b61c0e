"""Floods of commands over MQTT: what is promised is kept, what is not takes no memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bridge.config import Mqtt
from bridge.transports.mqtt import MqttTransport
from tests.support.mqtt_script import connack, publish, read_packet, scripted_broker
from tests.support.running import running
from tests.support.waiting import until

ROOT = "sebridge/v1/group/vm"
TOPIC = f"{ROOT}/commands"
PUBACK = 0x40


class Flooder:
    """Sends what it is given once the agent is there, and keeps the ids of what is acked."""

    def __init__(self, packets: bytes) -> None:
        self.acked: list[int] = []
        self._packets = packets

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: int
    ) -> None:
        writer.write(connack(level) + self._packets)
        while True:
            kind, body = await read_packet(reader)
            if kind == PUBACK:
                self.acked.append(int.from_bytes(body))


@asynccontextmanager
async def flooded(flooder: Flooder) -> AsyncIterator[MqttTransport]:
    async with scripted_broker(flooder.serve) as port:
        transport = MqttTransport(
            Mqtt(host="127.0.0.1", port=port, protocol="3.1.1", reconnect_s_max=0.1),
            root=ROOT,
            client_id="agent",
            will=lambda: b"",
            pending=lambda: (),
            take_commands=False,
            commands_bytes_max=1000,
        )
        async with running(transport):
            yield transport


def waiting_for_acks(transport: MqttTransport) -> Callable[[], list[int]]:
    return lambda: [m.mid for m in transport._connection._arrived] if transport._connection else []


async def test_flood_without_promise_is_dropped_and_forgotten() -> None:
    """Behind one undecided command, thousands with QoS 0 stay neither queued nor remembered."""
    promised, flood = publish(TOPIC, b"1", mid=1), publish(TOPIC, b"x" * 500) * 3000
    flooder = Flooder(promised + flood + publish(TOPIC, b"2", mid=2))
    async with flooded(flooder) as transport:
        await until(lambda: waiting_for_acks(transport)() == [1, 2])
        queued = [transport._queue.get_nowait() for _ in range(transport._queue.qsize())]
        for incoming in queued:
            incoming.ack()
        await until(lambda: flooder.acked == [1, 2])

        assert transport.generation == 1
    assert [b"1", b"2"] == [queued[0].wire.payload, queued[-1].wire.payload]
    assert 101 == len(queued)


async def test_promised_commands_beyond_the_queue_are_left_to_the_broker() -> None:
    """A broker that knows no limit is hung up on, and gives the rest again."""
    flooder = Flooder(b"".join(publish(TOPIC, b"x", mid=mid) for mid in range(1, 1102)))
    async with flooded(flooder) as transport:
        await until(lambda: transport.generation > 1)

        assert 1000 == transport._queue.qsize()


async def test_command_of_any_size_takes_one_byte_more_than_allowed() -> None:
    """MQTT 3.1.1 has no limit to tell the broker; too much is too much, and not kept."""
    flooder = Flooder(publish(TOPIC, b"x" * 3_000_000, mid=1))
    async with flooded(flooder) as transport:
        async with asyncio.timeout(10):
            incoming = await anext(transport.commands())
        assert transport._connection is not None

        assert 1001 == len(transport._connection._arrived[0].payload)
    assert 1001 == len(incoming.wire.payload)
