"""Retained `pending/…` messages of events that nobody remembers, cleared once after a start.

An end clears its own retained message. But a ledger that was lost or moved aside forgets its
pending events, and the broker would show them for ever. So once the document is known, whatever
is retained below our root and not pending goes. What is still to be announced leaves first: each
copy that we retain meanwhile would come back to us.
"""

import asyncio
import logging

from paho.mqtt.client import MQTTMessage

from bridge.errors import SinkUnavailable
from bridge.mqtt_client import FAILURE_MIN
from bridge.transports import CaughtUp, PendingProvider
from bridge.transports.mqtt.connection import Connection
from bridge.transports.mqtt.messages import Messages

# Retained messages come right behind the SUBACK; a slow broker gets this long.
COLLECT_S = 2.0

_log = logging.getLogger("sebridge.mqtt")


class StaleRetained:
    def __init__(
        self, messages: Messages, pending: PendingProvider, caught_up: CaughtUp | None
    ) -> None:
        self._messages = messages
        self._pending = pending
        self._caught_up = caught_up
        self._found: set[str] = set()
        self._done = False

    def found(self, message: MQTTMessage) -> None:
        if message.retain and message.payload:
            self._found.add(message.topic)

    async def clear(self, connection: Connection) -> None:
        """Once a process; a connection that ends too early leaves it to the next."""
        if self._done or self._caught_up is None or not connection.retain_available:
            return
        await self._caught_up()
        topic_filter = self._messages.pending_filter
        try:
            code = await connection.subscribe(topic_filter, qos=0, as_published=False)
        except SinkUnavailable:
            return
        if code >= FAILURE_MIN:
            _log.info("the broker refuses %s: stale messages there stay", topic_filter)
        await asyncio.sleep(COLLECT_S)
        connection.unsubscribe(topic_filter)
        self._done = True
        pending = {self._messages.pending_topic(row) for row in self._pending()}
        for topic in sorted(self._found - pending):
            _log.info("clearing %s: no such event is pending", topic)
            connection.publish(self._messages.cleared(topic))
