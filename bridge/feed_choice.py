"""Which transport a consumer reads: the one that the agents of this configuration publish to."""

from bridge.config import Config
from bridge.errors import ConfigError
from bridge.feeds import Feed


def make_feed(config: Config) -> Feed:
    """Not connected yet: `run()` does that. Transports are imported only where they are used."""
    used = {*config.events.sinks, config.commands.source}
    if "mqtt" in used:
        _refuse_the_agents_identity(config)
        from bridge.feeds.mqtt import MqttFeed  # noqa: PLC0415

        return MqttFeed(config.mqtt)
    if "eventhubs" in used:
        raise ConfigError("consumers cannot read Event Hubs yet: add mqtt to events.sinks")
    raise ConfigError(
        "there is no broker to read: neither events.sinks nor commands.source names one"
    )


def _refuse_the_agents_identity(config: Config) -> None:
    """The token is the VM's, not the operator's."""
    if config.mqtt.auth == "entra-jwt":
        raise ConfigError(
            "mqtt.auth entra-jwt is for the agent: give this command a "
            "configuration with a certificate or a password of your own"
        )
