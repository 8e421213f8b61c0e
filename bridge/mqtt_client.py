"""What every MQTT client of this program has in common: how paho is built and logged in.

Nothing here connects, publishes or listens. Each caller keeps its own connection and its own rules.
"""

import socket
import ssl
from typing import Any, Literal

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.config import Mqtt
from bridge.configfile import read_secret

Version = Literal["5", "3.1.1"]

UNSUPPORTED_PROTOCOL = 132
FAILURE_MIN = 0x80  # reason codes from here on are refusals
# The kernel gives up on unacknowledged bytes after this long, not after its usual quarter hour.
_TCP_USER_TIMEOUT_MS = 30_000


def build(
    config: Mqtt, *, client_id: str, version: Version, clean: bool, manual_ack: bool
) -> Client:
    """A client for one connection: paho must not reconnect by itself, behind our backs."""
    is_5 = version == "5"
    client = Client(
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
        client.tls_set_context(_tls_context(config))
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


def _tls_context(config: Mqtt) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.tls.ca_file or None)
    if config.tls.cert_file:
        context.load_cert_chain(config.tls.cert_file, config.tls.key_file)
    return context
