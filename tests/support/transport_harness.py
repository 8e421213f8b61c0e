"""Each transport with its real broker, behind one face: what the conformance suite drives.

A harness gives running sinks and sources, sends commands as an operator would, and sees what a
consumer sees. Event Hubs is either the AMQP server of tests/support or Microsoft's own emulator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.config import EventHubs, Mqtt
from bridge.transports import ConnectedSource, Incoming, Sink
from bridge.transports.eventhubs.sink import EventHubsSink
from bridge.transports.eventhubs.source import EventHubsSource
from bridge.transports.mqtt import MqttTransport
from bridge.transports.stdout import StdoutSink
from tests.support.eventhubs_server import EventHubsServer
from tests.support.mosquitto import Mosquitto
from tests.support.waiting import until

VM = "web_3"
ROOT = f"sebridge/v1/rg/{VM}"
EVENTS_HUB, COMMANDS_HUB = "scheduled-events", "scheduled-events-commands"
MESSAGE_BYTES_MAX = 60_000

Transport = TypeVar("Transport", Sink, ConnectedSource)


class Harness(Protocol):
    takes_commands: bool
    can_stop: bool  # the broker can be stopped and started
    has_limit: bool  # a message of more than MESSAGE_BYTES_MAX is refused

    def sink(self) -> AbstractAsyncContextManager[Sink]: ...

    def source(self) -> AbstractAsyncContextManager[ConnectedSource]: ...

    def decide(self, incoming: Incoming) -> None:
        """What the intake does: the position is durable, then the ack is sent."""
        ...

    async def send(self, command: bytes) -> None: ...

    def seen(self) -> list[dict[str, Any]]:
        """Every CloudEvent that a consumer of this VM's stream got so far, in order."""
        ...

    async def stop(self) -> None: ...

    async def start(self) -> None: ...


@asynccontextmanager
async def running(transport: Transport) -> AsyncIterator[Transport]:
    task = asyncio.create_task(transport.run())
    try:
        await until(lambda: not transport.problem)
        yield transport
    finally:
        await transport.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class MqttHarness:
    takes_commands = can_stop = has_limit = True

    def __init__(self, folder: Path) -> None:
        limits = [f"max_packet_size {MESSAGE_BYTES_MAX}", "log_type subscribe"]
        kept = ["persistence true", f"persistence_location {folder}/"]
        self._log = folder / "mosquitto.log"
        self._broker = Mosquitto(folder, ["allow_anonymous true", *kept, *limits])
        self._messages: list[MQTTMessage] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator["MqttHarness"]:
        with self._broker:
            client = self._client = Client(
                CallbackAPIVersion.VERSION2,
                client_id="consumer",
                protocol=MQTTProtocolVersion.MQTTv311,
                clean_session=False,
            )
            client.reconnect_delay_set(1, 1)
            subscribed: list[int] = []
            client.on_connect = self._subscribe
            client.on_subscribe = lambda *_: subscribed.append(1)
            client.on_message = lambda _c, _u, message: self._messages.append(message)
            client.connect("127.0.0.1", self._broker.port)
            client.loop_start()
            await until(lambda: subscribed)
            yield self
            client.disconnect()
            client.loop_stop()

    def _subscribe(self, *_: Any) -> None:
        self._client.subscribe(f"{ROOT}/#", 1)

    def sink(self) -> AbstractAsyncContextManager[Sink]:
        return running(self._transport())

    @asynccontextmanager
    async def source(self) -> AsyncIterator[ConnectedSource]:
        transport: ConnectedSource = self._transport()
        async with running(transport):
            await until(lambda: f"agent 1 {ROOT}/commands" in self._log.read_text())
            yield transport

    def decide(self, incoming: Incoming) -> None:
        incoming.ack()

    async def send(self, command: bytes) -> None:
        sent = self._client.publish(f"{ROOT}/commands", command, 1)
        await until(sent.is_published)

    def seen(self) -> list[dict[str, Any]]:
        channels = {f"{ROOT}/{name}" for name in ("events", "outcomes", "status")}
        new = [m.payload for m in list(self._messages) if m.topic in channels and m.payload]
        return [msgspec.json.decode(payload) for payload in new]

    async def stop(self) -> None:
        await asyncio.to_thread(self._broker.stop)

    async def start(self) -> None:
        await asyncio.to_thread(self._broker.start)
        await until(self._client.is_connected)

    def _transport(self) -> MqttTransport:
        config = Mqtt(host="127.0.0.1", port=self._broker.port, reconnect_s_max=0.3)
        return MqttTransport(
            config,
            root=ROOT,
            client_id="agent",
            will=lambda: b"",
            pending=lambda: (),
            caught_up=None,
        )


class EventHubsHarness:
    """Our AMQP server, with the unmodified client library on both sides of it."""

    takes_commands = can_stop = has_limit = True

    def __init__(self, folder: Path, **server: Any) -> None:
        self.server = EventHubsServer(message_bytes_max=MESSAGE_BYTES_MAX, **server)
        self.offsets: dict[str, str] = {}
        self._file = folder / "connection-string"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["EventHubsHarness"]:
        async with self.server:
            self.server.add_hub(EVENTS_HUB)
            self.server.add_hub(COMMANDS_HUB)
            self._file.write_text(self.server.connection_string())
            yield self

    def config(self, **options: Any) -> EventHubs:
        defaults: dict[str, Any] = {
            "connection_string_file": str(self._file),
            "reconnect_s_max": 0.3,
        }
        return EventHubs(**(defaults | options))

    def sink(self, **options: Any) -> AbstractAsyncContextManager[Sink]:
        return running(EventHubsSink(self.config(**options), vm_name=VM))

    def source(
        self, now: datetime | None = None, **options: Any
    ) -> AbstractAsyncContextManager[ConnectedSource]:
        return running(self.make_source(now, **options))

    def make_source(
        self, now: datetime | None = None, *, quiet_s: float = 0.7, **options: Any
    ) -> EventHubsSource:
        return EventHubsSource(
            self.config(**options),
            vm_name=VM,
            max_age_s=300,
            payload_bytes_max=65_536,
            offset=self.offsets.get,
            keep_offsets=self.offsets.update,
            now=lambda: now or datetime.now(UTC),
            quiet_s=quiet_s,
        )

    def decide(self, incoming: Incoming) -> None:
        assert incoming.position is not None
        self.offsets.update([incoming.position])
        incoming.ack()

    async def send(self, command: bytes) -> None:
        self.server.hub(COMMANDS_HUB).put(command, partition_key=VM)

    def seen(self) -> list[dict[str, Any]]:
        hub = self.server.hub(EVENTS_HUB)
        return [msgspec.json.decode(event.body) for event in hub.events()]

    async def stop(self) -> None:
        await self.server.stop()

    async def start(self) -> None:
        await self.server.start()


class EmulatorHarness:
    """Microsoft's emulator, started by deploy/emulator; its hubs outlive a test, so it looks on."""

    takes_commands = True
    can_stop = has_limit = False

    def __init__(self, folder: Path, connection_string: str) -> None:
        self._connection_string = connection_string
        self._file = folder / "connection-string"
        self._file.write_text(connection_string)
        self._began = datetime.now(UTC)
        self._offsets: dict[str, str] = {}
        self._seen: list[dict[str, Any]] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator["EmulatorHarness"]:
        consumer = EventHubConsumerClient.from_connection_string(
            self._connection_string, "$Default", eventhub_name=EVENTS_HUB
        )
        watching = asyncio.create_task(consumer.receive(self._take, starting_position=self._began))
        try:
            yield self
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await consumer.close()

    async def _take(self, _: Any, event: EventData | None) -> None:
        if event is not None:
            self._seen.append(msgspec.json.decode(event.body_as_str()))

    def sink(self) -> AbstractAsyncContextManager[Sink]:
        return running(EventHubsSink(self._config(), vm_name=VM))

    def source(self) -> AbstractAsyncContextManager[ConnectedSource]:
        source = EventHubsSource(
            self._config(),
            vm_name=VM,
            max_age_s=0,
            payload_bytes_max=65_536,
            offset=self._offsets.get,
            keep_offsets=self._offsets.update,
            now=lambda: self._began,
            quiet_s=2.0,
        )
        return running(source)

    def decide(self, incoming: Incoming) -> None:
        assert incoming.position is not None
        self._offsets.update([incoming.position])
        incoming.ack()

    async def send(self, command: bytes) -> None:
        producer = EventHubProducerClient.from_connection_string(
            self._connection_string, eventhub_name=COMMANDS_HUB
        )
        async with producer:
            await producer.send_event(EventData(command), partition_key=VM)

    def seen(self) -> list[dict[str, Any]]:
        return list(self._seen)

    async def stop(self) -> None:
        raise NotImplementedError("the emulator forgets its hubs when it is stopped")

    async def start(self) -> None:
        raise NotImplementedError("the emulator forgets its hubs when it is stopped")

    def _config(self) -> EventHubs:
        return EventHubs(connection_string_file=str(self._file), reconnect_s_max=1.0)


class StdoutHarness:
    takes_commands = can_stop = has_limit = False

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._written = b""

    @asynccontextmanager
    async def open(self) -> AsyncIterator["StdoutHarness"]:
        yield self

    def sink(self) -> AbstractAsyncContextManager[Sink]:
        return running(StdoutSink())

    def source(self) -> AbstractAsyncContextManager[ConnectedSource]:
        raise NotImplementedError("standard output brings no commands")

    def decide(self, incoming: Incoming) -> None:
        raise NotImplementedError("standard output brings no commands")

    async def send(self, command: bytes) -> None:
        raise NotImplementedError("standard output brings no commands")

    def seen(self) -> list[dict[str, Any]]:
        self._written += self._read()
        return [msgspec.json.decode(line) for line in self._written.splitlines()]

    async def stop(self) -> None:
        raise NotImplementedError("standard output cannot be stopped")

    async def start(self) -> None:
        raise NotImplementedError("standard output cannot be stopped")
