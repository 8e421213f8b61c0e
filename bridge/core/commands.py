"""Approval commands: what arrived on the wire becomes a `Command`, or `Malformed` with the reason.

Never raises on any bytes. Attributes beyond those used here are tolerated, as CloudEvents asks;
keys in `data` are not, because a misspelt `expect` would silently drop a guard.

Reading has two halves, so that a signature can be checked between them: `split` finds attributes
and data, `read` makes a command of exactly the bytes it is given.
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
# A dozen attributes, and the names of a few hundred VMs.
_VALUES_MAX = 2000
# Keys of this program's own: a sender must not be able to use them up.
_RESERVED_KEYS = ("auto:", "malformed:", "retained:", "bad-signature:", "wrong-vm:", "key-reused:")
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A command as a transport hands it over, before anybody has looked inside."""

    payload: bytes
    content_type: str = ""
    attributes: tuple[tuple[str, str], ...] = ()  # binary mode: in order, repeats kept
    retained: bool = False


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes and data of a CloudEvent, whichever of the two content modes they came in."""

    attributes: Mapping[str, Any]
    data: bytes  # as it stands in the message
    signed_by: str = ""  # id of the key, once its signature was found good


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
    signed_by: str = ""  # id of the key; "" where signatures are not asked for


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are no command, with as much of the sender's name as could be read."""

    detail: str
    key: str  # of the raw bytes: the same rubbish gets the same answer
    id: str = ""
    source: str = ""


class _Bad(ValueError):
    pass


def decode(wire: Wire, *, bytes_max: int) -> Command | Malformed:
    """Both halves at once, where no signature is asked for."""
    parts = split(wire, bytes_max=bytes_max)
    return parts if isinstance(parts, Malformed) else read(parts, wire)


def split(wire: Wire, *, bytes_max: int) -> Parts | Malformed:
    """Size, UTF-8, strict JSON and content type; nothing is believed yet."""
    parts = Parts(attributes={}, data=b"")
    try:
        parts = _binary(wire, bytes_max) if is_binary(wire) else _structured(wire, bytes_max)
        _check_content(parts)
    except (_Bad, NotJson) as error:
        return unread(str(error), "malformed", parts, wire)
    return parts


def read(parts: Parts, wire: Wire) -> Command | Malformed:
    try:
        return _command(parts)
    except (_Bad, NotJson) as error:
        return unread(str(error), "malformed", parts, wire)


def unread(detail: str, why: str, parts: Parts, wire: Wire) -> Malformed:
    """A refusal that uses up no key but one made of the raw bytes."""
    return Malformed(
        detail=detail[:NAME_CHARS_MAX],
        key=wire_key(why, wire),
        id=_readable(parts.attributes.get("id")),
        source=_readable(parts.attributes.get("source")),
    )


def wire_key(why: str, wire: Wire) -> str:
    """A key for something that has no key of its own to trust."""
    digest = hashlib.sha256(wire.payload)
    for name, value in wire.attributes:
        digest.update(f"\0{name}={value}".encode(errors="replace"))
    return f"{why}:{digest.hexdigest()}"


def reused_key(command: Command) -> str:
    """For the refusal of a key that is another command's: the same two again get it again."""
    claimed = f"{command.key}\0{command.fingerprint}"  # no key can hold a NUL: see _optional_name
    return f"key-reused:{hashlib.sha256(claimed.encode()).hexdigest()}"


def fingerprint(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()


def moment(text: str) -> datetime | None:
    """An RFC 3339 time in UTC, or None."""
    if not re.fullmatch(RFC_3339, text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _binary(wire: Wire, bytes_max: int) -> Parts:
    attributes = _unique(wire.attributes)
    if wire.content_type:
        attributes["datacontenttype"] = wire.content_type
    decode_object(wire.payload, bytes_max=bytes_max, values_max=_VALUES_MAX)
    return Parts(attributes=attributes, data=wire.payload)


def _structured(wire: Wire, bytes_max: int) -> Parts:
    fields = decode_object(wire.payload, bytes_max=bytes_max, values_max=_VALUES_MAX)
    has_data = fields.pop("data", None) is not None
    data = bytes(_raw_fields.decode(wire.payload)["data"]) if has_data else b""
    return Parts(attributes=fields, data=data)


def _check_content(parts: Parts) -> None:
    if "data_base64" in parts.attributes:
        raise _Bad("data_base64 is not used here: send the command as JSON in data")
    _require_json(parts.attributes.get("datacontenttype") or "")
    if not parts.data.lstrip().startswith(b"{"):
        raise _Bad("data is not an object")


def is_binary(wire: Wire) -> bool:
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


def _command(parts: Parts) -> Command:
    attributes = parts.attributes
    if attributes.get("specversion") != "1.0":
        raise _Bad("specversion is not '1.0'")
    if attributes.get("type") != COMMAND_TYPE:
        raise _Bad(f"type is not {COMMAND_TYPE!r}")
    identifier, source = _name(attributes, "id"), _name(attributes, "source")
    data = decode_object(parts.data, bytes_max=len(parts.data), values_max=_VALUES_MAX)
    _refuse_unknown(data, _DATA_KEYS, "data")
    expect = {} if data.get("expect") is None else data["expect"]
    if not isinstance(expect, dict):
        raise _Bad("data.expect is not an object")
    _refuse_unknown(expect, _EXPECT_KEYS, "data.expect")
    return Command(
        id=identifier,
        source=source,
        key=_key(attributes, source, identifier),
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
        signed_by=parts.signed_by,
    )


def _key(attributes: Mapping[str, Any], source: str, identifier: str) -> str:
    key = _optional_name(attributes, "idempotencykey") or f"{source}#{identifier}"
    if key.startswith(_RESERVED_KEYS):
        raise _Bad(f"idempotencykey must not begin with {key.partition(':')[0]}:")
    return key


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
    parsed = moment(value)
    if parsed is None:
        raise _Bad(f"{key} is not an RFC 3339 time with a time zone")
    return parsed


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
