"""MQTT: events, outcomes and status out, commands in, over one connection that always comes back.

The outbox is the truth: a row counts as delivered once every message it makes has its PUBACK. What
a connection had in flight when it broke is sent again on the next one, so a message may come twice
and never in the wrong order.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence

from paho.mqtt.client import MQTTMessage

from bridge.config import Mqtt
from bridge.core import cloudevents
from bridge.core.cloudevents import CloudEvent
from bridge.errors import BridgeError, SinkRejected, SinkUnavailable
from bridge.mqtt_client import FAILURE_MIN, Version
from bridge.reconnecting import keep_connected
from bridge.transports import CaughtUp, Incoming, Outgoing, PendingProvider, TokenProvider
from bridge.transports.mqtt.client import Message
from bridge.transports.mqtt.connection import Connection
from bridge.transports.mqtt.messages import Messages, to_incoming
from bridge.transports.mqtt.protocol import ProtocolChoice
from bridge.transports.mqtt.retained import StaleRetained

RESUBSCRIBE_S = 60.0
# A token is replaced this long before it expires.
TOKEN_MARGIN_S = 300.0
# Far above any receive maximum; a broker that knows none gives the rest again.
_COMMANDS_MAX = 1_000
# Nothing but our own pace bounds what comes with QoS 0; these fit into a few megabytes.
_UNPROMISED_MAX = 100

_log = logging.getLogger("sebridge.mqtt")


class MqttTransport:
    name = "mqtt"

    def __init__(
        self,
        config: Mqtt,
        *,
        root: str,
        client_id: str,
        will: Callable[[], bytes],
        pending: PendingProvider,
        caught_up: CaughtUp | None = None,
        token_provider: TokenProvider | None = None,
        publish_events: bool = True,
        take_commands: bool = True,
        commands_bytes_max: int = 65_536,
    ) -> None:
        self.generation = 0
        self._config = config
        self._protocol = ProtocolChoice(config)
        self._messages = Messages(root, config.content_mode, outcomes_only=not publish_events)
        self._stale = StaleRetained(self._messages, pending, caught_up)
        self._client_id = client_id
        self._will = will
        self._pending = pending
        self._token_provider = token_provider
        self._publish_events = publish_events
        self._take_commands = take_commands
        self._commands_bytes_max = commands_bytes_max
        self._connection: Connection | None = None
        self._closing = asyncio.Event()
        self._queue: asyncio.Queue[Incoming] = asyncio.Queue(_COMMANDS_MAX)
        self._status: bytes | None = None
        self._careful = False  # after a refusal: one row at a time
        self._link_problem = "not connected yet"
        self._commands_problem = ""
        self._expires_at: float | None = None

    @property
    def problem(self) -> str:
        return self._link_problem or self._commands_problem

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closed.done()

    @property
    def protocol(self) -> Version:
        return self._protocol.version

    async def run(self) -> None:
        pause_s_max = self._config.reconnect_s_max
        await keep_connected(self._serve_once, self._closing, pause_s_max=pause_s_max)

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        connection = self._connection
        if connection is None:
            raise SinkUnavailable(f"mqtt: {self.problem or 'not connected'}")
        step = 1 if self._careful else max(1, len(batch))
        delivered = 0
        rows: list[list[asyncio.Future[None]]] = []
        try:
            for start in range(0, len(batch), step):
                rows = self._submit(batch[start : start + step], connection)
                for acks in rows:
                    await self._acknowledged(acks, connection)
                    delivered += 1
        except SinkUnavailable as error:
            raise SinkUnavailable(f"mqtt: {error}", delivered=delivered) from error
        except SinkRejected as error:
            self._careful = True
            await self._settle([ack for acks in rows for ack in acks])
            permanent = error.permanent
            text = f"mqtt: {error}"
            raise SinkRejected(text, delivered=delivered, permanent=permanent) from error
        self._careful = False

    async def publish_status(self, status: CloudEvent) -> None:
        self._status = cloudevents.encode(status)
        connection = self._connection
        if connection is None:
            return
        try:
            await self._acknowledged(
                [connection.publish(self._status_message(connection))], connection
            )
        except BridgeError as error:
            _log.warning("status not published: %s", error)

    async def commands(self) -> AsyncIterator[Incoming]:
        while True:
            yield await self._queue.get()

    async def close(self) -> None:
        self._closing.set()
        if self._connection is not None:
            await self._connection.close()

    async def _serve_once(self) -> bool:
        before = self.generation
        try:
            await self._connect_and_serve()
        except BridgeError as error:
            self._complain(str(error))
            self._protocol.failed(error)
        return self.generation > before

    async def _connect_and_serve(self) -> None:
        connection = await self._open()
        try:
            self._refresh(connection)
            await self._serve(connection)
        finally:
            self._connection = None
            await connection.close()
        if not self._closing.is_set():
            self._complain(f"connection lost: {connection.closed.result()}")

    async def _open(self) -> Connection:
        token = ""
        self._expires_at = None
        if self._config.auth == "entra-jwt" and self._token_provider is not None:
            token, self._expires_at = await self._token_provider()
        connection = Connection(
            self._config,
            client_id=self._client_id,
            version=self.protocol,
            will=self._messages.will(self._will()),
            on_command=self._take,
            commands_bytes_max=self._commands_bytes_max,
            token=token,
        )
        await connection.open()
        self._protocol.worked()
        return connection

    def _refresh(self, connection: Connection) -> None:
        """What the broker may have forgotten, in one step: no newer row may get ahead of it."""
        self._connection = connection
        self.generation += 1
        self._link_problem = ""
        _log.info("connected with MQTT %s", connection.version)
        if self._status is not None:
            connection.publish(self._status_message(connection)).add_done_callback(_warn)
        if connection.retain_available and self._publish_events:
            for row in self._pending():
                message = self._messages.pending(row, connection.version)
                connection.publish(message).add_done_callback(_warn)

    async def _serve(self, connection: Connection) -> None:
        lifetime_s = None
        if self._expires_at is not None:
            left_s = self._expires_at - time.time()
            lifetime_s = max(left_s - TOKEN_MARGIN_S, left_s / 2, 1.0)
        chores = [
            asyncio.create_task(self._keep_subscribed(connection)),
            asyncio.create_task(self._stale.clear(connection)),
        ]
        try:
            await asyncio.wait({connection.closed}, timeout=lifetime_s)
        finally:
            for chore in chores:
                chore.cancel()

    async def _keep_subscribed(self, connection: Connection) -> None:
        topic = self._messages.commands_topic
        while self._take_commands:
            try:
                async with asyncio.timeout(self._config.publish_timeout_s):
                    code = await connection.subscribe(topic)
            except (TimeoutError, SinkUnavailable):
                connection.drop("no SUBACK")
                return
            if code < FAILURE_MIN:
                self._commands_problem = ""
                _log.info("taking commands from %s", topic)
                return
            self._commands_problem = f"the broker refuses {topic} with code {code}: no commands"
            _log.error("%s", self._commands_problem)
            await asyncio.sleep(RESUBSCRIBE_S)

    def _complain(self, problem: str) -> None:
        if problem != self._link_problem:
            _log.warning("%s", problem)
        self._link_problem = problem

    def _take(self, connection: Connection, message: MQTTMessage) -> None:
        if message.topic != self._messages.commands_topic:
            self._stale.found(message)
            connection.ack(message)
            return
        if message.qos == 0 and self._queue.qsize() >= _UNPROMISED_MAX:
            return  # nobody was promised anything, and a flood must not throw us out
        prefix = self._config.response_topic_prefix
        try:
            self._queue.put_nowait(
                to_incoming(message, ack=lambda: connection.ack(message), reply_prefix=prefix)
            )
        except asyncio.QueueFull:
            connection.drop("too many commands wait: the broker shall send them again")

    def _submit(
        self, batch: Sequence[Outgoing], connection: Connection
    ) -> list[list[asyncio.Future[None]]]:
        rows: list[list[asyncio.Future[None]]] = []
        version, retain = connection.version, connection.retain_available
        for row in batch:
            messages = self._messages.of_row(row, version, retain=retain)
            acks = [connection.publish(message) for message in messages]
            rows.append(acks)
            if any(ack.done() for ack in acks):  # refused before it left: keep the order
                break
            if row.reply_topic and version == "5":
                reply = self._messages.reply(row, version)
                # The sender chose this topic: its refusal must not hold back the outbox.
                connection.publish(reply).add_done_callback(_warn)
        return rows

    async def _acknowledged(
        self, acks: Sequence[asyncio.Future[None]], connection: Connection
    ) -> None:
        """In time, or the connection is given up: nobody knows what it still holds."""
        if not acks:
            return
        timeout_s = self._config.publish_timeout_s
        if not all(ack.done() for ack in acks):
            _, late = await asyncio.wait(acks, timeout=timeout_s)
            if late:
                connection.drop(f"no PUBACK within {timeout_s:g} s")
        for ack in acks:
            await ack

    async def _settle(self, acks: Sequence[asyncio.Future[None]]) -> None:
        """Let what is in flight land, so that the next attempt starts from a quiet wire."""
        await asyncio.wait(acks, timeout=self._config.publish_timeout_s)

    def _status_message(self, connection: Connection) -> Message:
        assert self._status is not None
        return self._messages.status(
            self._status, connection.version, retain=connection.retain_available
        )


def _warn(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()):
        _log.warning("not published: %s", error)
