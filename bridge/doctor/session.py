"""An MQTT session that leaves nothing behind: its own client id, clean, no last will.

The agent's connection keeps its session and its will at the broker, so it cannot be used to look.
paho's thread only hops to the event loop; a future that is lost with the connection says so.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from bridge import mqtt_client
from bridge.config import Mqtt
from bridge.doctor.waiting import in_thread
from bridge.mqtt_client import Version

# Nobody shall find a probe later: what is not delivered at once is dropped by the broker.
PROBE_EXPIRY_S = 1
_ANSWER_S = 4.0
_GOODBYE_S = 1.0
_KEEPALIVE_S = 5  # paho's time limit for a TLS handshake, too


class Lost(Exception):
    """The broker hung up instead of answering."""


class Session:
    def __init__(self, config: Mqtt, *, client_id: str, version: Version, token: str) -> None:
        self.version = version
        self._config = config
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._connack: asyncio.Future[Any] = self._future()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._early: dict[int, int] = {}  # an answer may come before its number is known
        self.lost = ""  # why there is no connection any more
        self.retain_available = True
        self._ended = asyncio.Event()
        self._client = self._build(client_id)

    async def open(self, seconds: float) -> Any:
        """The CONNACK's reason code. Raises OSError, TimeoutError or Lost."""
        async with asyncio.timeout(seconds):
            await in_thread(self._connect, seconds=seconds)
            return await self._connack

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """The PUBACK's reason code; 3.1.1 knows none and always gives 0."""
        properties = None
        if self.version == "5":
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.MessageExpiryInterval = PROBE_EXPIRY_S
        info = self._client.publish(topic, payload, 1, retain, properties)
        return await self._answer(info.rc, info.mid)

    async def subscribe(self, topic: str) -> int:
        """The SUBACK's reason code; without the retained messages, and given up at once."""
        if self.version == "5":
            options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
            result, mid = self._client.subscribe(topic, options=options)
        else:
            result, mid = self._client.subscribe(topic, qos=1)
        code = await self._answer(result, mid)
        self._client.unsubscribe(topic)
        return code

    async def close(self) -> None:
        self._client.disconnect()
        with contextlib.suppress(TimeoutError, AttributeError):  # paho clears its own thread
            await in_thread(self._client.loop_stop, seconds=_GOODBYE_S)

    def _build(self, client_id: str) -> Client:
        client = mqtt_client.build(
            self._config, client_id=client_id, version=self.version, clean=True, manual_ack=False
        )
        client.on_connect = lambda _c, _d, _f, code, properties: self._hop(
            self._connected, code, properties
        )
        client.on_publish = lambda _c, _d, mid, code, _p: self._hop(self._answered, mid, code.value)
        client.on_subscribe = lambda _c, _d, mid, codes, _p: self._hop(
            self._answered, mid, max(code.value for code in codes)
        )
        client.on_disconnect = lambda _c, _d, _f, code, _p: self._hop(self._end, str(code))
        return client

    def _connect(self) -> None:
        """Blocks; in a thread."""
        config, client = self._config, self._client
        client.connect_timeout = _KEEPALIVE_S
        mqtt_client.log_in(client, config)
        properties = None
        if self._token:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.AuthenticationMethod = "OAUTH2-JWT"
            properties.AuthenticationData = self._token.encode()
        if self.version == "5":
            place = (config.host, config.port, _KEEPALIVE_S)
            client.connect(*place, clean_start=True, properties=properties)
        else:
            client.connect(config.host, config.port, _KEEPALIVE_S)
        client.loop_start()

    async def _answer(self, result: int, mid: int | None) -> int:
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None:
            # The thread saw the end before we did; why is on its way to the loop.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _GOODBYE_S)
            self.lost = self.lost or "not connected"
        if self.lost:
            raise Lost(self.lost)
        assert mid is not None
        if mid in self._early:
            return self._early.pop(mid)
        self._waiting[mid] = self._future()
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._waiting[mid]
        except TimeoutError as error:
            self.lost = f"no answer within {_ANSWER_S:g} s"
            raise Lost(self.lost) from error

    def _hop(self, handler: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(handler, *arguments)

    def _connected(self, code: Any, properties: Any) -> None:
        self.retain_available = bool(getattr(properties, "RetainAvailable", 1))
        if not self._connack.done():
            self._connack.set_result(code)

    def _answered(self, mid: int, code: int) -> None:
        future = self._waiting.pop(mid, None)
        if future is None:
            self._early[mid] = code
        elif not future.done():
            future.set_result(code)

    def _end(self, why: str) -> None:
        self.lost = f"the broker hangs up: {why}"
        self._ended.set()
        for future in (self._connack, *self._waiting.values()):
            if not future.done():
                future.set_exception(Lost(self.lost))

    def _future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        # A failure that nobody awaits any more is no news.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future
