"""The server that tests start: a port on 127.0.0.1, and hubs that outlive stop() and start()."""

import asyncio
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tests.support.eventhubs_server.access import ALL_RIGHTS, Access, Right
from tests.support.eventhubs_server.broker import Broker
from tests.support.eventhubs_server.connection import Connection
from tests.support.eventhubs_server.faults import Counters, Faults
from tests.support.eventhubs_server.store import Hub
from tests.support.eventhubs_server.websocket import WebSocketFront

KEY_NAME = "RootManageSharedAccessKey"
MESSAGE_BYTES_MAX = 1024 * 1024  # Standard, Premium and Dedicated tiers
_HOST = "127.0.0.1"


class EventHubsServer:
    """An Event Hubs namespace over AMQP 1.0 for the unmodified azure-eventhub client.

    `async with EventHubsServer() as server` starts it on a free port. After `stop()`, `start()`
    listens on the same port again, with hubs, keys, faults and counters as they were.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        key: str = "c2VjcmV0LWtleS1mb3ItdGVzdHM=",
        ssl_context: ssl.SSLContext | None = None,
        websocket: bool = False,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        bearer_tokens: Iterable[str] = (),
    ) -> None:
        self.port = port
        self._ssl_context = ssl_context
        self._access = Access(bearer_tokens=set(bearer_tokens))
        self._broker = Broker(self._access, message_bytes_max)
        self._front = WebSocketFront(_HOST) if websocket else None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self.add_key(KEY_NAME, key)

    @property
    def faults(self) -> Faults:
        return self._broker.faults

    @property
    def counters(self) -> Counters:
        return self._broker.counters

    @property
    def connections_open(self) -> int:
        return len(self._connections)

    @property
    def endpoint(self) -> str:
        """The address; for TLS pass it to the client as `custom_endpoint_address`."""
        return f"sb://{_HOST}:{self.port}"

    @property
    def websocket_endpoint(self) -> str:
        """The address to pass as `custom_endpoint_address` with AmqpOverWebsocket."""
        assert self._front is not None, "start the server with websocket=True"
        return f"sb://{_HOST}:{self._front.port}"

    def connection_string(
        self, hub: str | None = None, *, key_name: str = KEY_NAME, key: str | None = None
    ) -> str:
        """Return what a client needs; `key` overrides the right one."""
        parts = [
            f"Endpoint={self.endpoint}",
            f"SharedAccessKeyName={key_name}",
            f"SharedAccessKey={key or self._access.keys[key_name][0]}",
        ]
        if hub is not None:
            parts.append(f"EntityPath={hub}")
        if self._ssl_context is None:
            parts.append("UseDevelopmentEmulator=true")
        return ";".join(parts)

    def add_key(self, name: str, key: str, rights: Iterable[Right] = ALL_RIGHTS) -> None:
        self._access.keys[name] = (key, frozenset(rights))

    def allow_bearer_token(self, token: str) -> None:
        """Take this Entra ID token from now on, with all rights."""
        self._access.bearer_tokens.add(token)

    def add_hub(
        self, name: str, partitions: int = 2, consumer_groups: Iterable[str] = ("$Default",)
    ) -> Hub:
        hub = Hub(name, partitions, consumer_groups)
        self._broker.hubs[name.lower()] = hub
        return hub

    def hub(self, name: str) -> Hub:
        return self._broker.hubs[name.lower()]

    def receivers(self, hub: str) -> int:
        """Return how many receiver links clients have on the hub now."""
        return self._broker.receivers(hub.lower())

    def kill_connections(self) -> int:
        """Cut every connection now, without a word; return how many there were."""
        connections = list(self._connections.values())
        for connection in connections:
            connection.abort()
        return len(connections)

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, _HOST, self.port, ssl=self._ssl_context
        )
        self.port = self._server.sockets[0].getsockname()[1]
        if self._front is not None:
            await self._front.start(self.port)

    async def stop(self) -> None:
        """Stop listening and cut every connection; harmless when already stopped."""
        if self._server is None:
            return
        if self._front is not None:
            await self._front.stop()
        self._server.close()
        self.kill_connections()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()
        self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._broker, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = connection
        try:
            await connection.serve()
        finally:
            del self._connections[task]
