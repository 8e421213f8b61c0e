"""The demo's broker keeps the promises of MQTT that agents build on; the client is paho."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.demo.broker import DemoBroker

WAIT_S = 10.0


class Party:
    """One MQTT client; `manual` leaves its messages without a PUBACK."""

    def __init__(
        self, port: int, client_id: str, *, clean: bool = False, manual: bool = False
    ) -> None:
        self.got: asyncio.Queue[tuple[str, bytes, bool]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Queue[Any] = asyncio.Queue()
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=clean,
            protocol=MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=manual,
        )
        self.client.on_connect = lambda *_: self._hop(self._done, "connected")
        self.client.on_subscribe = lambda *_: self._hop(self._done, "subscribed")
        self.client.on_publish = lambda *_: self._hop(self._done, "published")
        self.client.on_message = lambda _c, _u, message: self._keep(message)
        self._port = port

    def _hop(self, queue: asyncio.Queue[Any], value: Any) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(queue.put_nowait, value)

    def _keep(self, message: MQTTMessage) -> None:
        self._hop(self.got, (message.topic, bytes(message.payload), message.retain))

    async def _wait_for(self, what: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while await self._done.get() != what:
                pass

    async def connect(self, *, will: str = "") -> "Party":
        if will:
            self.client.will_set(will, b"offline", qos=1, retain=True)
        self.client.connect("127.0.0.1", self._port)
        self.client.loop_start()
        await self._wait_for("connected")
        return self

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        self.client.subscribe(topic_filter, qos)
        await self._wait_for("subscribed")

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, 1, retain)
        await self._wait_for("published")

    async def next(self) -> tuple[str, bytes, bool]:
        async with asyncio.timeout(WAIT_S):
            return await self.got.get()

    def die(self) -> None:
        """As after SIGKILL: the socket closes without a DISCONNECT."""
        sock = self.client.socket()
        assert sock is not None
        sock.close()
        self.client.loop_stop()

    def leave(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


Join = Callable[..., Awaitable[Party]]


@pytest.fixture
async def broker() -> AsyncIterator[DemoBroker]:
    running = DemoBroker("127.0.0.1")
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def join(broker: DemoBroker) -> AsyncIterator[Join]:
    parties: list[Party] = []

    async def connect(client_id: str, *, will: str = "", **options: Any) -> Party:
        parties.append(Party(broker.port, client_id, **options))
        return await parties[-1].connect(will=will)

    yield connect
    for party in parties:
        party.leave()


async def test_message_for_an_absent_client_waits_and_is_not_retained(join: Join) -> None:
    """A command sent while the agent is away arrives when it is back, in order, as a new one."""
    agent = await join("agent")
    await agent.subscribe("web_1/commands")
    agent.leave()
    operator = await join("operator", clean=True)
    for number in (b"1", b"2", b"3"):
        await operator.publish("web_1/commands", number)
    again = await join("agent")

    assert [("web_1/commands", number, False) for number in (b"1", b"2", b"3")] == [
        await again.next() for _ in range(3)
    ]


async def test_message_without_puback_comes_again_after_a_crash(join: Join) -> None:
    """An agent that dies before it has acknowledged a command gets it again."""
    agent = await join("agent", manual=True)
    await agent.subscribe("web_1/commands")
    operator = await join("operator", clean=True)
    await operator.publish("web_1/commands", b"approve")
    first = await agent.next()
    agent.die()
    again = await join("agent")

    assert first == await again.next() == ("web_1/commands", b"approve", False)


async def test_message_with_puback_comes_once(join: Join) -> None:
    """What was acknowledged is not sent again to the next connection."""
    agent = await join("agent")
    await agent.subscribe("web_1/commands")
    operator = await join("operator", clean=True)
    await operator.publish("web_1/commands", b"approve")
    await agent.next()
    # Its arrival proves that the first one's PUBACK has left; its own may still be on the way.
    await operator.publish("web_1/commands", b"more")
    await agent.next()
    agent.leave()
    again = await join("agent")
    await operator.publish("web_1/commands", b"last")
    seen = [(await again.next())[1]]
    while seen[-1] != b"last":
        seen.append((await again.next())[1])

    assert b"approve" not in seen


async def test_client_that_connects_is_sent_only_what_it_asked_for(join: Join) -> None:
    """Retained state of other VMs does not land in an agent that subscribed to its commands."""
    agent = await join("agent")
    await agent.subscribe("web_1/commands")
    viewer = await join("viewer", clean=True)
    await viewer.subscribe("#")
    await viewer.publish("web_2/status", b"online", retain=True)
    agent.leave()
    again = await join("agent")
    await viewer.publish("web_1/commands", b"approve")

    assert ("web_1/commands", b"approve", False) == await again.next()


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_retained_message_comes_with_the_subscription_until_cleared(
    join: Join, qos: int
) -> None:
    """A late subscriber sees what is pending, and an empty payload ends that."""
    agent = await join("agent")
    await agent.publish("web_1/pending/A", b"reboot", retain=True)
    await agent.publish("web_1/pending/B", b"freeze", retain=True)
    await agent.publish("web_1/pending/A", b"", retain=True)
    viewer = await join("viewer", clean=True)
    await viewer.subscribe("web_1/pending/+", qos)
    await agent.publish("web_1/pending/end", b"end")

    assert ("web_1/pending/B", b"freeze", True) == await viewer.next()
    assert ("web_1/pending/end", b"end", False) == await viewer.next()


async def test_last_will_of_a_killed_client_is_published_and_retained(join: Join) -> None:
    """A VM that dies is offline for those who watch and for those who come later."""
    viewer = await join("viewer", clean=True)
    await viewer.subscribe("+/status")
    agent = await join("agent", will="web_1/status")
    agent.die()
    seen = await viewer.next()
    late = await join("late", clean=True)
    await late.subscribe("web_1/status")

    assert seen == ("web_1/status", b"offline", False)
    assert ("web_1/status", b"offline", True) == await late.next()


async def test_goodbye_right_after_publishing_loses_nothing(join: Join) -> None:
    """What left before DISCONNECT is delivered, all of it, and no last will after it."""
    viewer = await join("viewer", clean=True)
    await viewer.subscribe("web_1/#")
    agent = await join("agent", will="web_1/status")
    for number in range(20):
        agent.client.publish("web_1/events", str(number), qos=0)
    agent.leave()
    seen = [await viewer.next() for _ in range(20)]
    await viewer.publish("web_1/end", b"end")

    assert [b"%d" % number for number in range(20)] == [payload for _, payload, _ in seen]
    assert b"end" == (await viewer.next())[1]


async def test_taken_port_is_an_os_error(broker: DemoBroker) -> None:
    """The demo can say that a port is taken."""
    with pytest.raises(OSError, match=str(broker.port)):
        await DemoBroker("127.0.0.1").start(broker.port)
