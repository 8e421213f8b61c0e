"""What agents publish over MQTT, for a consumer: a clean session of its own that always comes back.

Nothing that arrives is trusted or read beyond its form: binary CloudEvents become structured ones,
rubbish is handed on as it is, for the reader to refuse. Retained state comes again with every
connection; what was pending before and is retained no more has ended meanwhile, and is said to.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from urllib.parse import unquote

import msgspec
from paho.mqtt.client import MQTTMessage

from bridge.config import Mqtt
from bridge.core import topics
from bridge.core.cloudevents import JSON_CONTENT_TYPE
from bridge.core.commands import REQUIRED_ATTRIBUTES
from bridge.core.strict_json import NotJson, decode_object
from bridge.errors import BridgeError, SinkRejected, SinkUnavailable
from bridge.feeds import FeedChannel, Received
from bridge.feeds.mqtt.session import PACKET_BYTES_MAX, Session
from bridge.mqtt_client import FAILURE_MIN, ProtocolRefused, Version
from bridge.reconnecting import keep_connected

# Brokers send retained messages right after the SUBACK; a big fleet's take a moment.
SETTLE_S = 5.0
# Retained state of a fleet of thousands fits; a reader that is slower than this starts afresh.
_QUEUE_MAX = 50_000
_PENDING_MAX = 50_000
_CHANNELS: tuple[FeedChannel, ...] = ("events", "outcomes", "status")

_log = logging.getLogger("sebridge.feed")


class MqttFeed:
    # Long enough for a second attempt in the older protocol, short enough for a person who waits.
    settle_s = 5.0

    def __init__(self, config: Mqtt) -> None:
        self._config = config
        self._root = topics.root_filter(config.topic_root)
        self._client_id = f"sebridge-feed-{uuid.uuid4().hex[:12]}"
        self._version: Version = "3.1.1" if config.protocol == "3.1.1" else "5"
        self._only_311 = False  # the broker said so
        self._session: Session | None = None
        self._closing = asyncio.Event()
        self._queue: asyncio.Queue[Received] = asyncio.Queue(_QUEUE_MAX)
        self._pending: dict[tuple[str, str], int] = {}  # (agent, EventId): connection last seen on
        self._connections = 0
        self._problem = "not connected yet"

    @property
    def problem(self) -> str:
        return self._problem

    async def run(self) -> None:
        await keep_connected(
            self._serve_once, self._closing, pause_s_max=self._config.reconnect_s_max
        )

    async def received(self) -> AsyncIterator[Received]:
        while True:
            yield await self._queue.get()

    async def send(self, topic: str, vm_name: str, command: bytes) -> None:
        if not self._is_command_topic(topic, vm_name):
            raise SinkRejected(f"{topic!r} is not the command topic of {vm_name}", permanent=True)
        if self._session is None:
            raise SinkUnavailable(self._problem or "not connected")
        await self._session.publish(topic, command)

    async def close(self) -> None:
        self._closing.set()
        if self._session is not None:
            await self._session.close()

    async def _serve_once(self) -> bool:
        before = self._connections
        try:
            await self._connect_and_serve()
        except BridgeError as error:
            self._complain(str(error))
            self._choose_protocol(error)
        return self._connections > before

    async def _connect_and_serve(self) -> None:
        session = Session(
            self._config,
            client_id=self._client_id,
            version=self._version,
            on_message=self._take,
        )
        await session.open()
        self._connections += 1
        try:
            await self._subscribe(session)
            self._session = session
            await self._serve(session)
        finally:
            self._session = None
            await session.close()
        if not self._closing.is_set():
            self._complain(f"connection lost: {session.closed.result()}")

    async def _subscribe(self, session: Session) -> None:
        names = [f"{self._root}/{name}" for name in (*_CHANNELS, "pending/+")]
        codes = await session.subscribe(names)
        refused = [name for name, code in zip(names, codes, strict=False) if code >= FAILURE_MIN]
        if refused:
            raise SinkUnavailable(f"the broker refuses the subscription to {', '.join(refused)}")
        self._problem = ""
        _log.info("connected with MQTT %s", session.version)

    async def _serve(self, session: Session) -> None:
        """Until the connection ends; once retained state has come, the rest is known to be over."""
        await asyncio.wait({session.closed}, timeout=SETTLE_S)
        if not session.closed.done():
            gone = [key for key, seen in self._pending.items() if seen < self._connections]
            for agent, event_id in gone:
                self._put(Received(channel="pending", agent=agent, payload=b"", event_id=event_id))
            await session.closed

    def _choose_protocol(self, error: BridgeError) -> None:
        """Only an explicit refusal is remembered; a broken attempt just tries the other one."""
        if self._config.protocol != "auto":
            return
        refused = isinstance(error, ProtocolRefused) and self._version == "5"
        if isinstance(error, ProtocolRefused) and error.explicit and self._version == "5":
            self._only_311 = True
        self._version = "3.1.1" if refused or self._only_311 else "5"

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem

    def _take(self, message: MQTTMessage) -> None:
        if len(message.payload) > PACKET_BYTES_MAX:
            return  # MQTT 3.1.1 cannot tell the broker what is too large
        received = self._read(message)
        if received is not None:
            self._put(received)

    def _read(self, message: MQTTMessage) -> Received | None:
        """By its place below the root, counted in levels: a VM may be called `events`."""
        levels = message.topic.split("/")
        depth = self._root.count("/") + 1
        agent, rest = "/".join(levels[:depth]), levels[depth:]
        for channel in _CHANNELS:
            if rest == [channel]:
                return Received(channel=channel, agent=agent, payload=_structured(message))
        if len(rest) == 2 and rest[0] == "pending":
            event_id = unquote(rest[1])
            return Received(
                channel="pending", agent=agent, payload=_structured(message), event_id=event_id
            )
        return None

    def _put(self, received: Received) -> None:
        try:
            self._queue.put_nowait(received)
        except asyncio.QueueFull:
            if self._session is not None:
                self._session.drop("the reader is too slow: starting afresh")
        else:
            self._remember(received)

    def _remember(self, received: Received) -> None:
        if received.channel != "pending":
            return
        key = (received.agent, received.event_id)
        if not received.payload:
            self._pending.pop(key, None)
        elif key in self._pending or len(self._pending) < _PENDING_MAX:
            self._pending[key] = self._connections

    def _is_command_topic(self, topic: str, vm_name: str) -> bool:
        """`approval.topic` came over the wire: it must be one that an agent of ours can have."""
        try:
            root = topics.root_filter(self._config.topic_root, vm_name=vm_name)
        except topics.BadTopic:
            return False
        wanted, levels = f"{root}/commands".split("/"), topic.split("/")
        return len(wanted) == len(levels) and all(
            _is_plain(level) and want in {"+", level}
            for want, level in zip(wanted, levels, strict=True)
        )


def _is_plain(level: str) -> bool:
    return bool(level) and not set(level) & set("+#\x00")


def _structured(message: MQTTMessage) -> bytes:
    """A binary CloudEvent (MQTT 5) in structured form; everything else as it came."""
    payload = bytes(message.payload)
    properties = getattr(message, "properties", None)
    pairs = [tuple(pair) for pair in getattr(properties, "UserProperty", ())]
    content_type = str(getattr(properties, "ContentType", ""))
    attributes = dict(pairs)
    is_binary = set(REQUIRED_ATTRIBUTES) <= set(attributes) and len(attributes) == len(pairs)
    if not is_binary or not payload or content_type.startswith("application/cloudevents"):
        return payload
    try:
        data = decode_object(payload, bytes_max=PACKET_BYTES_MAX)
    except NotJson:
        return payload
    datacontenttype = content_type or JSON_CONTENT_TYPE
    return msgspec.json.encode({**attributes, "datacontenttype": datacontenttype, "data": data})
