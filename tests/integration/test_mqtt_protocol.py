"""Which version of MQTT is spoken, where the broker or something in front of it hangs up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bridge.config import Mqtt
from bridge.mqtt_client import UNSUPPORTED_PROTOCOL
from bridge.transports.mqtt import MqttTransport
from tests.support.mqtt_script import MQTT_5, MQTT_311, connack, scripted_broker
from tests.support.running import running
from tests.support.waiting import until

HANG_UP = None


class Door:
    """What stands in front of the agent: it answers CONNECT by a rule, and keeps what it saw."""

    def __init__(self, answer: Callable[[int, int], int | None]) -> None:
        self.levels: list[int] = []
        self._answer = answer  # (level, number of the connection) to a code, or to hang up
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: int
    ) -> None:
        self.levels.append(level)
        code = self._answer(level, len(self.levels))
        if code is not HANG_UP:
            self._writers.append(writer)
            writer.write(connack(level, code))
            await reader.read()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def agent_at(door: Door) -> AsyncIterator[MqttTransport]:
    async with scripted_broker(door.serve) as port:
        transport = MqttTransport(
            Mqtt(host="127.0.0.1", port=port, reconnect_s_max=0.3),
            root="sebridge/v1/group/vm",
            client_id="agent",
            will=lambda: b"",
            pending=lambda: (),
            take_commands=False,
        )
        async with running(transport):
            yield transport


async def test_one_hang_up_at_the_first_start_changes_nothing() -> None:
    """A load balancer without its broker is no broker of the old version."""
    door = Door(lambda _, number: HANG_UP if number == 1 else 0)
    async with agent_at(door) as transport:
        await until(lambda: transport.connected)

    assert [MQTT_5, MQTT_5] == door.levels


async def test_broker_that_knows_311_only_and_hangs_up_is_reached_soon() -> None:
    """Two hang-ups in a row are the answer of a broker that cannot say more."""
    door = Door(lambda level, _: 0 if level == MQTT_311 else HANG_UP)
    async with agent_at(door) as transport:
        await until(lambda: transport.connected, 5)

    assert [MQTT_5, MQTT_5, MQTT_311] == door.levels


async def test_hang_ups_after_mqtt_5_worked_are_an_outage() -> None:
    """What spoke MQTT 5 once does not forget it while it restarts."""
    door = Door(lambda _, number: 0 if number in {1, 7} else HANG_UP)
    async with agent_at(door) as transport:
        await until(lambda: transport.connected)
        door.cut()
        await until(lambda: transport.generation == 2)

    assert [MQTT_5] * 7 == door.levels


@pytest.mark.parametrize("worked_before", [False, True])
async def test_explicit_refusal_is_believed_at_once(worked_before: bool) -> None:
    """A broker that says it does not speak MQTT 5 any more is asked in 3.1.1 from then on."""
    first = 0 if worked_before else UNSUPPORTED_PROTOCOL
    refused = UNSUPPORTED_PROTOCOL
    door = Door(lambda level, number: 0 if level == MQTT_311 else (refused, first)[number == 1])
    async with agent_at(door) as transport:
        await until(lambda: transport.connected)
        door.cut()
        await until(lambda: transport.generation == 2)
        door.cut()
        await until(lambda: transport.generation == 3)

    assert [MQTT_311, MQTT_311] == door.levels[-2:]
    assert (3 if worked_before else 1) >= door.levels.count(MQTT_5)
