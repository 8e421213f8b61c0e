"""From outbox rows to MQTT messages and back: topics, retained copies, the two content modes."""

from collections.abc import Callable, Iterator

from paho.mqtt.client import MQTTMessage

from bridge.config import ContentMode
from bridge.core import cloudevents, topics
from bridge.core.commands import Wire
from bridge.mqtt_client import Version
from bridge.transports import Incoming, Outgoing
from bridge.transports.mqtt.client import Message


def to_incoming(message: MQTTMessage, *, ack: Callable[[], None], reply_prefix: str) -> Incoming:
    """A command as it came; a Response Topic only if it may be used."""
    properties = getattr(message, "properties", None)
    reply_topic = getattr(properties, "ResponseTopic", "")
    allowed = topics.is_allowed_reply(reply_topic, reply_prefix)
    return Incoming(
        wire=Wire(
            payload=bytes(message.payload),
            content_type=getattr(properties, "ContentType", ""),
            attributes=tuple(getattr(properties, "UserProperty", ())),
            retained=message.retain,
        ),
        ack=ack,
        reply_topic=reply_topic if allowed else "",
        correlation=getattr(properties, "CorrelationData", None),
    )


class Messages:
    def __init__(
        self, root: str, content_mode: ContentMode, *, outcomes_only: bool = False
    ) -> None:
        self._root = root
        self._content_mode = content_mode
        self._outcomes_only = outcomes_only  # commands come by MQTT, events leave elsewhere

    @property
    def commands_topic(self) -> str:
        return f"{self._root}/commands"

    @property
    def pending_filter(self) -> str:
        return f"{self._root}/pending/+"

    def of_row(self, row: Outgoing, version: Version, *, retain: bool) -> Iterator[Message]:
        """The row's message and, for a transition, its retained copy where the broker keeps any."""
        if self._outcomes_only and row.channel != "outcomes":
            return
        yield self._message(f"{self._root}/{row.channel}", row.cloudevent, version)
        if row.channel == "events" and row.event_id and retain:
            yield self.pending(row, version)

    def reply(self, row: Outgoing, version: Version) -> Message:
        """The answer once more, where the sender of the command asked for it."""
        return self._message(row.reply_topic, row.cloudevent, version, correlation=row.correlation)

    def pending(self, row: Outgoing, version: Version) -> Message:
        topic = self.pending_topic(row)
        if row.ends:
            return self.cleared(topic)
        return self._message(topic, row.cloudevent, version, retain=True)

    def pending_topic(self, row: Outgoing) -> str:
        return topics.pending(self._root, row.event_id)

    def cleared(self, topic: str) -> Message:
        """An empty retained payload makes the broker forget."""
        return Message(topic=topic, payload=b"", retain=True)

    def status(self, structured: bytes, version: Version, *, retain: bool) -> Message:
        return self._message(f"{self._root}/status", structured, version, retain=retain)

    def will(self, structured: bytes) -> Message:
        return _structured(f"{self._root}/status", structured, retain=True)

    def _message(
        self,
        topic: str,
        structured: bytes,
        version: Version,
        *,
        retain: bool = False,
        correlation: bytes | None = None,
    ) -> Message:
        if self._content_mode == "structured" or version != "5":
            return _structured(topic, structured, retain=retain, correlation=correlation)
        event = cloudevents.decode(structured)
        return Message(
            topic=topic,
            payload=bytes(event.data),
            retain=retain,
            content_type=cloudevents.JSON_CONTENT_TYPE,
            attributes=tuple(cloudevents.attributes(event).items()),
            correlation=correlation,
        )


def _structured(
    topic: str, structured: bytes, *, retain: bool, correlation: bytes | None = None
) -> Message:
    return Message(
        topic=topic,
        payload=structured,
        retain=retain,
        content_type=cloudevents.STRUCTURED_CONTENT_TYPE,
        correlation=correlation,
    )
