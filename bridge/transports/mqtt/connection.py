"""One MQTT connection, from CONNECT to its end. It is never reopened: a new one takes its place.

Threads: one. paho's client runs on the event loop (pump.py), and its callbacks only queue their
arguments for the next turn: paho holds locks while it calls, and must not be called back into. An
ack cannot overtake the registration of its future, which happens in the same step as the publish.
Only the blocking `connect()` (DNS, TCP, TLS) runs in a worker thread, before anything else does.

A new paho Client for each connection: what paho had queued dies with it; the outbox is the truth.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from bridge.config import Mqtt
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.mqtt_client import (
    FAILURE_MIN,
    UNSUPPORTED_PROTOCOL,
    ProtocolRefused,
    Version,
    quiet_future,
)
from bridge.transports.mqtt import client as paho
from bridge.transports.mqtt.client import Message
from bridge.transports.mqtt.pump import Pump, hang_up

PACKET_TOO_LARGE = 0x95
_GOODBYE_S = 1.0


class Connection:
    def __init__(
        self,
        config: Mqtt,
        *,
        client_id: str,
        version: Version,
        will: Message,
        on_command: Callable[["Connection", MQTTMessage], None],
        commands_bytes_max: int,
        token: str = "",
    ) -> None:
        self.version = version
        self.retain_available = True
        self._config = config
        self._token = token
        self._on_command = on_command
        self._commands_bytes_max = commands_bytes_max
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[str] = self._loop.create_future()
        self._connack: asyncio.Future[None] = self._future()
        self._waiting: deque[tuple[Message, asyncio.Future[None]]] = deque()
        self._acks: dict[int, asyncio.Future[None]] = {}
        self._subacks: dict[int, asyncio.Future[int]] = {}
        self._arrived: deque[MQTTMessage] = deque()  # what the broker wants to have acked
        self._handled: set[int] = set()  # identities of messages in _arrived
        self._window = config.inflight_max
        self._bytes_max: int | None = None  # until the broker names a limit
        self._abandoned = False
        self._client = self._build(client_id, will)
        self._pump = Pump(self._client, config.keepalive_s, on_failure=self._end)

    async def open(self) -> None:
        """Return once the broker has said yes. Raises SinkUnavailable, or ProtocolRefused."""
        place = f"{self._config.host}:{self._config.port}"
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                await asyncio.to_thread(self._connect)
                self._pump.start()
                await self._connack
        except TimeoutError as error:
            raise SinkUnavailable(f"connect to {place}: no answer in time") from error
        except (OSError, ValueError) as error:
            raise SinkUnavailable(f"connect to {place}: {error}") from error
        finally:
            if not self._connack.done() or self._connack.cancelled() or self._connack.exception():
                self._abandoned = True
                self.drop("connection attempt ended")

    def publish(self, message: Message) -> asyncio.Future[None]:
        """A future that the PUBACK resolves; SinkRejected or SinkUnavailable otherwise."""
        future = self._future()
        if self.closed.done():
            future.set_exception(SinkUnavailable(f"connection lost: {self.closed.result()}"))
        elif (
            self._bytes_max and (size := paho.packet_bytes(message, self.version)) > self._bytes_max
        ):
            text = f"{message.topic}: {size} bytes, the broker takes {self._bytes_max} at most"
            future.set_exception(SinkRejected(text, permanent=True))
        else:
            self._waiting.append((message, future))
            self._send_waiting()
        return future

    async def subscribe(self, topic: str, *, qos: int = 1, as_published: bool = True) -> int:
        """The SUBACK's reason code; 128 and above are refusals."""
        if self.version == "5":
            options = SubscribeOptions(qos=qos, retainAsPublished=as_published, retainHandling=0)
            result, mid = self._client.subscribe(topic, options=options)
        else:
            result, mid = self._client.subscribe(topic, qos=qos)
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None or self.closed.done():
            raise SinkUnavailable(f"subscribe to {topic}: connection lost")
        future: asyncio.Future[int] = quiet_future(self._loop)
        self._subacks[mid] = future
        return await future

    def unsubscribe(self, topic: str) -> None:
        """Without waiting for the answer: what still comes is passed over."""
        self._client.unsubscribe(topic)

    def ack(self, message: MQTTMessage) -> None:
        """Acks leave in order of arrival, as MQTT demands: an early one waits for its elders."""
        if message.qos == 0:
            return
        self._handled.add(id(message))
        while self._arrived and id(self._arrived[0]) in self._handled:
            first = self._arrived.popleft()
            self._handled.discard(id(first))
            if not self.closed.done():
                self._client.ack(first.mid, first.qos)

    def drop(self, why: str) -> None:
        """End it now, without a goodbye."""
        self._pump.stop()
        self._end(why)

    async def close(self) -> None:
        """A clean DISCONNECT, so that no last will is sent."""
        self._client.disconnect()
        await asyncio.wait({self.closed}, timeout=_GOODBYE_S)
        self.drop("closed")

    def _build(self, client_id: str, will: Message) -> Client:
        client = paho.build(self._config, client_id, self.version, will)
        client.on_connect = lambda _client, _data, _flags, code, properties: self._soon(
            self._connected, code, properties
        )
        client.on_disconnect = lambda _client, _data, _flags, code, _properties: self._soon(
            self._end, str(code)
        )
        client.on_publish = lambda _client, _data, mid, code, _properties: self._soon(
            self._published, mid, code
        )
        client.on_subscribe = lambda _client, _data, mid, codes, _properties: self._soon(
            self._subscribed, mid, codes
        )
        client.on_message = lambda _client, _data, message: self._soon(self._arrive, message)
        return client

    def _connect(self) -> None:
        """Blocks; in a worker thread."""
        paho.connect(
            self._client,
            self._config,
            self.version,
            token=self._token,
            commands_bytes_max=self._commands_bytes_max,
        )
        if self._abandoned:
            hang_up(self._client)

    def _soon(self, handler: Callable[..., None], *arguments: Any) -> None:
        """On the loop's next turn; a connect() that fails calls back from its worker thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(handler, *arguments)

    def _send_waiting(self) -> None:
        while self._waiting and len(self._acks) < self._window:
            message, future = self._waiting.popleft()
            wire_was_quiet = not self._acks
            properties = paho.publish_properties(message, self.version)
            try:
                info = self._client.publish(
                    message.topic, message.payload, 1, message.retain, properties
                )
            except ValueError as error:
                future.set_exception(SinkRejected(f"{message.topic}: {error}", permanent=True))
            else:
                self._acks[info.mid] = future
                if wire_was_quiet:
                    os.sched_yield()  # to whoever it wakes: a broker may share our processor

    # From here on: what paho's callbacks have queued.

    def _connected(self, code: Any, properties: Properties) -> None:
        if self._connack.done():
            return
        if code.value == UNSUPPORTED_PROTOCOL:
            text = f"the broker does not speak MQTT {self.version}"
            self._connack.set_exception(ProtocolRefused(text, explicit=True))
        elif code.value >= FAILURE_MIN:
            self._connack.set_exception(SinkUnavailable(f"the broker refuses us: {code}"))
        else:
            self._window = min(self._window, getattr(properties, "ReceiveMaximum", self._window))
            self._bytes_max = getattr(properties, "MaximumPacketSize", self._bytes_max)
            self.retain_available = bool(getattr(properties, "RetainAvailable", 1))
            self._connack.set_result(None)

    def _published(self, mid: int, code: Any) -> None:
        future = self._acks.pop(mid, None)
        if future and not future.done():
            if code.value >= FAILURE_MIN:
                permanent = code.value == PACKET_TOO_LARGE
                error = SinkRejected(f"the broker refuses it: {code}", permanent=permanent)
                future.set_exception(error)
            else:  # 0x10, nobody listens, is an acceptance, too
                future.set_result(None)
        self._send_waiting()

    def _subscribed(self, mid: int, codes: list[Any]) -> None:
        future = self._subacks.pop(mid, None)
        if future and not future.done():
            future.set_result(max(code.value for code in codes))

    def _arrive(self, message: MQTTMessage) -> None:
        # One byte too many is enough to refuse it, and MQTT 3.1.1 lets them come by the megabyte.
        message.payload = message.payload[: self._commands_bytes_max + 1]
        if message.qos:
            self._arrived.append(message)
        self._on_command(self, message)

    def _end(self, why: str) -> None:
        if not self._connack.done():
            text = f"closed before CONNACK: {why}"
            self._connack.set_exception(ProtocolRefused(text, explicit=False))
        if not self.closed.done():
            self.closed.set_result(why)
        waiting = (future for _, future in self._waiting)
        left: list[asyncio.Future[Any]] = [*self._acks.values(), *waiting, *self._subacks.values()]
        for future in left:
            if not future.done():
                future.set_exception(SinkUnavailable(f"connection lost: {why}"))
        self._acks.clear()
        self._subacks.clear()
        self._waiting.clear()

    def _future(self) -> asyncio.Future[None]:
        return quiet_future(self._loop)
