"""paho's Client, set up our way: both protocol versions, TLS, login, properties.

Knows what MQTT 5 and 3.1.1 need; knows nothing of rows, futures or reconnects.
"""

import socket
import ssl
import struct
from functools import lru_cache
from typing import Any, Literal

import msgspec
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket, MQTTException
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.config import Mqtt
from bridge.configfile import read_secret

Version = Literal["5", "3.1.1"]

# The kernel gives up on unacknowledged bytes after this long, not after its usual quarter hour.
TCP_USER_TIMEOUT_MS = 30_000
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


class PatientClient(Client):
    """A client that one message cannot throw out.

    paho takes some text for a broken packet that MQTT and its brokers allow, U+FEFF for one, and
    hangs up. The broker then sends the message again, on every connection, for ever.
    """

    def _handle_publish(self) -> MQTTErrorCode:
        try:
            return super()._handle_publish()
        except (MQTTException, ValueError, LookupError, struct.error) as error:
            message = _unreadable(self._in_packet["command"], bytes(self._in_packet["packet"]))
            if message is None:
                raise MalformedPacket(str(error)) from error
        self._handle_on_message(message)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_on_message(self, message: MQTTMessage) -> None:
        try:
            _ = message.topic  # decoded here, where paho knows what to do about a broken packet
        except UnicodeDecodeError as error:
            raise MalformedPacket("the topic is not UTF-8") from error
        super()._handle_on_message(message)


def _unreadable(header: int, packet: bytes) -> MQTTMessage | None:
    """A PUBLISH without its properties; they stay before the payload, so that it is no command."""
    topic_end = 2 + int.from_bytes(packet[:2], "big")
    qos = (header & 0x06) >> 1
    body = topic_end + (2 if qos else 0)
    if qos > 1 or len(packet) < body:
        return None
    mid = int.from_bytes(packet[topic_end:body], "big")
    message = MQTTMessage(mid=mid, topic=packet[2:topic_end])
    message.qos, message.retain = qos, bool(header & 0x01)
    message.payload = b"\0" + packet[body:]
    return message


def build(config: Mqtt, client_id: str, version: Version, will: Message) -> Client:
    client = PatientClient(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=None if version == "5" else False,
        protocol=MQTTProtocolVersion.MQTTv5 if version == "5" else MQTTProtocolVersion.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = config.connect_timeout_s
    client.max_inflight_messages = 0  # the window is kept elsewhere: only CONNACK tells its size
    client.will_set(
        will.topic,
        will.payload,
        qos=1,
        retain=will.retain,
        properties=_properties(will, version, PacketTypes.WILLMESSAGE),
    )
    client.on_socket_open = lambda _client, _data, sock: _set_options(sock)
    return client


def connect(
    client: Client, config: Mqtt, version: Version, *, token: str, commands_bytes_max: int
) -> None:
    """DNS, TCP, TLS and CONNECT. Blocks."""
    if config.tls.enabled:
        client.tls_set_context(tls_context(config))
    if config.username:
        password = config.password_file and read_secret(config.password_file, "password_file")
        client.username_pw_set(config.username, password or None)
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


def tls_context(config: Mqtt) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.tls.ca_file or None)
    if config.tls.cert_file:
        # A password, or OpenSSL would wait for one at the terminal.
        context.load_cert_chain(config.tls.cert_file, config.tls.key_file, password="")
    return context


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


def _set_options(sock: Any) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
