"""AMQP messages (amqp-core-messaging 3.2): sections to Python values, and back.

The sections a sender wrote are kept byte for byte; only message annotations are written anew, since
the broker adds its own.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tests.support.eventhubs_server.codec import DecodeError, Described, Symbol, decode, encode

BATCH_FORMAT = 0x80013700  # each data section holds one whole message
PARTITION_KEY = Symbol("x-opt-partition-key")


class Section(IntEnum):
    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77


#: Written anew or dropped by the broker; all other sections are the sender's for good.
_BROKER_SECTIONS = (Section.HEADER, Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS)
_PROPERTY_NAMES = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)


@dataclass
class Message:
    annotations: dict[Any, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    application_properties: dict[str, Any] = field(default_factory=dict)
    data: list[bytes] = field(default_factory=list)
    value: Any = None
    #: Everything from the properties on, as the sender wrote it.
    bare: bytes = b""

    @property
    def partition_key(self) -> str | None:
        key = self.annotations.get(PARTITION_KEY)
        return None if key is None else str(key)


def decode_message(payload: bytes) -> Message:
    message = Message()
    at = 0
    while at < len(payload):
        start = at
        section, at = decode(payload, at)
        if not isinstance(section, Described):
            raise DecodeError("message section without a descriptor")
        if section.descriptor not in _BROKER_SECTIONS:
            message.bare += payload[start:at]
        _take_section(message, section)
    return message


def decode_batch(payload: bytes) -> list[Message]:
    """Unpack a batch; its partition key, if any, is on the outer message."""
    outer = decode_message(payload)
    messages = [decode_message(data) for data in outer.data]
    if outer.partition_key is not None:
        for message in messages:
            message.annotations.setdefault(PARTITION_KEY, outer.partition_key)
    return messages


def encode_message(message: Message) -> bytes:
    """Write a message of our own, where there are no bytes of a sender to keep."""
    properties = [message.properties.get(name) for name in _PROPERTY_NAMES]
    sections: list[tuple[Section, Any]] = [
        (Section.PROPERTIES, properties),
        (Section.APPLICATION_PROPERTIES, message.application_properties),
    ]
    if message.data:
        sections += [(Section.DATA, data) for data in message.data]
    else:
        sections.append((Section.VALUE, message.value))
    return b"".join(encode(Described(int(code), value)) for code, value in sections)


def encode_annotations(annotations: dict[Any, Any]) -> bytes:
    return encode(Described(int(Section.MESSAGE_ANNOTATIONS), annotations))


def _take_section(message: Message, section: Described) -> None:
    match section.descriptor:
        case Section.MESSAGE_ANNOTATIONS:
            message.annotations = section.value
        case Section.PROPERTIES:
            message.properties = dict(zip(_PROPERTY_NAMES, section.value, strict=False))
        case Section.APPLICATION_PROPERTIES:
            message.application_properties = section.value
        case Section.DATA:
            message.data.append(section.value)
        case Section.VALUE:
            message.value = section.value
