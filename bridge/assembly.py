"""Which transports and keys a configuration asks for. Each is imported only where it is used."""

import logging
from collections.abc import Callable

from bridge.clock import Clock
from bridge.config import Commands, Config, Mqtt
from bridge.core import topics
from bridge.errors import ConfigError
from bridge.imds import Identity
from bridge.intake import Verify
from bridge.store import Store
from bridge.transports import CaughtUp, ConnectedSource, Sink, TokenProvider

logger = logging.getLogger("sebridge.assembly")


def load_verify(config: Commands) -> Verify | None:
    """How signatures are checked; None where commands are taken unsigned."""
    if config.trust == "unsigned":
        logger.warning("commands are unsigned: who may publish one may approve")
    if not config.trusted_keys:
        return None
    from bridge.signatures import Verifier  # noqa: PLC0415

    return Verifier.load(config).verify


class Assembly:
    """Makes the transports of one agent."""

    def __init__(self, config: Config, identity: Identity, store: Store) -> None:
        self._config = config
        self._identity = identity
        self._store = store

    @property
    def commands_topic(self) -> str:
        """Where a command for this VM goes; published with every event."""
        match self._config.commands.source:
            case "mqtt":
                return f"{self._topic_root()}/commands"
            case "eventhubs":
                return self._config.eventhubs.commands_hub
            case "none":
                return ""

    def sinks(self, *, offline: Callable[[], bytes], caught_up: CaughtUp) -> dict[str, Sink]:
        """Every sink by its name. MQTT that only brings commands carries outcomes, too."""
        names = list(self._config.events.sinks)
        if self._config.commands.source == "mqtt" and "mqtt" not in names:
            names.append("mqtt")
        return {name: self._sink(name, offline, caught_up) for name in names}

    def source(self, sinks: dict[str, Sink], clock: Clock) -> ConnectedSource | None:
        match self._config.commands.source:
            case "mqtt":
                return sinks["mqtt"]  # type: ignore[return-value]  # one connection does both
            case "eventhubs":
                return self._eventhubs_source(clock)
            case "none":
                return None

    def _sink(self, name: str, offline: Callable[[], bytes], caught_up: CaughtUp) -> Sink:
        if name == "stdout":
            from bridge.transports.stdout import StdoutSink  # noqa: PLC0415

            return StdoutSink()
        if name == "eventhubs":
            from bridge.transports.eventhubs.sink import EventHubsSink  # noqa: PLC0415

            return EventHubsSink(self._config.eventhubs, vm_name=self._identity.vm.name)
        assert name == "mqtt", name
        return self._mqtt(offline, caught_up)

    def _mqtt(self, offline: Callable[[], bytes], caught_up: CaughtUp) -> Sink:
        from bridge.transports.mqtt import MqttTransport  # noqa: PLC0415

        config, vm = self._config, self._identity.vm
        return MqttTransport(
            config.mqtt,
            root=self._topic_root(),
            client_id=config.mqtt.client_id or f"sebridge-{vm.vm_id or vm.name}",
            will=offline,
            pending=self._store.pending,
            caught_up=caught_up,
            token_provider=token_provider(config.mqtt),
            publish_events="mqtt" in config.events.sinks,
            take_commands=config.commands.source == "mqtt",
            commands_bytes_max=config.commands.payload_bytes_max,
        )

    def _eventhubs_source(self, clock: Clock) -> ConnectedSource:
        from bridge.transports.eventhubs.source import EventHubsSource  # noqa: PLC0415

        return EventHubsSource(
            self._config.eventhubs,
            vm_name=self._identity.vm.name,
            max_age_s=self._config.commands.max_age_s,
            payload_bytes_max=self._config.commands.payload_bytes_max,
            offset=self._store.offset,
            keep_offsets=self._store.keep_offsets,
            now=clock.now,
        )

    def _topic_root(self) -> str:
        try:
            return topics.fill_root(
                self._config.mqtt.topic_root,
                resource_group=self._identity.resource_group,
                vm_name=self._identity.vm.name,
            )
        except topics.BadTopic as error:
            raise ConfigError(f"mqtt.topic_root: {error}; write the name into it") from error


def token_provider(config: Mqtt) -> TokenProvider | None:
    """Who vouches for this agent at the broker, where no password or certificate does."""
    if config.auth != "entra-jwt":
        return None
    from bridge.identity import EVENT_GRID_SCOPE, managed_identity_token  # noqa: PLC0415

    return managed_identity_token(config.identity_client_id, EVENT_GRID_SCOPE)
