"""Moves the bytes of a connected paho client on the event loop, in place of paho's thread.

paho's own hooks for that: it says when it wants to write, we say when the socket can be read, and
look after its keepalive. Without the thread a message leaves in the same turn of the loop that
published it, before the next is packed, and thousands of connections fit into one process.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from paho.mqtt.client import Client

# paho looks after keepalive and lost pings when asked; its own thread would ask each second.
_LOOKS_PER_KEEPALIVE = 8


class Pump:
    def __init__(
        self, client: Client, keepalive_s: float, on_failure: Callable[[str], None]
    ) -> None:
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._look_s = keepalive_s / _LOOKS_PER_KEEPALIVE
        self._timer: asyncio.TimerHandle | None = None
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """After a successful connect(), on the event loop."""
        found = self._client.socket()
        if not isinstance(found, socket.socket):
            return  # it has ended already, and told its on_disconnect
        self._socket = found
        self._client.on_socket_register_write = lambda *_: self._want_to_write(found)
        self._client.on_socket_unregister_write = lambda *_: self._have_written(found)
        self._client.on_socket_close = lambda *_: self._forget(found)
        self._loop.add_reader(found, self._read)
        if self._client.want_write():
            self._want_to_write(found)
        self._look()

    def stop(self) -> None:
        """End it now, if it was started."""
        if self._socket is not None:
            hang_up(self._client)

    def _read(self) -> None:
        try:
            self._client.loop_read()
            # TLS decrypts whole records: what it still holds, the kernel will never announce.
            while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
                self._client.loop_read()
        except Exception as error:  # noqa: BLE001 - whatever it was, this connection is over
            self.stop()
            self._on_failure(f"the broker sent what cannot be read: {error}")

    def _want_to_write(self, sock: socket.socket) -> None:
        """At once, for there is nearly always room; only a full socket is waited for."""
        self._client.loop_write()
        if self._socket is sock and self._client.want_write():
            self._loop.add_writer(sock, self._client.loop_write)

    def _have_written(self, sock: socket.socket) -> None:
        self._loop.remove_writer(sock)

    def _look(self) -> None:
        self._client.loop_misc()
        if self._socket is not None:
            self._timer = self._loop.call_later(self._look_s, self._look)

    def _forget(self, closing: socket.socket) -> None:
        self._socket = None
        self._loop.remove_reader(closing)
        self._loop.remove_writer(closing)
        if self._timer is not None:
            self._timer.cancel()


def hang_up(client: Client) -> None:
    """Close the socket without a goodbye."""
    client._sock_close()  # noqa: SLF001 - paho has no public word for that
