"""Which transport a consumer reads: the one that the agents of this configuration publish to."""

from bridge.config import Config
from bridge.errors import ConfigError
from bridge.feeds import Feed
from bridge.feeds.mixed import MixedFeed


def make_feed(config: Config) -> Feed:
    """Not connected yet: `run()` does that. Events and commands may take different ways."""
    brokers = [name for name in ("mqtt", "eventhubs") if name in config.events.sinks]
    source = config.commands.source
    if not brokers and source == "none":
        raise ConfigError(
            "there is no broker to read: neither events.sinks nor commands.source names one"
        )
    reads = source if source in brokers or not brokers else brokers[0]
    if source in {reads, "none"}:
        return _feed(reads, config)
    return MixedFeed(_feed(reads, config), _sender(source, config))


def _feed(name: str, config: Config) -> Feed:
    """Transports are imported only where they are used."""
    if name == "mqtt":
        _refuse_the_agents_identity(config)
        from bridge.feeds.mqtt import MqttFeed  # noqa: PLC0415

        return MqttFeed(config.mqtt)
    from bridge.feeds.eventhubs import EventHubsFeed  # noqa: PLC0415

    return EventHubsFeed(config.eventhubs)


def _sender(name: str, config: Config) -> Feed:
    if name == "mqtt":
        return _feed(name, config)
    from bridge.feeds.eventhubs import EventHubsSender  # noqa: PLC0415

    return EventHubsSender(config.eventhubs)


def _refuse_the_agents_identity(config: Config) -> None:
    """The token is the VM's, not the operator's."""
    if config.mqtt.auth == "entra-jwt":
        raise ConfigError(
            "mqtt.auth entra-jwt is for the agent: give this command a "
            "configuration with a certificate or a password of your own"
        )
