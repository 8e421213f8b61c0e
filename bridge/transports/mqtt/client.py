"""paho's Client for the agent: a session that outlives connections, a will, packed properties.

Knows what MQTT 5 and 3.1.1 need; knows nothing of rows, futures or reconnects.
"""

from functools import lru_cache

import msgspec
from paho.mqtt.client import Client
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge import mqtt_client
from bridge.config import Mqtt
from bridge.mqtt_client import Version

# Topic, properties and headers around a command's payload.
_OVERHEAD_BYTES = 65_536


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What to publish, in either version's terms; 3.1.1 leaves out all but the first three."""

    topic: str
    payload: bytes
    retain: bool = False
    content_type: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    correlation: bytes | None = None


def build(config: Mqtt, client_id: str, version: Version, will: Message) -> Client:
    client = mqtt_client.build(
        config, client_id=client_id, version=version, clean=False, manual_ack=True
    )
    client.max_inflight_messages = 0  # the window is kept elsewhere: only CONNACK tells its size
    client.will_set(
        will.topic,
        will.payload,
        qos=1,
        retain=will.retain,
        properties=_properties(will, version, PacketTypes.WILLMESSAGE),
    )
    return client


def connect(
    client: Client, config: Mqtt, version: Version, *, token: str, commands_bytes_max: int
) -> None:
    """DNS, TCP, TLS and CONNECT. Blocks."""
    mqtt_client.log_in(client, config)
    if version == "3.1.1":
        client.connect(config.host, config.port, config.keepalive_s)
        return
    client.connect(
        config.host,
        config.port,
        config.keepalive_s,
        clean_start=False,
        properties=_connect_properties(config, token, commands_bytes_max),
    )


def publish_properties(message: Message, version: Version) -> Properties | None:
    return _properties(message, version, PacketTypes.PUBLISH)


def packet_bytes(message: Message, version: Version) -> int:
    """The most that the PUBLISH packet of this message can measure."""
    properties = publish_properties(message, version)
    size = 2 + len(message.topic.encode()) + 2 + len(message.payload)
    extra = len(properties.pack()) if properties else 0  # type: ignore[no-untyped-call]
    return 5 + size + extra


def _properties(message: Message, version: Version, packet: int) -> Properties | None:
    if version != "5":
        return None
    return _packed(packet, message.content_type, message.attributes, message.correlation)


class _Packed(Properties):
    """Packed once. paho would do it for every message, and be busy with little else."""

    def pack(self) -> bytes:
        packed: bytes | None = vars(self).get("packed")
        if packed is None:
            packed = super().pack()  # type: ignore[no-untyped-call]
            vars(self)["packed"] = packed
        return packed


@lru_cache(maxsize=64)  # structured messages share two or three; binary ones have their own
def _packed(
    packet: int,
    content_type: str,
    attributes: tuple[tuple[str, str], ...],
    correlation: bytes | None,
) -> Properties:
    properties = _Packed(packet)  # type: ignore[no-untyped-call]
    if content_type:
        properties.PayloadFormatIndicator = 1
        properties.ContentType = content_type
    if attributes:
        properties.UserProperty = list(attributes)
    if correlation is not None:
        properties.CorrelationData = correlation
    return properties


def _connect_properties(config: Mqtt, token: str, commands_bytes_max: int) -> Properties:
    """No user properties: Event Grid refuses them here."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = config.session_expiry_s
    properties.ReceiveMaximum = config.receive_max
    properties.MaximumPacketSize = commands_bytes_max + _OVERHEAD_BYTES
    if token:
        properties.AuthenticationMethod = "OAUTH2-JWT"
        properties.AuthenticationData = token.encode()
    return properties
