"""What the MQTT transport does for others: who waits gets the processor, and nobody echoes."""

import asyncio
import os

import pytest

from bridge.config import Mqtt
from bridge.transports import Outgoing
from bridge.transports.mqtt import MqttTransport
from tests.support.mqtt_script import connack, read_packet, scripted_broker
from tests.support.running import running
from tests.support.waiting import until

PUBLISH, SUBSCRIBE = 0x30, 0x80


class SlowBroker:
    """Acknowledges nothing of what is published before it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.kinds: list[int] = []
        self._answers: set[asyncio.Task[None]] = set()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: int
    ) -> None:
        writer.write(connack(level))
        while True:
            kind, body = await read_packet(reader)
            self.kinds.append(kind & 0xF0)
            if self.kinds[-1] == PUBLISH:
                behind_topic = 2 + int.from_bytes(body[:2])
                mid = body[behind_topic : behind_topic + 2]
                self._answers.add(asyncio.create_task(self._acknowledge(writer, mid)))

    async def _acknowledge(self, writer: asyncio.StreamWriter, mid: bytes) -> None:
        await self.told.wait()
        writer.write(b"\x40\x02" + mid)


def transport_to(port: int, *, known: asyncio.Event) -> MqttTransport:
    return MqttTransport(
        Mqtt(host="127.0.0.1", port=port, protocol="3.1.1"),
        root="sebridge/v1/group/vm",
        client_id="agent",
        will=lambda: b"",
        pending=lambda: (),
        pending_known=known,
        take_commands=False,
    )


def row(number: int) -> Outgoing:
    return Outgoing(
        sequence=number, channel="events", event_id=f"id{number}", cloudevent=b'{"id": "1"}'
    )


async def test_stale_messages_are_asked_for_when_ours_are_out() -> None:
    """While an outbox drains, each retained copy would come back to its sender."""
    broker, known = SlowBroker(), asyncio.Event()
    async with (
        scripted_broker(broker.serve) as port,
        running(transport_to(port, known=known)) as transport,
    ):
        await until(lambda: transport.connected)
        publishing = asyncio.create_task(transport.publish([row(1), row(2)]))
        await until(lambda: len(broker.kinds) == 4)
        known.set()
        broker.told.set()
        await publishing
        await transport.publish([row(3)])
        await until(lambda: SUBSCRIBE in broker.kinds)

    assert broker.kinds.index(SUBSCRIBE) == 6


async def test_first_message_gives_the_processor_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is woken by it need not wait for the rest of our work; a drain is not slowed down."""
    given: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: given.append(None))
    broker = SlowBroker()
    broker.told.set()
    async with (
        scripted_broker(broker.serve) as port,
        running(transport_to(port, known=asyncio.Event())) as transport,
    ):
        await until(lambda: transport.connected)
        for times in (1, 2):
            await transport.publish([row(number) for number in range(1, 6)])
            assert len(given) == times
