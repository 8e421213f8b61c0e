"""Configuration: the example is complete, errors name their place."""

import tomllib
from pathlib import Path

import pytest

from bridge import config, configfile
from bridge.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "config" / "bridge.example.toml"


def test_example_decodes_to_the_defaults() -> None:
    """The example says what the program does without it."""
    assert config.Config() == configfile.load(str(EXAMPLE), {})


def test_example_mentions_every_option() -> None:
    """No option is missing from the example."""
    fields = tomllib.loads(EXAMPLE.read_text())
    for path, _, _ in config.options():
        table = fields
        for name in path:
            assert name in table, ".".join(path)
            table = table[name]


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"SEBRIDGE_MQTT__PORT": "99999"}, "mqtt.port"),
        ({"SEBRIDGE_MQTT__HOTS": "x"}, "'hots'"),
        ({"SEBRIDGE_NOWHERE__KEY": "x"}, "'nowhere'"),
        ({"SEBRIDGE_IMDS__ENDPOINT": "https://x"}, "imds"),
        ({"SEBRIDGE_APPROVALS__RULES": "[{"}, "SEBRIDGE_APPROVALS__RULES"),
        ({"SEBRIDGE_COMMANDS__TRUSTED_KEYS": '["k"]'}, "commands.trusted_keys"),
        ({"SEBRIDGE_MQTT__AUTH": "x509"}, "tls.cert_file"),
    ],
)
def test_bad_values_name_their_place(environment: dict[str, str], place: str) -> None:
    """An operator is told which key to mend."""
    with pytest.raises(ConfigError) as caught:
        configfile.load(None, environment)

    assert place in str(caught.value)


def test_unknown_key_in_the_file_is_refused(tmp_path: Path) -> None:
    """A misspelt option is not ignored."""
    file = tmp_path / "c.toml"
    file.write_text('[mqtt]\nhots = "x"\n')
    with pytest.raises(ConfigError, match=r"mqtt\.hots"):
        configfile.load(str(file), {})


def test_environment_overrides_nested_keys() -> None:
    """Strings are taken as they are, everything else is JSON."""
    environment = {"SEBRIDGE_MQTT__TLS__ENABLED": "true", "SEBRIDGE_MQTT__HOST": "broker"}
    loaded = configfile.load(None, environment)

    assert (True, "broker") == (loaded.mqtt.tls.enabled, loaded.mqtt.host)
