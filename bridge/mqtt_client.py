"""What every MQTT client of this program has in common: how paho is built and logged in.

Nothing here connects, publishes or listens. Each caller keeps its own connection and its own rules.
"""

import asyncio
import socket
import ssl
import struct
from typing import Any, Literal

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket, MQTTException

from bridge.config import Mqtt
from bridge.configfile import read_secret
from bridge.errors import SinkUnavailable

Version = Literal["5", "3.1.1"]

UNSUPPORTED_PROTOCOL = 132
FAILURE_MIN = 0x80  # reason codes from here on are refusals
# The kernel gives up on unacknowledged bytes after this long, not after its usual quarter hour.
_TCP_USER_TIMEOUT_MS = 30_000


class ProtocolRefused(SinkUnavailable):
    """The broker may not speak this version; `explicit` when it said so in a CONNACK."""

    def __init__(self, message: str, *, explicit: bool) -> None:
        super().__init__(message)
        self.explicit = explicit


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


def build(
    config: Mqtt, *, client_id: str, version: Version, clean: bool, manual_ack: bool
) -> Client:
    """A client for one connection: paho must not reconnect by itself, behind our backs."""
    is_5 = version == "5"
    client = PatientClient(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=None if is_5 else clean,  # MQTT 5 says it in connect()
        protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=manual_ack,
    )
    client.connect_timeout = config.connect_timeout_s
    client.on_socket_open = lambda _client, _data, sock: _set_options(sock)
    return client


def log_in(client: Client, config: Mqtt) -> None:
    """TLS and the password. Reads files: in a worker thread."""
    if config.tls.enabled:
        client.tls_set_context(tls_context(config))
    if config.username:
        password = config.password_file and read_secret(config.password_file, "mqtt.password_file")
        client.username_pw_set(config.username, password or None)


def shut_socket(client: Client) -> None:
    """End the connection now, from any thread; paho's own thread notices and stops."""
    sock: Any = client.socket()
    if isinstance(sock, socket.socket):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def _set_options(sock: Any) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)


def tls_context(config: Mqtt) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.tls.ca_file or None)
    if config.tls.cert_file:
        # A password, or OpenSSL would wait for one at the terminal.
        context.load_cert_chain(config.tls.cert_file, config.tls.key_file, password="")
    return context


def quiet_future(loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
    """A failure that nobody awaits any more is no news: it is looked at, and forgotten."""
    future: asyncio.Future[Any] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
