"""Events that azure-eventhub cannot decode lose their content, and keep their place in the hub.

AMQP allows what the client library does not know: a char, a list as a map's key, any depth. It
raises out of its receive loop then, before anybody sees the event; the connection ends, and so
does every later one, because the position never gets behind that event. It also believes every
count, and makes room for four billion values that ten bytes announce. Whoever may send to a hub
could stop all its readers that way. So what the service wrote on such an event is read alone.
"""

import contextlib
import struct
from collections.abc import Callable
from typing import Any

Decode = Callable[[memoryview], Any]

# AMQP 1.0, part 1, section 1.2.3: the upper half of a constructor tells how wide the value is.
_FIXED_BYTES = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZED_BY_ONE_BYTE = (0xA, 0xC, 0xE)
_TEXTS, _LISTS_AND_MAPS, _ARRAYS = (0xA, 0xB), (0xC, 0xD), (0xE, 0xF)
_DESCRIBED, _MAP32 = 0x00, 0xD1
# The bytes in front of a section: described, small ulong, and which section it is.
_SECTION = struct.Struct("BBB")
_MESSAGE_ANNOTATIONS = 0x72
_OF_THE_SERVICE = (b"offset", b"sequence-number", b"enqueued-time", b"partition-key")


def install() -> None:
    """Into the library's receiver; it has no hook for this. Without that name all is as before."""
    with contextlib.suppress(ImportError, AttributeError):
        from azure.eventhub._pyamqp.aio import _receiver_async  # noqa: PLC0415

        receiver: Any = _receiver_async
        if receiver.decode_payload.__module__ != __name__:
            receiver.decode_payload = tolerant(receiver.decode_payload)


def tolerant(decode: Decode) -> Decode:
    def decode_all_or_annotations(payload: memoryview) -> Any:
        try:
            _check_counts(payload)
            return decode(payload)
        except Exception:  # noqa: BLE001 - whatever a stranger wrote, the other events count
            return decode(memoryview(_annotations(payload)))

    return decode_all_or_annotations


def _annotations(payload: memoryview) -> bytes:
    """A message of nothing but the annotations that the service writes, in front of the rest."""
    at = 0
    while _SECTION.unpack_from(payload, at)[2] != _MESSAGE_ANNOTATIONS:
        at = _end(payload, at)
    head, end = bytes(payload[at : at + _SECTION.size]), _end(payload, at)
    at += _SECTION.size
    at += 9 if payload[at] == _MAP32 else 3  # constructor, size and count of the map
    kept: list[bytes] = []
    while at < end:
        value_at = _end(payload, at)
        key, next_at = bytes(payload[at:value_at]), _end(payload, value_at)
        if key.partition(b"x-opt-")[2] in _OF_THE_SERVICE:
            kept.append(bytes(payload[at:next_at]))
        at = next_at
    pairs = b"".join(kept)
    return head + struct.pack(">BII", _MAP32, len(pairs) + 4, 2 * len(kept)) + pairs


def _end(payload: memoryview, at: int) -> int:
    """Where the value that begins at `at` is over; nothing of it is decoded."""
    if payload[at] == _DESCRIBED:
        return _end(payload, _end(payload, at + 1))
    width = payload[at] >> 4
    if width in _FIXED_BYTES:
        return at + 1 + _FIXED_BYTES[width]
    if width in _SIZED_BY_ONE_BYTE:
        return at + 2 + payload[at + 1]
    return at + 5 + int.from_bytes(payload[at + 1 : at + 5])


def _check_counts(payload: memoryview) -> None:
    """Value after value, as the library reads them, whichever list or map they are in."""
    at = 0
    while at < len(payload):
        width = payload[at] >> 4
        if payload[at] == _DESCRIBED:
            at += 1
        elif width in _LISTS_AND_MAPS:
            _, at = _count(payload, at)
        elif width in _ARRAYS:
            at = _array_end(payload, *_count(payload, at))
        else:
            at = _end(payload, at)


def _count(payload: memoryview, at: int) -> tuple[int, int]:
    """How many values a compound one has, and where they begin. Each takes a byte at least."""
    wide = payload[at] >> 4 not in _SIZED_BY_ONE_BYTE
    count = int.from_bytes(payload[at + 5 : at + 9]) if wide else payload[at + 2]
    if count > len(payload):
        raise ValueError(f"{count} values in {len(payload)} bytes")
    return count, at + (9 if wide else 3)


def _array_end(payload: memoryview, count: int, at: int) -> int:
    """Its values share one constructor. Arrays of nothing, or of lists, are nobody's command."""
    if count == 0:
        return at
    width, at = payload[at] >> 4, at + 1
    if width in _TEXTS:
        for _ in range(count):
            wide = width not in _SIZED_BY_ONE_BYTE
            at += 4 + int.from_bytes(payload[at : at + 4]) if wide else 1 + payload[at]
        return at
    return at + count * {w: size for w, size in _FIXED_BYTES.items() if size}[width]
