"""azure-eventhub's clients, set up our way: one TLS context, no retries of their own, an identity.

The client library loads every certificate authority for each connection unless it is given a
context, and goes on for 24 seconds before it reports a failure unless told not to retry.
"""

import functools
import logging
import os
import ssl
from types import TracebackType
from typing import Any, Self

from azure.eventhub import TransportType
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient

from bridge import vm_token
from bridge.config import EventHubs
from bridge.configfile import read_secret
from bridge.errors import ConfigError
from bridge.eventhubs.credential import VmCredential
from bridge.eventhubs.problems import Problem, explain

# They repeat at WARNING what we report ourselves, in our own words and once.
for _library in ("azure.eventhub", "azure.identity"):
    logging.getLogger(_library).setLevel(logging.ERROR)

# As the library asks for it, double slash and all: the same token serves both.
TOKEN_SCOPE = "https://eventhubs.azure.net//.default"  # noqa: S105 - a name and no secret

_ONCE: dict[str, Any] = {"retry_total": 0, "retry_mode": "fixed", "retry_backoff_factor": 0.05}


class Namespace:
    """Makes clients for one namespace. Secrets are read anew for each: keys are rotated."""

    def __init__(self, config: EventHubs) -> None:
        self._config = config
        self._credential: Any = None
        #: For messages, and as a part of the names under which offsets are kept.
        self.host = config.namespace or _host(self._connection_string())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def by_identity(self) -> bool:
        return not self._config.connection_string_file

    def producer(self, hub: str) -> EventHubProducerClient:
        if self.by_identity:
            return EventHubProducerClient(
                self._config.namespace, hub, self.credential(), **self._options()
            )
        return EventHubProducerClient.from_connection_string(
            self._connection_string(), eventhub_name=hub, **self._options()
        )

    def consumer(self, hub: str, group: str) -> EventHubConsumerClient:
        """Without a checkpoint store: with one, agents would steal partitions from each other."""
        if self.by_identity:
            return EventHubConsumerClient(
                self._config.namespace, hub, group, self.credential(), **self._options()
            )
        return EventHubConsumerClient.from_connection_string(
            self._connection_string(), group, eventhub_name=hub, **self._options()
        )

    def credential(self) -> Any:
        """One for all clients: it keeps the token and renews it before it expires."""
        if self._credential is None:
            client_id = self._config.identity_client_id
            here = not vm_token.is_elsewhere()
            self._credential = VmCredential(client_id) if here else _from_elsewhere(client_id)
        return self._credential

    def explain(self, error: BaseException, hub: str) -> Problem:
        return explain(error, hub=hub, host=self.host, by_identity=self.by_identity)

    async def close(self) -> None:
        if self._credential is not None:
            await self._credential.close()
            self._credential = None

    def _connection_string(self) -> str:
        return read_secret(self._config.connection_string_file, "eventhubs.connection_string_file")

    def _options(self) -> dict[str, Any]:
        websocket = self._config.transport == "websocket"
        options: dict[str, Any] = {
            **_ONCE,
            "ssl_context": tls_context(self._config.ca_file),
            "transport_type": TransportType.AmqpOverWebsocket if websocket else TransportType.Amqp,
        }
        if self._config.endpoint:
            options["custom_endpoint_address"] = f"sb://{self._config.endpoint}"
        return options


def _from_elsewhere(client_id: str) -> Any:
    from azure.identity.aio import ManagedIdentityCredential  # noqa: PLC0415

    return ManagedIdentityCredential(
        client_id=client_id or None,
        # What is on this machine must not be asked through a proxy. A pod's identity is not.
        use_env_settings="AZURE_FEDERATED_TOKEN_FILE" in os.environ,
    )


def _host(connection_string: str) -> str:
    pairs = (part.partition("=") for part in connection_string.split(";"))
    fields = {name.strip().casefold(): value.strip() for name, _, value in pairs}
    return fields.get("endpoint", "").partition("://")[2].strip("/")


@functools.cache
def tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"eventhubs.ca_file: cannot use {ca_file}: {error}") from error
