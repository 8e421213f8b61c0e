"""Approval commands: what arrived on the wire becomes a `Command`, or `Malformed` with the reason.

Never raises on any bytes. Attributes beyond those used here are tolerated, as CloudEvents asks;
keys in `data` are not, because a misspelt `expect` would silently drop a guard.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from bridge.core.strict_json import NotJson, decode_object

COMMAND_TYPE = "io.sebridge.approve.v1"
OVERRIDES = frozenset({"leader", "in-doubt", "history"})
REQUIRED_ATTRIBUTES = ("specversion", "id", "source", "type")
NAME_CHARS_MAX = 512
REASON_CHARS_MAX = 1024
# Section 5.6; without it Python would take every form of ISO 8601, weeks included.
RFC_3339 = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)

_DATA_KEYS = frozenset({"eventId", "vm", "expect", "token", "reason", "override"})
_EXPECT_KEYS = frozenset({"eventType", "resources"})


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A command as a transport hands it over, before anybody has looked inside."""

    payload: bytes
    content_type: str = ""
    attributes: tuple[tuple[str, str], ...] = ()  # binary mode: in order, repeats kept
    retained: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    source: str
    key: str  # idempotency key
    fingerprint: str  # SHA-256 of `data`: tells "again" from "key reused"
    event_id: str
    time: datetime | None = None
    expires_at: datetime | None = None
    vm: str = ""
    expect_type: str | None = None
    expect_resources: tuple[str, ...] | None = None
    token: str | None = None
    reason: str = ""
    override: frozenset[str] = frozenset()


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are no command, with as much of the sender's name as could be read."""

    detail: str
    key: str  # of the raw bytes: the same rubbish gets the same answer
    id: str = ""
    source: str = ""


class _Bad(ValueError):
    pass


def decode(wire: Wire, *, bytes_max: int) -> Command | Malformed:
    attributes: Mapping[str, Any] = {}
    try:
        attributes, data = _split(wire, bytes_max)
        return _command(attributes, data)
    except (_Bad, NotJson) as error:
        return Malformed(
            detail=str(error),
            key=wire_key("malformed", wire),
            id=_readable(attributes.get("id")),
            source=_readable(attributes.get("source")),
        )


def wire_key(why: str, wire: Wire) -> str:
    """A key for something that has no key of its own to trust."""
    digest = hashlib.sha256(wire.payload)
    for name, value in wire.attributes:
        digest.update(f"\0{name}={value}".encode(errors="replace"))
    return f"{why}:{digest.hexdigest()}"


def fingerprint(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()


def _split(wire: Wire, bytes_max: int) -> tuple[Mapping[str, Any], Any]:
    """Attributes and data, whichever of the two content modes they came in."""
    if _is_binary(wire):
        attributes = _unique(wire.attributes)
        content_type = wire.content_type or str(attributes.get("datacontenttype", ""))
        _require_json(content_type)
        return attributes, decode_object(wire.payload, bytes_max=bytes_max)
    fields = decode_object(wire.payload, bytes_max=bytes_max)
    if "data_base64" in fields:
        raise _Bad("data_base64 is not used here: send the command as JSON in data")
    _require_json(fields.get("datacontenttype") or "")
    return fields, fields.get("data")


def _is_binary(wire: Wire) -> bool:
    if wire.content_type.casefold().startswith("application/cloudevents"):
        return False
    names = {name for name, _ in wire.attributes}
    return names.issuperset(REQUIRED_ATTRIBUTES)


def _unique(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """MQTT lets a user property repeat; a CloudEvents attribute must not."""
    attributes = dict(pairs)
    if len(attributes) != len(pairs):
        raise _Bad("a user property stands there twice")
    return attributes


def _require_json(content_type: object) -> None:
    media_type = str(content_type).partition(";")[0].strip().casefold()
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise _Bad(f"datacontenttype {media_type!r} is not JSON")


def _command(attributes: Mapping[str, Any], data: Any) -> Command:
    if attributes.get("specversion") != "1.0":
        raise _Bad("specversion is not '1.0'")
    if attributes.get("type") != COMMAND_TYPE:
        raise _Bad(f"type is not {COMMAND_TYPE!r}")
    identifier, source = _name(attributes, "id"), _name(attributes, "source")
    if not isinstance(data, dict):
        raise _Bad("data is not an object")
    _refuse_unknown(data, _DATA_KEYS, "data")
    expect = {} if data.get("expect") is None else data["expect"]
    if not isinstance(expect, dict):
        raise _Bad("data.expect is not an object")
    _refuse_unknown(expect, _EXPECT_KEYS, "data.expect")
    return Command(
        id=identifier,
        source=source,
        key=_optional_name(attributes, "idempotencykey") or f"{source}#{identifier}",
        fingerprint=fingerprint(data),
        event_id=_name(data, "eventId", "data."),
        time=_moment(attributes, "time"),
        expires_at=_moment(attributes, "expirytime"),
        vm=_optional_name(data, "vm", "data.") or "",
        expect_type=_optional_name(expect, "eventType", "data.expect."),
        expect_resources=_names(expect, "resources", "data.expect."),
        token=_optional_name(data, "token", "data."),
        reason=_reason(data),
        override=_override(data),
    )


def _refuse_unknown(fields: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    for key in fields:
        if key not in known:
            raise _Bad(f"{place}.{_readable(key)} is not a known key")


def _name(fields: Mapping[str, Any], key: str, place: str = "") -> str:
    value = _optional_name(fields, key, place)
    if not value:
        raise _Bad(f"{place}{key} is missing")
    return value


def _optional_name(fields: Mapping[str, Any], key: str, place: str = "") -> str | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > NAME_CHARS_MAX or not value.isprintable():
        raise _Bad(f"{place}{key} is not a plain string of at most {NAME_CHARS_MAX} characters")
    return value


def _names(fields: Mapping[str, Any], key: str, place: str) -> tuple[str, ...] | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _Bad(f"{place}{key} is not a list of strings")
    return tuple(value)


def _moment(fields: Mapping[str, Any], key: str) -> datetime | None:
    value = _optional_name(fields, key)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        utc = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _Bad(f"{key} is not an RFC 3339 time") from error
    if moment.tzinfo is None:
        raise _Bad(f"{key} has no time zone")
    if not re.fullmatch(RFC_3339, value):
        raise _Bad(f"{key} is not an RFC 3339 time")
    return utc


def _reason(data: Mapping[str, Any]) -> str:
    value = data.get("reason")
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > REASON_CHARS_MAX:
        raise _Bad(f"data.reason is not a string of at most {REASON_CHARS_MAX} characters")
    return value


def _override(data: Mapping[str, Any]) -> frozenset[str]:
    names = _names(data, "override", "data.") or ()
    for name in names:
        if name not in OVERRIDES:
            known = ", ".join(sorted(OVERRIDES))
            raise _Bad(f"data.override {_readable(name)!r} is none of {known}")
    return frozenset(names)


def _readable(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(c for c in text[:NAME_CHARS_MAX] if c.isprintable())
