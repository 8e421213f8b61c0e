"""JSON from outside, read strictly: one object, no duplicate keys, UTF-8 only, bounded size.

The usual decoders take the last of two equal keys without a word, so a command could show one
EventId to a reviewer and another to us. Never raises but `NotJson`, and stays within 5 ms for
64 KiB of anything: msgspec needs ten times that for numbers near the largest float, so its
decoder is not used here.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any, NoReturn

import msgspec

# SQLite's integers end here, and nothing that Azure counts comes near.
INTEGER_MAX = 2**63 - 1
_INTEGER_CHARS_MAX = len(str(-INTEGER_MAX))
# Azure's documents are four levels deep. What nests further could be read here and then fail
# when it is written again, further down the stack.
DEPTH_MAX = 64
# Names alone make a document far thinner than this. What is denser is made to keep us busy: it
# costs ten times as much as text of the same length.
BYTES_PER_VALUE_MIN = 6
VALUES_ALWAYS_ALLOWED = 1000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class NotJson(ValueError):
    """The bytes are not an acceptable JSON object; the message says why."""


def decode_object(raw: bytes, *, bytes_max: int, values_max: int | None = None) -> dict[str, Any]:
    """Decode one JSON object or raise `NotJson`."""
    if len(raw) > bytes_max:
        raise NotJson(f"{len(raw)} bytes, more than the {bytes_max} allowed")
    if raw.startswith(_BYTE_ORDER_MARK):
        raise NotJson("malformed JSON: it begins with a byte order mark (BOM)")
    # Before any parsing, so commas and brackets within strings count, too.
    brackets = raw.count(b"[") + raw.count(b"{")
    values = raw.count(b",") + brackets
    if values > (values_max or max(VALUES_ALWAYS_ALLOWED, len(raw) // BYTES_PER_VALUE_MIN)):
        raise NotJson(f"{values} values in {len(raw)} bytes: too dense to be worth reading")
    try:
        text = raw.decode()
        value = _decoder.decode(text)
        if _SURROGATE_ESCAPE.search(text):
            msgspec.json.encode(value)  # a lone one cannot be written again
    except NotJson:
        raise
    except (ValueError, RecursionError) as error:
        raise NotJson(f"malformed JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotJson(f"expected an object, got {type(value).__name__}")
    if brackets > DEPTH_MAX:
        _refuse_depth(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise NotJson(f"duplicate key {name[:64]!r}")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"malformed JSON: {name} is no JSON number")


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= _INTEGER_CHARS_MAX else INTEGER_MAX + 1
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise NotJson("a number is out of range")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise NotJson("a number is out of range")
    return value


# json.loads() would build one for every text, which costs more than a command takes to read.
_decoder = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_refuse_constant,
)


def _refuse_depth(value: dict[str, Any]) -> None:
    """Level by level, in steps that run in C: a hostile value has tens of thousands of parts."""
    containers: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        parts = chain.from_iterable(map(_parts, containers))
        containers = [part for part in parts if type(part) is dict or type(part) is list]
        if not containers:
            return
    raise NotJson(f"nested deeper than {DEPTH_MAX} levels")


def _parts(container: Any) -> Iterable[Any]:
    return container.values() if type(container) is dict else container
