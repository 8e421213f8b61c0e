"""The AMQP 1.0 type system (OASIS amqp-core-types, section 1.6) as Python values.

`decode(encode(value))` gives back an equal value of the same AMQP type: types that Python lacks
are small subclasses (`Symbol`, `UInt`, ...), a plain `int` is an AMQP long. Everything is written in
its widest form, so that the members of an array share one constructor. Decimals and chars are left
out: no client under test sends them.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID


class Symbol(str):
    __slots__ = ()


class UByte(int):
    pass


class UShort(int):
    pass


class UInt(int):
    pass


class ULong(int):
    pass


class Byte(int):
    pass


class Short(int):
    pass


class Int(int):
    pass


class Float(float):
    pass


class Timestamp(int):
    """Milliseconds since 1970, UTC."""


class Array(list[Any]):
    """Elements of one AMQP type."""


class Described(NamedTuple):
    descriptor: Any
    value: Any


class DecodeError(ValueError):
    """The bytes are not AMQP 1.0, or use a type that is left out here."""


def encode(value: Any) -> bytes:
    if value is None:
        return b"\x40"
    if isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if isinstance(value, Described):
        return b"\x00" + _encode_descriptor(value.descriptor) + encode(value.value)
    if isinstance(value, UUID):
        return b"\x98" + value.bytes
    for kind, (code, layout) in _FIXED_WIDE.items():
        if isinstance(value, kind):
            return struct.pack(">B" + layout, code, value)
    return _encode_variable(value)


def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the value that starts at `at`, and where the next one starts."""
    try:
        return _decode_as(data[at], data, at + 1)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"broken AMQP value at byte {at}: {error}") from error


# Wide fixed-width encodings; subclasses come before `int` and `float`, which match last.
_FIXED_WIDE: dict[type, tuple[int, str]] = {
    UByte: (0x50, "B"),
    Byte: (0x51, "b"),
    UShort: (0x60, "H"),
    Short: (0x61, "h"),
    UInt: (0x70, "I"),
    Int: (0x71, "i"),
    ULong: (0x80, "Q"),
    Timestamp: (0x83, "q"),
    Float: (0x72, "f"),
    int: (0x81, "q"),
    float: (0x82, "d"),
}
_FIXED: dict[int, tuple[type, struct.Struct]] = {
    code: (kind, struct.Struct(">" + layout)) for kind, (code, layout) in _FIXED_WIDE.items()
} | {
    0x52: (UInt, struct.Struct(">B")),
    0x53: (ULong, struct.Struct(">B")),
    0x54: (Int, struct.Struct(">b")),
    0x55: (int, struct.Struct(">b")),
    0x56: (bool, struct.Struct(">B")),
}
_EMPTY: dict[int, Callable[[], Any]] = {
    0x40: lambda: None,
    0x41: lambda: True,
    0x42: lambda: False,
    0x43: lambda: UInt(0),
    0x44: lambda: ULong(0),
    0x45: list,
}
_VARIABLE: dict[int, Callable[[bytes], Any]] = {
    0xA0: bytes,
    0xA1: lambda raw: raw.decode(),
    0xA3: lambda raw: Symbol(raw.decode("ascii")),
}
_WIDE = 0x10  # the code of a wide type is that of the narrow one plus this
_LIST, _MAP, _ARRAY, _UUID = 0xC0, 0xC1, 0xE0, 0x98


def _encode_descriptor(descriptor: Any) -> bytes:
    # The client takes the third byte of a frame or section as the descriptor: small form only.
    if isinstance(descriptor, int):
        return struct.pack(">BB", 0x53, descriptor)
    return encode(descriptor)


def _encode_variable(value: Any) -> bytes:
    match value:
        case Symbol():
            return _sized(0xB3, value.encode("ascii"))
        case str():
            return _sized(0xB1, value.encode())
        case bytes():
            return _sized(0xB0, value)
        case Array():
            members = [encode(member) for member in value]
            constructor = members[0][:1] if members else b"\x40"
            content = constructor + b"".join(member[1:] for member in members)
            return _sized(0xF0, struct.pack(">I", len(members)) + content)
        case list() | tuple():
            content = b"".join(encode(member) for member in value)
            return _sized(0xD0, struct.pack(">I", len(value)) + content)
        case dict():
            content = b"".join(encode(key) + encode(item) for key, item in value.items())
            return _sized(0xD1, struct.pack(">I", 2 * len(value)) + content)
    raise TypeError(f"no AMQP type for {type(value).__name__}")


def _sized(code: int, content: bytes) -> bytes:
    return struct.pack(">BI", code, len(content)) + content


def _decode_as(code: int, data: bytes, at: int) -> tuple[Any, int]:
    if code in _EMPTY:
        return _EMPTY[code](), at
    if code in _FIXED:
        kind, layout = _FIXED[code]
        return kind(layout.unpack_from(data, at)[0]), at + layout.size
    if code == 0:
        descriptor, at = decode(data, at)
        value, at = decode(data, at)
        return Described(descriptor, value), at
    if code == _UUID:
        return UUID(bytes=data[at : at + 16]), at + 16
    return _decode_sized(code, data, at)


def _decode_sized(code: int, data: bytes, at: int) -> tuple[Any, int]:
    wide = bool(code & _WIDE)
    narrow_code = code & ~_WIDE
    size, at = _decode_length(data, at, wide=wide)
    end = at + size
    if end > len(data):
        raise DecodeError(f"value of {size} bytes at byte {at} is cut short")
    if narrow_code in _VARIABLE:
        return _VARIABLE[narrow_code](data[at:end]), end
    if narrow_code not in (_LIST, _MAP, _ARRAY):
        raise DecodeError(f"AMQP type 0x{code:02x} is not supported")
    count, at = _decode_length(data, at, wide=wide)
    if narrow_code == _ARRAY:
        return _decode_array(count, data, at), end
    members = []
    for _ in range(count):
        member, at = decode(data, at)
        members.append(member)
    if narrow_code == _MAP:
        return dict(zip(members[::2], members[1::2], strict=True)), end
    return members, end


def _decode_length(data: bytes, at: int, *, wide: bool) -> tuple[int, int]:
    if wide:
        return struct.unpack_from(">I", data, at)[0], at + 4
    return data[at], at + 1


def _decode_array(count: int, data: bytes, at: int) -> Array:
    members = Array()
    constructor, at = data[at], at + 1
    for _ in range(count):
        member, at = _decode_as(constructor, data, at)
        members.append(member)
    return members
