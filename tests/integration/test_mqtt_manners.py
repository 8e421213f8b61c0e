"""What the MQTT transport does for those who wait for its messages."""

import os

import pytest

from bridge.config import Mqtt
from bridge.transports import Outgoing
from bridge.transports.mqtt import MqttTransport
from tests.support.mqtt_script import SlowBroker, scripted_broker
from tests.support.running import running
from tests.support.waiting import until


def transport_to(port: int) -> MqttTransport:
    return MqttTransport(
        Mqtt(host="127.0.0.1", port=port, protocol="3.1.1"),
        root="sebridge/v1/group/vm",
        client_id="agent",
        will=lambda: b"",
        pending=lambda: (),
        take_commands=False,
    )


def row(number: int) -> Outgoing:
    return Outgoing(
        sequence=number, channel="events", event_id=f"id{number}", cloudevent=b'{"id": "1"}'
    )


async def test_first_message_gives_the_processor_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is woken by it need not wait for the rest of our work; a drain is not slowed down."""
    given: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: given.append(None))
    broker = SlowBroker()
    broker.told.set()
    async with scripted_broker(broker.serve) as port, running(transport_to(port)) as transport:
        await until(lambda: transport.connected)
        for times in (1, 2):
            await transport.publish([row(number) for number in range(1, 6)])
            assert len(given) == times
