"""The canonical form of a signed command: CloudEvents' verifiability extension over DSSE 1.0.2.

`dssematerial` holds a DSSE envelope. Its payload is a small JSON object of two digests: `core` over
the context attributes and the data, `ext` over the extension attributes that it lists. A signature
covers the payload; comparing the digests with the message binds the message to it. What comes out
of `covered` is only what was signed, as it was signed, so nothing else can be acted on.

Never raises on any bytes. Checking and making signatures is bridge/signatures.py's business.
Spec: cloudevents/spec, cloudevents/extensions/verifiability.md; DSSE protocol.md and envelope.md.
"""

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from bridge.core.commands import Parts, moment
from bridge.core.strict_json import NotJson, decode_object

ATTRIBUTE = "dssematerial"
PAYLOAD_TYPE = "https://cloudevents.io/verifiability/dsse/v0.1"
# The order is the specification's.
CORE = ("id", "source", "specversion", "type", "datacontenttype", "dataschema", "subject", "time")
# Extension attributes that decide about a command; they must be signed.
EXTENSIONS = ("expirytime", "idempotencykey")
# JSON and MQTT do not tell a Timestamp from a String, so the names do.
_TIMESTAMPS = frozenset({"time", "expirytime", "recordedtime"})
_MATERIAL_CHARS_MAX = 16_384
_SIGNATURES_MAX = 8


class Signature(msgspec.Struct, frozen=True):
    key_id: str  # a hint, not itself signed
    signature: bytes


class Envelope(msgspec.Struct, frozen=True):
    payload: bytes
    signatures: tuple[Signature, ...]


class Unverified(msgspec.Struct, frozen=True):
    """Why a message cannot be believed."""

    detail: str


class _Bad(ValueError):
    pass


def pae(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are really signed."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def statement(parts: Parts, extensions: Sequence[str]) -> bytes:
    """The payload that a sender signs. Raises ValueError for what cannot be signed."""
    _check_names(extensions)
    fields: dict[str, Any] = {"core": b64encode(_core_digest(parts)).decode()}
    if extensions:
        fields["ext"] = b64encode(_extensions_digest(parts.attributes, extensions)).decode()
        fields["signedextattrs"] = list(extensions)
    return msgspec.json.encode(fields)


def seal(envelope: Envelope) -> str:
    """The value of `dssematerial`."""
    fields = {
        "payload": b64encode(envelope.payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": each.key_id, "sig": b64encode(each.signature).decode()}
            for each in envelope.signatures
        ],
    }
    return b64encode(msgspec.json.encode(fields)).decode()


def unseal(attributes: Mapping[str, Any]) -> Envelope | Unverified:
    material = attributes.get(ATTRIBUTE)
    if not material:
        return Unverified("the command is not signed")
    try:
        return _envelope(material)
    except (_Bad, NotJson) as error:
        return Unverified(f"{ATTRIBUTE}: {error}")


def covered(parts: Parts, payload: bytes) -> Parts | Unverified:
    """The message, cut down to what a payload with a good signature covers."""
    try:
        return _compare(parts, decode_object(payload, bytes_max=_MATERIAL_CHARS_MAX))
    except (_Bad, NotJson) as error:
        return Unverified(f"{ATTRIBUTE}: {error}")


def whole_seconds(value: str) -> str:
    """A timestamp as it is hashed; raises ValueError for what is none."""
    parsed = moment(value)
    if parsed is None:
        raise _Bad("a timestamp is not an RFC 3339 time with a time zone")
    return parsed.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _compare(parts: Parts, signed: Mapping[str, Any]) -> Parts:
    extensions = signed.get("signedextattrs")
    if (extensions is None) != (signed.get("ext") is None):
        raise _Bad("ext and signedextattrs go together")
    _check_names(names := extensions or ())
    if not hmac.compare_digest(_digest_of(signed.get("core")), _core_digest(parts)):
        raise _Bad("the command was changed after it was signed")
    for name in EXTENSIONS:
        if name not in names and not _is_empty(parts.attributes.get(name)):
            raise _Bad(f"{name} is not signed")
    if extensions is not None:
        found = _extensions_digest(parts.attributes, names)
        if not hmac.compare_digest(_digest_of(signed["ext"]), found):
            raise _Bad("an extension attribute was changed after it was signed")
    attributes = {
        name: _text(name, value)
        for name in (*CORE, *names)
        if not _is_empty(value := parts.attributes.get(name))
    }
    return Parts(attributes=attributes, data=parts.data)


def _core_digest(parts: Parts) -> bytes:
    digests = [_attribute_digest(parts.attributes, name) for name in CORE]
    return sha256(b"".join([*digests, sha256(parts.data).digest()])).digest()


def _extensions_digest(attributes: Mapping[str, Any], names: Sequence[str]) -> bytes:
    return sha256(b"".join(_attribute_digest(attributes, name) for name in names)).digest()


def _attribute_digest(attributes: Mapping[str, Any], name: str) -> bytes:
    return sha256(_text(name, attributes.get(name)).encode()).digest()


def _text(name: str, value: object) -> str:
    """CloudEvents' canonical string encoding. Absent and empty look the same, by the spec."""
    if value is None or isinstance(value, str):
        text = value or ""
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise _Bad(f"{name[:64]!r} is not valid text")
        return whole_seconds(text) if text and name in _TIMESTAMPS else text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise _Bad(f"{name[:64]!r} has a value that no attribute can have")


def _is_empty(value: object) -> bool:
    return value is None or value == ""


def _check_names(names: object) -> None:
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise _Bad("signedextattrs is not a list of names")
    if len(set(names)) != len(names) or not {*CORE, ATTRIBUTE}.isdisjoint(names):
        raise _Bad("signedextattrs repeats a name, or lists one that is no extension")


def _digest_of(value: object) -> bytes:
    digest = _base64(value)
    if len(digest) != sha256().digest_size:
        raise _Bad("a digest has the wrong length")
    return digest


def _envelope(material: object) -> Envelope:
    fields = decode_object(_base64(material), bytes_max=_MATERIAL_CHARS_MAX)
    if fields.get("payloadType") != PAYLOAD_TYPE:
        raise _Bad(f"payloadType is not {PAYLOAD_TYPE}")
    signatures = fields.get("signatures")
    if not isinstance(signatures, list) or not 0 < len(signatures) <= _SIGNATURES_MAX:
        raise _Bad(f"signatures is not a list of 1 to {_SIGNATURES_MAX}")
    return Envelope(_base64(fields.get("payload")), tuple(map(_signature, signatures)))


def _signature(value: object) -> Signature:
    if not isinstance(value, dict) or not isinstance(value.get("keyid"), str):
        raise _Bad("a signature has no keyid")
    return Signature(value["keyid"], _base64(value.get("sig")))


def _base64(value: object) -> bytes:
    """Standard or URL-safe: DSSE allows both."""
    if not isinstance(value, str) or len(value) > _MATERIAL_CHARS_MAX:
        raise _Bad(f"not base64 of at most {_MATERIAL_CHARS_MAX} characters")
    try:
        return b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Bad(f"not base64: {error}") from error
