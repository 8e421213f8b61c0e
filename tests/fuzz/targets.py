"""Every decoder that meets bytes from outside, with seeds and with what it may and may not do.

A target returns True if the input was taken, False if it was refused in the way that is promised.
Anything else, an exception above all, is a finding.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paho.mqtt.client import MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge import configfile, signatures
from bridge.config import Mqtt
from bridge.core import commands, document, signing, topics
from bridge.core.commands import Command, Malformed, Parts, Wire
from bridge.core.signing import Envelope, Signature, Unverified
from bridge.errors import ConfigError
from bridge.log import JsonFormatter, TextFormatter
from bridge.mqtt_client import PatientClient
from bridge.transports import Incoming
from bridge.transports.mqtt import MqttTransport
from tests.builders import EVENT_ID, NOW, VM_NAME, command_fields
from tests.fuzz.mutator import bombs

ROOT = "sebridge/v1/group/web_3"
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
_VERIFIER = signatures.Verifier({signatures.key_id(_KEY.public_key()): _KEY.public_key()})


@dataclass(frozen=True)
class Target:
    seeds: tuple[bytes, ...]
    bombs: tuple[bytes, ...]
    run: Callable[[bytes], bool]
    share: int  # of a hundred cases


class Finding(AssertionError):
    """A decoder did what it promised not to do."""


def expect(fact: bool, what: str) -> None:
    if not fact:
        raise Finding(what)


def _command_seeds() -> tuple[bytes, ...]:
    data = {
        "vm": VM_NAME,
        "expect": {"eventType": "Terminate", "resources": [VM_NAME, "web_4"]},
        "token": "dG9rZW4",
        "reason": "drained, <b>all</b> of it",
        "override": ["leader"],
    }
    full = command_fields(
        data,
        time=NOW.isoformat(),
        expirytime=(NOW + timedelta(minutes=10)).isoformat(),
        idempotencykey="chg-4711",
        datacontenttype="application/json",
    )
    short = command_fields()
    plain = msgspec.json.encode(full)
    pretty = msgspec.json.format(plain, indent=2)
    return plain, msgspec.json.encode(short), pretty, signatures.sign(plain, _KEY)


COMMANDS = _command_seeds()
_ORIGINAL = commands.decode(Wire(payload=COMMANDS[0]), bytes_max=65_536)
_SIGNED_PARTS = commands.split(Wire(payload=COMMANDS[3]), bytes_max=65_536)


def structured_command(raw: bytes) -> bool:
    return isinstance(_decode(Wire(payload=raw)), Command)


def _decode(wire: Wire) -> Command | Malformed:
    found = commands.decode(wire, bytes_max=65_536)
    if isinstance(found, Command):
        names = (found.id, found.source, found.key, found.event_id, found.vm)
        expect(all(name.isprintable() for name in names), "a name holds control characters")
        expect(bool(found.event_id and found.key), "a command without event or key")
        msgspec.json.encode(found)
    else:
        expect(found.id.isprintable() and found.source.isprintable(), "unprintable sender")
        expect(found.detail.isprintable() and len(found.detail) <= 512, "an unfit reason")
    return found


def signed_command(raw: bytes) -> bool:
    """Whatever still verifies means exactly what was signed."""
    wire = Wire(payload=raw)
    parts = commands.split(wire, bytes_max=65_536)
    if isinstance(parts, Malformed):
        return False
    verified = _VERIFIER.verify(parts)
    if isinstance(verified, Unverified):
        return False
    found = commands.read(verified, wire)
    expect(isinstance(found, Command) and isinstance(_ORIGINAL, Command), "signed, but no command")
    assert isinstance(found, Command)
    assert isinstance(_ORIGINAL, Command)
    expect(
        msgspec.structs.replace(found, signed_by="") == _ORIGINAL, "a forged command was believed"
    )
    return True


def signed_payload(raw: bytes) -> bool:
    """Any payload, honestly signed by a trusted key that has gone mad."""
    assert isinstance(_SIGNED_PARTS, Parts)
    signature = Signature(signatures.key_id(_KEY.public_key()), _KEY.sign(signing.pae(raw)))
    material = signing.seal(Envelope(raw, (signature,)))
    attributes = {**_SIGNED_PARTS.attributes, signing.ATTRIBUTE: material}
    found = _VERIFIER.verify(Parts(attributes=attributes, data=_SIGNED_PARTS.data))
    return isinstance(found, Parts)


def envelope(raw: bytes) -> bool:
    text = raw.decode("latin-1")
    return isinstance(signing.unseal({signing.ATTRIBUTE: text}), Envelope)


def imds_document(raw: bytes) -> bool:
    try:
        found = document.decode(raw)
    except document.MalformedDocument as error:
        str(error).encode()
        return False
    for scheduled_event in found.scheduled_events:
        topic = topics.pending(ROOT, scheduled_event.event_id)
        expect(topic.count("/") == ROOT.count("/") + 2, "an EventId changes the topic's levels")
        expect(not set("+#\0\n") & set(topic), "an EventId makes a wildcard")
        msgspec.json.encode(scheduled_event.raw)
        scheduled_event.names(VM_NAME)
    return True


class _Link:
    """The part of a connection that taking a command needs."""

    def ack(self, _: MQTTMessage) -> None:
        return

    def drop(self, why: str) -> None:
        raise Finding(why)


_TRANSPORT = MqttTransport(Mqtt(), root=ROOT, client_id="c", will=lambda: b"", pending=lambda: ())


def _property_seeds() -> tuple[bytes, ...]:
    fields = msgspec.json.decode(COMMANDS[3])
    data = msgspec.json.encode(fields.pop("data"))
    seeds = []
    for content_type in ("application/json", "application/cloudevents+json; charset=utf-8", ""):
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = list(fields.items())
        properties.ResponseTopic = "sebridge/replies/ops"
        properties.CorrelationData = b"\0\1"
        if content_type:
            properties.ContentType = content_type
        seeds.append(properties.pack() + (COMMANDS[0] if "cloud" in content_type else data))
    return tuple(seeds)


_CLIENT = PatientClient(
    CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True
)
_CLIENT.on_message = lambda _client, _data, message: _TRANSPORT._take(_Link(), message)  # type: ignore[arg-type]
_PUBLISH_QOS_1 = 0x32
_TOPIC = f"{ROOT}/commands".encode()
_HEAD = len(_TOPIC).to_bytes(2, "big") + _TOPIC + b"\0\7"


def mqtt_publish(raw: bytes) -> bool:
    """Properties and payload of a PUBLISH, through the client library and our transport."""
    _CLIENT._in_packet = {
        **_CLIENT._in_packet,
        "command": _PUBLISH_QOS_1,
        "packet": bytearray(_HEAD + raw),
    }
    expect(_CLIENT._handle_publish() == MQTTErrorCode.MQTT_ERR_SUCCESS, "thrown out by a message")
    incoming: Incoming = _TRANSPORT._queue.get_nowait()
    reply = incoming.reply_topic
    expect(not reply or reply.startswith("sebridge/"), "a reply outside the allowed prefix")
    expect(not set("+#\0\n") & set(reply), "a reply topic with a wildcard")
    expect(not reply.endswith("/commands"), "a reply that is a command")
    commands.wire_key("malformed", incoming.wire)
    return isinstance(_decode(incoming.wire), Command)


def mqtt_packet(raw: bytes) -> bool:
    """A whole PUBLISH from a broker gone mad: taken, or refused as paho refuses packets."""
    _CLIENT._in_packet = {
        **_CLIENT._in_packet,
        "command": 0x30 | raw[0] & 0x0F if raw else 0x30,
        "packet": bytearray(raw[1:]),
    }
    try:
        _CLIENT._handle_publish()
    except MalformedPacket:
        return False
    return not _TRANSPORT._queue.empty() and bool(_TRANSPORT._queue.get_nowait())


CONFIGURATION = (Path(__file__).parents[2] / "config" / "bridge.example.toml").read_bytes()


def configuration(raw: bytes) -> bool:
    try:
        fields = configfile.parse(raw, "fuzz.toml")
        configfile.build(fields, "fuzz.toml", {})
    except ConfigError as error:
        expect("fuzz.toml" in str(error), "an error without its place")
        return False
    return True


def log_line(raw: bytes) -> bool:
    """Whatever is logged stays on its line."""
    text = raw.decode("utf-8", "surrogateescape" if raw[:1] == b"\xff" else "replace")
    record = logging.LogRecord("sebridge.x", logging.INFO, "f", 1, "%s", (text,), None)
    record.detail = text
    for formatter in (JsonFormatter(), TextFormatter()):
        line = formatter.format(record)
        expect(len(line.splitlines()) == 1, "a value breaks out of its line")
        expect("\x1b" not in line, "a value speaks to the terminal")
    return True


def topic(raw: bytes) -> bool:
    text = raw.decode("utf-8", "replace")
    try:
        root = topics.fill_root(
            "sebridge/v1/{resource_group}/{vm_name}", resource_group=text, vm_name=text
        )
    except topics.BadTopic:
        return False
    expect(root.count("/") == 3 and not set("+#\0") & set(root), "a name changes the topic")
    return True


def _document_seeds() -> tuple[bytes, ...]:
    entry = {
        "EventId": EVENT_ID,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": [VM_NAME, "WEB_4"],
        "EventStatus": "Scheduled",
        "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }
    started = {**entry, "EventId": "other", "EventStatus": "Started", "NotBefore": ""}
    seeds: tuple[list[Any], ...] = ([], [entry], [entry, started])
    return tuple(msgspec.json.encode({"DocumentIncarnation": 3, "Events": e}) for e in seeds)


def _config_seeds() -> tuple[bytes, ...]:
    sections = CONFIGURATION.split(b"\n\n")
    rule = b'[[approvals.rules]]\nname = "r"\nevent_types = ["Reboot"]\naction = "auto"\n'
    return (*sections, rule)


COMMAND_BOMBS = tuple(
    bombs(COMMANDS[1].removesuffix(b"}}") + b',"expect":', b"}}") + bombs(b'{"id":', b"}")
)
TARGETS: Mapping[str, Target] = {
    "structured command": Target(COMMANDS, COMMAND_BOMBS, structured_command, 28),
    "signed command": Target(COMMANDS[3:], COMMAND_BOMBS, signed_command, 15),
    "signed payload": Target(
        (signing.statement(_SIGNED_PARTS, signing.EXTENSIONS),),  # type: ignore[arg-type]
        tuple(bombs()),
        signed_payload,
        5,
    ),
    "envelope": Target(
        (msgspec.json.decode(COMMANDS[3])["dssematerial"].encode(),), tuple(bombs()), envelope, 7
    ),
    "document": Target(
        _document_seeds(),
        tuple(bombs(b'{"DocumentIncarnation":1,"Events":') + bombs(b'{"a":')),
        imds_document,
        13,
    ),
    "mqtt publish": Target(_property_seeds(), (), mqtt_publish, 12),
    "mqtt packet": Target(
        tuple(b"\2" + _HEAD + seed for seed in _property_seeds()), (), mqtt_packet, 5
    ),
    "configuration": Target(_config_seeds(), (), configuration, 5),
    "log line": Target(COMMANDS + _document_seeds(), tuple(bombs()), log_line, 5),
    "topic": Target((b"web_3", b"rg-1", "größe".encode()), tuple(bombs()), topic, 5),
}
