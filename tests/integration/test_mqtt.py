"""The MQTT transport against a real mosquitto, with a second client as the observer."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.config import Mqtt
from bridge.core.cloudevents import CloudEvent, encode
from bridge.errors import SinkRejected
from bridge.transports import CaughtUp, Incoming, Outgoing
from bridge.transports.mqtt import MqttTransport, retained
from tests.support.mosquitto import Mosquitto

ROOT = "sebridge/v1/group/vm"


def cloudevent(name: str, data: str = "{}") -> CloudEvent:
    return CloudEvent(
        specversion="1.0",
        id=name,
        source="/vm",
        type="t",
        time="2026-01-01T00:00:00Z",
        datacontenttype="application/json",
        data=msgspec.Raw(data.encode()),
    )


def row(number: int, **changes: Any) -> Outgoing:
    body = encode(cloudevent(f"e{number}", changes.pop("data", "{}")))
    return Outgoing(
        **{
            "sequence": number,
            "channel": "events",
            "event_id": f"id{number}",
            "cloudevent": body,
            **changes,
        }
    )


def properties_of(properties: Any) -> Any:
    """paho sets the attributes of its Properties at run time."""
    return properties


class Observer:
    """Sees everything below sebridge/, and sends commands."""

    def __init__(self, port: int) -> None:
        self.seen: list[MQTTMessage] = []
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        ready: list[int] = []
        self.client.on_message = lambda _c, _d, message: self.seen.append(message)
        self.client.on_subscribe = lambda *_: ready.append(1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.client.subscribe("sebridge/#", qos=1)
        deadline = time.monotonic() + 5
        while not ready and time.monotonic() < deadline:
            time.sleep(0.005)

    def on(self, topic: str) -> list[MQTTMessage]:
        return [message for message in self.seen if message.topic == f"{ROOT}/{topic}"]

    def send(self, payload: bytes, retain: bool = False, **properties: Any) -> None:
        values = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in properties.items():
            setattr(values, name, value)
        self.client.publish(f"{ROOT}/commands", payload, 1, retain, values).wait_for_publish(5)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(
        tmp_path, ["allow_anonymous true", "persistence true", f"persistence_location {tmp_path}/"]
    ) as running:
        yield running


@pytest.fixture
def observer(broker: Mosquitto) -> Iterator[Observer]:
    watching = Observer(broker.port)
    yield watching
    watching.stop()


@asynccontextmanager
async def running(
    broker: Mosquitto,
    *,
    pending: tuple[Outgoing, ...] = (),
    caught_up: CaughtUp | None = None,
    publish_events: bool = True,
    **options: Any,
) -> AsyncIterator[MqttTransport]:
    config = Mqtt(**{"host": "127.0.0.1", "port": broker.port, "reconnect_s_max": 0.3, **options})
    transport = MqttTransport(
        config,
        root=ROOT,
        client_id="agent",
        will=lambda: b'{"offline":1}',
        pending=lambda: pending,
        caught_up=caught_up,
        publish_events=publish_events,
    )
    task = asyncio.create_task(transport.run())
    try:
        await until(lambda: transport.connected)
        yield transport
    finally:
        await transport.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def take(transport: MqttTransport, count: int) -> list[Incoming]:
    async with asyncio.timeout(10):
        return [await anext(transport.commands()) for _ in range(count)]


async def test_publish_structured_arrives_with_its_properties(
    broker: Mosquitto, observer: Observer
) -> None:
    """A row comes as a structured CloudEvent with content type and format indicator."""
    async with running(broker) as transport:
        await transport.publish([row(1)])
        await until(lambda: observer.on("events"))

    message = observer.on("events")[0]
    assert message.payload == row(1).cloudevent
    assert message.properties is not None
    assert (
        properties_of(message.properties).ContentType
        == "application/cloudevents+json; charset=utf-8"
    )
    assert properties_of(message.properties).PayloadFormatIndicator == 1


async def test_publish_two_hundred_rows_keeps_their_order(
    broker: Mosquitto, observer: Observer
) -> None:
    """A batch larger than the window arrives whole and in order."""
    rows = [row(number) for number in range(200)]
    async with running(broker, inflight_max=7) as transport:
        await transport.publish(rows)
        await until(lambda: len(observer.on("events")) == 200)

    assert [message.payload for message in observer.on("events")] == [r.cloudevent for r in rows]


async def test_pending_is_retained_until_the_event_ends(
    broker: Mosquitto, observer: Observer
) -> None:
    """A newcomer finds the pending event, and finds nothing once it is over."""
    async with running(broker) as transport:
        await transport.publish([row(1)])
        first = Observer(broker.port)
        await until(lambda: first.on("pending/id1"))
        first.stop()
        await transport.publish([row(1, ends=True), row(2)])
        second = Observer(broker.port)
        await until(lambda: second.on("pending/id2"))
        second.stop()

    assert first.on("pending/id1")[0].retain
    assert second.on("pending/id1") == []


async def test_connect_refreshes_pending(broker: Mosquitto, observer: Observer) -> None:
    """What the broker may have forgotten is published again on connect."""
    async with running(broker, pending=(row(9),)):
        await until(lambda: observer.on("pending/id9"))


async def test_status_is_retained_and_the_will_replaces_it(
    broker: Mosquitto, observer: Observer
) -> None:
    """A connection that breaks without goodbye leaves the last will as status."""
    async with running(broker, reconnect_s_max=60.0) as transport:
        await transport.publish_status(cloudevent("s"))
        await until(lambda: observer.on("status"))
        assert transport._connection
        transport._status = None
        transport._connection._pump.stop()
        await until(lambda: len(observer.on("status")) == 2)

    assert observer.on("status")[1].payload == b'{"offline":1}'


async def test_close_sends_no_will(broker: Mosquitto, observer: Observer) -> None:
    """A clean goodbye leaves the status as the caller set it."""
    async with running(broker) as transport:
        await transport.publish_status(cloudevent("s"))
    observer.client.publish("sebridge/end", b"", 1)
    await until(lambda: any(message.topic == "sebridge/end" for message in observer.seen))

    assert len(observer.on("status")) == 1


async def test_publish_refused_by_acl_raises_rejected(tmp_path: Path) -> None:
    """A refusal in the PUBACK is an error with nothing delivered, and not for ever."""
    acl = tmp_path / "acl"
    acl.write_text(f"topic readwrite {ROOT}/outcomes\n")
    with Mosquitto(tmp_path, ["allow_anonymous true", f"acl_file {acl}"]) as broker:
        async with running(broker) as transport:
            with pytest.raises(SinkRejected) as caught:
                await transport.publish([row(1), row(2)])
            with pytest.raises(SinkRejected) as later:
                await transport.publish([row(1, channel="outcomes"), row(2)])

    assert (caught.value.delivered, caught.value.permanent) == (0, False)
    assert later.value.delivered == 1


async def test_publish_resumes_after_a_broker_restart(broker: Mosquitto) -> None:
    """The transport comes back on its own, as a new generation."""
    async with running(broker) as transport:
        await transport.publish([row(1)])
        await asyncio.to_thread(broker.restart)
        await until(lambda: transport.generation == 2 and transport.connected)
        await transport.publish([row(2)])

        assert transport.problem == ""


async def test_command_sent_while_offline_arrives(broker: Mosquitto, observer: Observer) -> None:
    """The session outlives the connection, and so does its queue."""
    async with running(broker) as transport:
        await _until_subscribed(transport, observer)
    observer.send(b"while away")
    async with running(broker) as transport:
        [incoming] = await take(transport, 1)

    assert incoming.wire.payload == b"while away"


async def test_command_unacked_comes_again_and_acked_does_not(
    broker: Mosquitto, observer: Observer
) -> None:
    """Acks leave in order: one that came early waits for the one before it."""
    async with running(broker) as transport:
        await _until_subscribed(transport, observer)
        for name in (b"1", b"2", b"3"):
            observer.send(name)
        first, _second, third = await take(transport, 3)
        third.ack()
        first.ack()
    async with running(broker) as transport:
        again = await take(transport, 2)
        first.ack()

    assert [incoming.wire.payload for incoming in again] == [b"2", b"3"]


async def test_command_retained_is_flagged(broker: Mosquitto, observer: Observer) -> None:
    """A retained command shows that it is one."""
    observer.send(b"old", retain=True)
    async with running(broker) as transport:
        [incoming] = await take(transport, 1)

    assert incoming.wire.retained


async def test_command_response_topic_only_below_the_prefix(
    broker: Mosquitto, observer: Observer
) -> None:
    """The reply goes where the sender asks, if that is allowed, with his correlation data."""
    async with running(broker) as transport:
        await _until_subscribed(transport, observer)
        observer.send(
            b"a",
            ResponseTopic="sebridge/reply",
            CorrelationData=b"c",
            ContentType="application/json",
            UserProperty=[("id", "1")],
        )
        observer.send(b"b", ResponseTopic="other/reply")
        good, bad = await take(transport, 2)
        await transport.publish(
            [row(1, channel="outcomes", reply_topic=good.reply_topic, correlation=good.correlation)]
        )
        await until(lambda: [m for m in observer.seen if m.topic == "sebridge/reply"])

    reply = next(m for m in observer.seen if m.topic == "sebridge/reply")
    assert reply.properties is not None
    assert properties_of(reply.properties).CorrelationData == b"c"
    assert bad.reply_topic == ""
    assert (good.wire.content_type, good.wire.attributes) == ("application/json", (("id", "1"),))


async def test_protocol_311_publishes_and_takes_commands(
    broker: Mosquitto, observer: Observer
) -> None:
    """The old version works without any property."""
    async with running(broker, protocol="3.1.1") as transport:
        await _until_subscribed(transport, observer)
        await transport.publish([row(1)])
        await until(lambda: observer.on("events"))

        assert transport.protocol == "3.1.1"


async def test_binary_mode_puts_attributes_into_user_properties(
    broker: Mosquitto, observer: Observer
) -> None:
    """The payload is the data alone."""
    async with running(broker, content_mode="binary") as transport:
        await transport.publish([row(1, data='{"a":1}')])
        await until(lambda: observer.on("events"))

    message = observer.on("events")[0]
    assert message.payload == b'{"a":1}'
    assert message.properties is not None
    assert ("id", "e1") in properties_of(message.properties).UserProperty
    assert properties_of(message.properties).ContentType == "application/json"


async def test_publish_oversize_is_rejected_for_ever(tmp_path: Path) -> None:
    """A row above the broker's limit never leaves; the rows before it do."""
    with Mosquitto(tmp_path, ["allow_anonymous true", "max_packet_size 2000"]) as broker:
        async with running(broker) as transport:
            with pytest.raises(SinkRejected) as caught:
                await transport.publish([row(1), row(2, data=f'"{"x" * 3000}"'), row(3)])

    assert (caught.value.delivered, caught.value.permanent) == (1, True)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_retained_messages_that_nobody_remembers_are_cleared(
    broker: Mosquitto, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost ledger leaves nothing on the broker; what is pending stays, and so do neighbours."""
    monkeypatch.setattr(retained, "COLLECT_S", 0.3)
    known = asyncio.Event()
    async with running(broker) as transport:
        await transport.publish([row(1), row(2)])
    async with running(broker, pending=(row(2),), caught_up=known.wait, protocol=protocol):
        before = Observer(broker.port)
        await until(lambda: before.on("pending/id1"))
        known.set()
        await until(lambda: before.on("pending/id1")[-1].payload == b"")
        before.stop()
    after = Observer(broker.port)
    await until(lambda: after.on("pending/id2"))
    after.stop()

    assert after.on("pending/id1") == []


async def test_command_source_alone_publishes_outcomes_and_replies(
    broker: Mosquitto, observer: Observer
) -> None:
    """Events leave elsewhere; what became of a command is told where commands are sent."""
    async with running(broker, publish_events=False, pending=(row(3),)) as transport:
        await transport.publish(
            [row(1), row(2, channel="outcomes", reply_topic="sebridge/reply", correlation=b"c")]
        )
        await until(lambda: [m for m in observer.seen if m.topic == "sebridge/reply"])

    assert [m.topic for m in observer.seen] == [f"{ROOT}/outcomes", "sebridge/reply"]
    assert observer.on("outcomes")[0].payload == row(2).cloudevent


async def _until_subscribed(transport: MqttTransport, observer: Observer) -> None:
    """A probe that comes through proves the subscription."""
    async with asyncio.timeout(10):
        while transport._queue.empty():
            observer.send(b"probe")
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
    while not transport._queue.empty():
        transport._queue.get_nowait().ack()
