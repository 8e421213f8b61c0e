"""One clean MQTT session, from CONNECT to its end; a new one takes its place.

Threads: paho's network thread only hops. Each callback hands its arguments to the event loop with
`call_soon_threadsafe` and never waits, so all state here belongs to the loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge import mqtt_client
from bridge.config import Mqtt
from bridge.core.cloudevents import STRUCTURED_CONTENT_TYPE
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.mqtt_client import FAILURE_MIN, UNSUPPORTED_PROTOCOL, ProtocolRefused, Version

# Far above what an event that names a thousand VMs twice needs.
PACKET_BYTES_MAX = 1_048_576
_GOODBYE_S = 1.0


class Session:
    def __init__(
        self,
        config: Mqtt,
        *,
        client_id: str,
        version: Version,
        on_message: Callable[[MQTTMessage], None],
    ) -> None:
        self.version = version
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[str] = self._loop.create_future()
        self._connack: asyncio.Future[None] = self._future()
        self._pubacks: dict[int, asyncio.Future[None]] = {}
        self._subacks: dict[int, asyncio.Future[list[int]]] = {}
        self._abandoned = False
        self._client = self._build(client_id, on_message)

    async def open(self) -> None:
        """Return once the broker has said yes. Raises SinkUnavailable or ProtocolRefused."""
        place = f"mqtt {self._config.host}:{self._config.port}"
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                await asyncio.to_thread(self._connect)
                await self._connack
        except TimeoutError as error:
            # Some brokers do not even answer a version that they do not know.
            raise ProtocolRefused(f"{place}: no answer in time", explicit=False) from error
        except (OSError, ValueError) as error:
            raise SinkUnavailable(f"{place}: {error}") from error
        finally:
            if not self._is_open():
                self._abandoned = True
                self.drop("connection attempt ended")

    async def subscribe(self, filters: Sequence[str]) -> list[int]:
        """The reason codes of the SUBACK, one a filter; 128 and above are refusals."""
        result, mid = self._client.subscribe([(name, 1) for name in filters])
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None or self.closed.done():
            raise SinkUnavailable("subscribe: connection lost")
        suback: asyncio.Future[list[int]] = self._future()
        self._subacks[mid] = suback
        await self._in_time(suback, "SUBACK")
        return suback.result()

    async def publish(self, topic: str, payload: bytes) -> None:
        """Return with the PUBACK. Raises SinkRejected or SinkUnavailable; never sends twice."""
        if self.closed.done():
            raise SinkUnavailable(f"connection lost: {self.closed.result()}")
        try:
            info = self._client.publish(topic, payload, 1, properties=self._properties())
        except ValueError as error:
            raise SinkRejected(f"{topic}: {error}", permanent=True) from error
        puback: asyncio.Future[None] = self._future()
        self._pubacks[info.mid] = puback
        await self._in_time(puback, "PUBACK")

    def drop(self, why: str) -> None:
        """End it now, without a goodbye."""
        mqtt_client.shut_socket(self._client)
        self._end(why)

    async def close(self) -> None:
        self._client.disconnect()
        await asyncio.wait({self.closed}, timeout=_GOODBYE_S)
        self.drop("closed")
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        """Blocks until paho's thread has ended; in a worker thread."""
        with contextlib.suppress(AttributeError):  # paho's thread clears itself while we look
            self._client.loop_stop()
        # Only this closes the pair of sockets with which paho wakes its thread. Left to the garbage
        # collector they outlive the session: our callbacks make it a cycle.
        self._client.reinitialise()

    def _is_open(self) -> bool:
        connack = self._connack
        return connack.done() and not connack.cancelled() and connack.exception() is None

    async def _in_time(self, answer: asyncio.Future[Any], name: str) -> None:
        timeout_s = self._config.publish_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await answer
        except TimeoutError as error:
            self.drop(f"no {name} within {timeout_s:g} s")
            raise SinkUnavailable(f"no {name} within {timeout_s:g} s") from error

    def _build(self, client_id: str, on_message: Callable[[MQTTMessage], None]) -> Client:
        client = mqtt_client.build(
            self._config,
            client_id=client_id,
            version=self.version,
            clean=True,
            manual_ack=False,
        )
        client.on_connect = lambda _client, _data, _flags, code, _properties: self._hop(
            self._connected, code
        )
        client.on_disconnect = lambda _client, _data, _flags, code, _properties: self._hop(
            self._end, str(code)
        )
        client.on_publish = lambda _client, _data, mid, code, _properties: self._hop(
            self._published, mid, code
        )
        client.on_subscribe = lambda _client, _data, mid, codes, _properties: self._hop(
            self._subscribed, mid, codes
        )
        client.on_message = lambda _client, _data, message: self._hop(on_message, message)
        return client

    def _connect(self) -> None:
        """Blocks (DNS, TCP, TLS); in a worker thread."""
        config, client = self._config, self._client
        mqtt_client.log_in(client, config)
        if self.version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.MaximumPacketSize = PACKET_BYTES_MAX
            client.connect(
                config.host,
                config.port,
                config.keepalive_s,
                clean_start=True,
                properties=properties,
            )
        else:
            client.connect(config.host, config.port, config.keepalive_s)
        if self._abandoned:
            mqtt_client.shut_socket(client)
        client.loop_start()

    def _properties(self) -> Properties | None:
        if self.version != "5":
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.PayloadFormatIndicator = 1
        properties.ContentType = STRUCTURED_CONTENT_TYPE
        return properties

    # From here on: what the network thread hops into, always on the event loop.

    def _hop(self, handler: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(handler, *arguments)

    def _connected(self, code: Any) -> None:
        if self._connack.done():
            return
        if code.value == UNSUPPORTED_PROTOCOL:
            text = f"the broker does not speak MQTT {self.version}"
            self._connack.set_exception(ProtocolRefused(text, explicit=True))
        elif code.value >= FAILURE_MIN:
            place = f"mqtt {self._config.host}:{self._config.port}"
            text = f"{place} refused the login: {code}"
            self._connack.set_exception(SinkUnavailable(text))
        else:
            self._connack.set_result(None)

    def _published(self, mid: int, code: Any) -> None:
        puback = self._pubacks.pop(mid, None)
        if puback is None or puback.done():
            return
        if code.value >= FAILURE_MIN:
            puback.set_exception(SinkRejected(f"the broker refuses it: {code}"))
        else:  # 0x10, nobody listens, is an acceptance, too
            puback.set_result(None)

    def _subscribed(self, mid: int, codes: list[Any]) -> None:
        suback = self._subacks.pop(mid, None)
        if suback is not None and not suback.done():
            suback.set_result([code.value for code in codes])

    def _end(self, why: str) -> None:
        if not self._connack.done():
            text = f"closed before CONNACK: {why}"
            self._connack.set_exception(ProtocolRefused(text, explicit=False))
        if not self.closed.done():
            self.closed.set_result(why)
        answers: list[asyncio.Future[Any]] = [*self._pubacks.values(), *self._subacks.values()]
        for answer in answers:
            if not answer.done():
                answer.set_exception(SinkUnavailable(f"connection lost: {why}"))
        self._pubacks.clear()
        self._subacks.clear()

    def _future(self) -> asyncio.Future[Any]:
        return mqtt_client.quiet_future(self._loop)
