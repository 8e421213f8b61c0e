"""CloudEvents in AMQP messages (CloudEvents AMQP binding), both ways and in both content modes.

Reading never raises: what a sender put into a message is bytes of any kind, and the caller decides
what they are worth.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from azure.eventhub import EventData
from azure.eventhub.amqp import AmqpMessageBodyType

from bridge.config import ContentMode
from bridge.core import cloudevents
from bridge.core.commands import Wire
from bridge.eventhubs import decoding

# Every reader of a hub comes by here, and none may be stopped by one event.
decoding.install()

# The binding prefers `_`, because JMS allows no colon, and asks readers to take both.
_PREFIX = "cloudEvents_"
_PREFIXES = (_PREFIX, "cloudEvents:")
_TIMES = frozenset({"time", "expirytime"})


def to_event_data(structured: bytes, mode: ContentMode) -> EventData:
    """An outbox row as a message; the ids make duplicates recognisable to any consumer."""
    event = cloudevents.decode(structured)
    if mode == "structured":
        message = EventData(structured)
        message.content_type = cloudevents.STRUCTURED_CONTENT_TYPE
    else:
        message = EventData(bytes(event.data))
        message.content_type = cloudevents.JSON_CONTENT_TYPE
        # As strings: the client sends integers with 32 bits only.
        attributes = cloudevents.attributes(event).items()
        message.properties = {f"{_PREFIX}{name}": value for name, value in attributes}
    message.message_id = event.id
    if event.correlationid:
        message.correlation_id = event.correlationid
    return message


def from_command(structured: bytes) -> EventData:
    """A command, always structured: every consumer reads that."""
    message = EventData(structured)
    message.content_type = cloudevents.STRUCTURED_CONTENT_TYPE
    return message


def to_wire(message: EventData) -> Wire:
    return Wire(
        payload=_body(message),
        content_type=_text(message.content_type),
        attributes=tuple(_attributes(message)),
    )


def to_structured(message: EventData) -> bytes:
    """The CloudEvent as structured JSON, whichever mode it came in."""
    wire = to_wire(message)
    attributes = dict(wire.attributes)
    if not attributes or wire.content_type.casefold().startswith("application/cloudevents"):
        return wire.payload
    fields: dict[str, Any] = {**attributes, "datacontenttype": wire.content_type}
    return msgspec.json.encode({**fields, "data": msgspec.Raw(wire.payload or b"null")})


def partition_key(message: EventData) -> str:
    return _text(message.partition_key)


def _body(message: EventData) -> bytes:
    """Data sections joined; other kinds of body are not ours and read as empty."""
    if message.body_type != AmqpMessageBodyType.DATA:
        return b""
    sections: Any = message.body
    return b"".join(section for section in sections if isinstance(section, bytes))


def _attributes(message: EventData) -> Iterator[tuple[str, str]]:
    properties: Any = message.properties
    for key, value in properties.items() if isinstance(properties, dict) else ():
        name = _text(key)
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                name = name.removeprefix(prefix)
                yield name, _canonical(name, value)


def _canonical(name: str, value: object) -> str:
    """The attribute's canonical string; AMQP timestamps arrive as milliseconds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if name in _TIMES and isinstance(value, int):
        try:
            return cloudevents.rfc3339(datetime.fromtimestamp(value / 1000, UTC))
        except (ValueError, OverflowError, OSError):
            return str(value)
    return _text(value)


def _text(value: object) -> str:
    """Of a simple value; AMQP's compound ones have no place here, and any depth."""
    if value is None or isinstance(value, list | dict):
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
