"""AMQP 1.0 frames: performatives with named fields, in and out.

Every performative is written with all its fields, null where nothing is given, because
azure-eventhub 5.15.1 fails with IndexError on the trailing fields that the standard lets one omit.
"""

import asyncio
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tests.support.eventhubs_server.codec import (
    DecodeError,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
)

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
FRAME_BYTES_MAX = 65536  # what the service offers in its open
_FRAME_HEADER = struct.Struct(">IBBH")
_ERROR, _ACCEPTED, _REJECTED = 0x1D, 0x24, 0x25


class Kind(IntEnum):
    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    FLOW = 0x13
    TRANSFER = 0x14
    DISPOSITION = 0x15
    DETACH = 0x16
    END = 0x17
    CLOSE = 0x18
    SASL_MECHANISMS = 0x40
    SASL_INIT = 0x41
    SASL_OUTCOME = 0x44


# Fields in wire order (amqp-core-transport 2.7, amqp-core-security 5.3.3), with the number type of
# those that are numbers.
_FIELDS: dict[Kind, dict[str, type | None]] = {
    Kind.OPEN: {
        "container_id": None,
        "hostname": None,
        "max_frame_size": UInt,
        "channel_max": UShort,
        "idle_time_out": UInt,
        "outgoing_locales": None,
        "incoming_locales": None,
        "offered_capabilities": None,
        "desired_capabilities": None,
        "properties": None,
    },
    Kind.BEGIN: {
        "remote_channel": UShort,
        "next_outgoing_id": UInt,
        "incoming_window": UInt,
        "outgoing_window": UInt,
        "handle_max": UInt,
        "offered_capabilities": None,
        "desired_capabilities": None,
        "properties": None,
    },
    Kind.ATTACH: {
        "name": None,
        "handle": UInt,
        "role": None,
        "snd_settle_mode": UByte,
        "rcv_settle_mode": UByte,
        "source": None,
        "target": None,
        "unsettled": None,
        "incomplete_unsettled": None,
        "initial_delivery_count": UInt,
        "max_message_size": ULong,
        "offered_capabilities": None,
        "desired_capabilities": None,
        "properties": None,
    },
    Kind.FLOW: {
        "next_incoming_id": UInt,
        "incoming_window": UInt,
        "next_outgoing_id": UInt,
        "outgoing_window": UInt,
        "handle": UInt,
        "delivery_count": UInt,
        "link_credit": UInt,
        "available": UInt,
        "drain": None,
        "echo": None,
        "properties": None,
    },
    Kind.TRANSFER: {
        "handle": UInt,
        "delivery_id": UInt,
        "delivery_tag": None,
        "message_format": UInt,
        "settled": None,
        "more": None,
        "rcv_settle_mode": UByte,
        "state": None,
        "resume": None,
        "aborted": None,
        "batchable": None,
    },
    Kind.DISPOSITION: {
        "role": None,
        "first": UInt,
        "last": UInt,
        "settled": None,
        "state": None,
        "batchable": None,
    },
    Kind.DETACH: {"handle": UInt, "closed": None, "error": None},
    Kind.END: {"error": None},
    Kind.CLOSE: {"error": None},
    Kind.SASL_MECHANISMS: {"mechanisms": None},
    Kind.SASL_INIT: {"mechanism": None, "initial_response": None, "hostname": None},
    Kind.SASL_OUTCOME: {"code": UByte, "additional_data": None},
}


@dataclass(frozen=True)
class Frame:
    kind: Kind
    fields: dict[str, Any]
    channel: int = 0
    payload: bytes = field(default=b"", repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name)


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """Return the next frame, or None for an empty one, which is a heartbeat."""
    header = await reader.readexactly(_FRAME_HEADER.size)
    size, data_offset, _, channel = _FRAME_HEADER.unpack(header)
    if not _FRAME_HEADER.size <= size <= FRAME_BYTES_MAX:
        raise DecodeError(f"frame of {size} bytes")
    body = await reader.readexactly(size - _FRAME_HEADER.size)
    body = body[4 * data_offset - _FRAME_HEADER.size :]
    return _decode_body(channel, body) if body else None


def encode_frame(frame: Frame) -> bytes:
    number_types = _FIELDS[frame.kind]
    unknown = frame.fields.keys() - number_types.keys()
    assert not unknown, f"{frame.kind.name} has no field {unknown}"
    values = [_typed(frame[name], kind) for name, kind in number_types.items()]
    body = encode(Described(int(frame.kind), values)) + frame.payload
    is_sasl = frame.kind >= Kind.SASL_MECHANISMS
    return _FRAME_HEADER.pack(_FRAME_HEADER.size + len(body), 2, is_sasl, frame.channel) + body


def amqp_error(condition: str, description: str) -> Described:
    return Described(_ERROR, [Symbol(condition), description, None])


def accepted() -> Described:
    return Described(_ACCEPTED, [])


def rejected(condition: str, description: str) -> Described:
    return Described(_REJECTED, [amqp_error(condition, description)])


def _decode_body(channel: int, body: bytes) -> Frame:
    performative, end = decode(body)
    try:
        kind = Kind(performative.descriptor)
    except (AttributeError, ValueError) as error:
        raise DecodeError("frame body is not a performative") from error
    fields = dict(zip(_FIELDS[kind], performative.value, strict=False))
    return Frame(kind, fields, channel, body[end:])


def _typed(value: Any, number_type: type | None) -> Any:
    return value if value is None or number_type is None else number_type(value)
