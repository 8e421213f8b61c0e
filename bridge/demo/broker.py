"""An MQTT 3.1.1 broker inside the demo's process: amqtt, mended where it breaks a promise of MQTT.

Found by reading and running amqtt 0.12.1; each override below mends one of these:

1. A QoS 1 message whose PUBACK is missing when a connection ends is thrown away.
2. What was kept for an absent client arrives with the retain flag, as if it were retained state.
   An agent rightly refuses such a command.
3. Whoever connects is sent the retained messages of everybody's subscriptions, not its own.
4. The usual plugin marks each client as anonymous, and for those no session is kept.
5. When a client is back before its old connection is cleared away, clearing it away marks the
   session as disconnected, and the client that is there gets nothing any more.

It must not be used for anything but the demo: no limits, no passwords, nothing on disk.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from amqtt.broker import Broker
from amqtt.errors import BrokerError
from amqtt.mqtt.constants import QOS_0, QOS_1
from amqtt.plugins.base import BaseAuthPlugin

LISTENER = "default"
OnMessage = Callable[[str, bytes], None]
_CONNECTED = "connected"
_REFUSED = 0x80


class DemoBroker:
    """The broker on one port; `on_message` sees each message once, whoever else does."""

    def __init__(self, host: str, on_message: OnMessage = lambda _topic, _payload: None) -> None:
        self._host = host
        self._on_message = on_message
        self._broker: _MendedBroker | None = None
        self.port = 0

    async def start(self, port: int = 0) -> None:
        """Listen; raises OSError when the port is taken."""
        # It logs each packet, and each client that is killed as an error.
        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        listeners = {LISTENER: {"type": "tcp", "bind": f"{self._host}:{port}"}}
        plugins: dict[str, Any] = {f"{__name__}.{LetEverybodyIn.__name__}": {}}
        config = {"listeners": listeners, "plugins": plugins}
        broker = _MendedBroker(config, self._on_message)
        try:
            await broker.start()
        except BrokerError as error:
            raise OSError(f"no MQTT broker on {self._host}:{port}: {error.__cause__}") from error
        self._broker = broker
        self.port = broker.port

    async def stop(self) -> None:
        if self._broker is not None:
            await self._broker.shutdown()


class LetEverybodyIn(BaseAuthPlugin):  # type: ignore[misc]  # amqtt has no types
    """Mends 4: everybody may come in, and is somebody."""

    async def authenticate(self, *, session: Any) -> bool:
        return session is not None


class _Kept:
    """A QoS 1 message for a session that outlives its connections, until it is acknowledged."""

    def __init__(self, topic: str, data: bytes) -> None:
        self.topic = topic
        self.data = data
        self.handler: Any = None  # the connection it was last sent on


class _MendedBroker(Broker):  # type: ignore[misc]  # amqtt has no types
    def __init__(self, config: dict[str, Any], on_message: OnMessage) -> None:
        super().__init__(config)
        self._on_message = on_message
        self._numbers = count()
        self._kept: dict[str, dict[int, _Kept]] = {}

    @property
    def port(self) -> int:
        port: int = self._servers[LISTENER].instance.sockets[0].getsockname()[1]
        return port

    async def _run_broadcast(self, running_tasks: deque[asyncio.Task[Any]]) -> None:
        """Mends 1: called for each message that was published, wills included."""
        broadcast = await self._broadcast_queue.get()
        topic, data = broadcast["topic"], bytes(broadcast["data"] or b"")
        self._on_message(topic, data)
        for session, qos in self._subscribers(topic):
            if qos == QOS_0 or session.clean_session:
                handler = self._get_handler(session)
                if handler is not None and session.transitions.state == _CONNECTED:
                    publishing = handler.mqtt_publish(topic, data, qos, retain=False)
                    running_tasks.append(asyncio.ensure_future(publishing))
                continue
            self._kept.setdefault(session.client_id, {})[next(self._numbers)] = _Kept(topic, data)
            if session.transitions.state == _CONNECTED:
                running_tasks.extend(self._send_kept(session))

    def _subscribers(self, topic: str) -> list[tuple[Any, int]]:
        """Each session once, with the best QoS of its matching filters; nobody publishes QoS 2."""
        found: dict[str, tuple[Any, int]] = {}
        for topic_filter, subscriptions in self._subscriptions.items():
            if self._matches(topic, topic_filter):
                for session, qos in subscriptions:
                    best = max(qos, found.get(session.client_id, (session, QOS_0))[1])
                    found[session.client_id] = (session, min(best, QOS_1))
        return list(found.values())

    def _send_kept(self, session: Any) -> list[asyncio.Task[None]]:
        """Send, in order, what this connection has not been sent."""
        handler = self._get_handler(session)
        kept = self._kept.get(session.client_id, {})
        tasks = []
        for number, message in kept.items():
            if message.handler is not handler:
                message.handler = handler
                tasks.append(asyncio.ensure_future(self._deliver(handler, kept, number)))
        return tasks

    async def _deliver(self, handler: Any, kept: dict[int, _Kept], number: int) -> None:
        message = kept[number]
        # Ends with an exception when no PUBACK comes; the message then stays where it is.
        await handler.mqtt_publish(message.topic, message.data, QOS_1, retain=False)
        kept.pop(number, None)

    async def _publish_session_retained_messages(self, session: Any) -> None:
        """Mends 1 and 2: called when a client has connected."""
        if session.clean_session:
            self._kept.pop(session.client_id, None)
        self._mark_connected(session)
        self._tasks_queue.extend(self._send_kept(session))

    async def _publish_retained_messages_for_subscription(self, *_: Any) -> None:
        """Mends 3: not when a client connects, only when it subscribes."""

    async def _handle_subscription(
        self, client_session: Any, handler: Any, subscribe_waiter: asyncio.Future[Any]
    ) -> None:
        asked = subscribe_waiter.result()
        granted = [await self.add_subscription(pair, client_session) for pair in asked.topics]
        await handler.mqtt_acknowledge_subscription(asked.packet_id, granted)
        for (topic_filter, _), qos in zip(asked.topics, granted, strict=True):
            if qos != _REFUSED:
                self._send_retained(handler, topic_filter, min(qos, QOS_1))

    def _send_retained(self, handler: Any, topic_filter: str, qos: int) -> None:
        for topic, retained in list(self._retained_messages.items()):
            if self._matches(topic, topic_filter):
                publishing = handler.mqtt_publish(topic, retained.data, qos, retain=True)
                self._tasks_queue.append(asyncio.ensure_future(publishing))

    async def _handle_disconnect(
        self, client_session: Any, handler: Any, disconnect_waiter: asyncio.Future[Any]
    ) -> None:
        """Mends 5: the end of this connection need not be the end of the client's last one."""
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)
        if self._get_handler(client_session) not in (None, handler):
            self._mark_connected(client_session)
            self._tasks_queue.extend(self._send_kept(client_session))

    def _mark_connected(self, session: Any) -> None:
        if session.transitions.state != _CONNECTED:
            session.transitions.connect()
