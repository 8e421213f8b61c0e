"""JSON from outside, read strictly: one object, no duplicate keys, UTF-8 only, bounded size.

Both msgspec and the standard library take the last of two equal keys without a word, so a
command could show one EventId to a reviewer and another to us. Never raises but `NotJson`.
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

# SQLite's integers end here, and nothing that Azure counts comes near.
INTEGER_MAX = 2**63 - 1
# Azure's documents are four levels deep. What nests further could be read here and then fail
# when it is written again, further down the stack.
DEPTH_MAX = 64


class NotJson(ValueError):
    """The bytes are not an acceptable JSON object; the message says why."""


def decode_object(raw: bytes, *, bytes_max: int) -> dict[str, Any]:
    """Decode one JSON object or raise `NotJson`."""
    if len(raw) > bytes_max:
        raise NotJson(f"{len(raw)} bytes, more than the {bytes_max} allowed")
    try:
        # msgspec refuses NaN, BOMs, lone surrogates and invalid UTF-8; json sees the pairs.
        value = msgspec.json.decode(raw)
        json.loads(raw, object_pairs_hook=_refuse_duplicates)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotJson(str(error) or type(error).__name__) from error
    if not isinstance(value, dict):
        raise NotJson(f"expected an object, got {type(value).__name__}")
    _refuse_extremes(value)
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise NotJson(f"duplicate key {key[:64]!r}")
        seen.add(key)


def _refuse_extremes(value: dict[str, Any]) -> None:
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        if any(isinstance(item, int) and abs(item) > INTEGER_MAX for item in level):
            raise NotJson("a number is out of range")
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise NotJson(f"nested deeper than {DEPTH_MAX} levels")


def _parts(item: object) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()
