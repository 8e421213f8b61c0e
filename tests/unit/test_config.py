"""Options: defaults, overrides, and errors that name their place."""

import re
from pathlib import Path
from typing import Any

import pytest

from bridge.config import Config, Http, options
from bridge.configfile import load, read_secret
from bridge.core.policy import Rule
from bridge.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "config" / "bridge.example.toml"


def load_text(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> Config:
    path = tmp_path / "bridge.toml"
    path.write_text(text, encoding="utf-8")
    return load(str(path), environment or {})


def test_load_nothing_gives_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file and without variables the defaults stand."""
    monkeypatch.delenv("SEBRIDGE_LOG__LEVEL", raising=False)

    assert load(None, {}) == Config()
    assert load(None) == Config()


def test_example_file_is_exactly_the_defaults() -> None:
    """The example can be copied as it is."""
    assert load(str(EXAMPLE), {}) == Config()


def test_example_file_mentions_every_option_once_with_a_comment() -> None:
    """Each key stands in its section, with a line that explains it."""
    section, found = "", []
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if header := re.fullmatch(r"\[(.+)\]", line):
            section = header[1]
        elif key := re.match(r"(\w+) = .+ # \S", line):
            found.append(f"{section}.{key[1]}")

    assert sorted(found) == sorted(".".join(path) for path, _, _ in options())


def test_example_rules_work_when_uncommented(tmp_path: Path) -> None:
    """The commented rule is a good one."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("\nrules = []", "\n#")
    text = re.sub(r"^# (?=\[\[approvals|name|event_|action)", "", text, flags=re.MULTILINE)

    assert load_text(tmp_path, text).approvals.rules == (
        Rule(
            name="user reboots go at once",
            action="auto",
            event_types=("Reboot", "Redeploy"),
            event_sources=("User",),
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", "colour: unknown key"),
        ("[imds]\npol = 1", "imds.pol: unknown key"),
        ("[mqtt.tls]\nca = ''", "mqtt.tls.ca: unknown key"),
        ("[[approvals.rules]]\nname='a'\naction='auto'\nx=1", "approvals.rules[0].x: unknown key"),
        ("[[approvals.rules]]\nname='a'\naction='yes'", "approvals.rules[0].action: 'yes' is none"),
        ("imds = 3", "imds: Expected `object`"),
        ("[imds]\npoll_interval_s = 0", "imds.poll_interval_s: Expected `float` > 0"),
        ("[imds]\npoll_interval_s = inf", "imds.poll_interval_s: Expected `float` <="),
        ("[imds]\npoll_interval_s = nan", "imds.poll_interval_s: Expected `float`"),
        ("[imds]\npoll_interval_s = '1'", "imds.poll_interval_s: Expected `float`, got `str`"),
        ("[imds]\nendpoint = 'https://h'", "imds: endpoint must be http://"),
        ("[imds]\nendpoint = 'http://h:99999'", "imds: endpoint: Port out of range 0-65535"),
        ("[imds]\nendpoint = 'http://'", "imds: endpoint must be http://"),
        ("[events]\nsinks = ['kafka']", "events.sinks[0]: 'kafka' is none of 'mqtt', 'eventhubs',"),
        ("[mqtt]\nprotocol = '4'", "mqtt.protocol: '4' is none of '5', '3.1.1', 'auto'"),
        ("[events]\nsinks = ['mqtt', 'mqtt']", "events: sinks names one sink twice"),
        ("[commands]\npayload_bytes_max = 0", "commands.payload_bytes_max: Expected `int`"),
        ("[[approvals.rules]]\nname=''\naction='auto'", "approvals: rules need a name each"),
        (
            "[[approvals.rules]]\nname='a'\naction='auto'\n" * 2,
            "approvals: rules need a name each",
        ),
        ("[approvals]\nflush_s = -1", "approvals.flush_s: Expected `float` >= 0"),
        ("[mqtt]\nport = 70000", "mqtt.port: Expected `int` <= 65535"),
        ("[mqtt]\ntopic_root = 'a/#'", "mqtt: topic_root 'a/#' does not make a topic name"),
        ("[mqtt]\ncontent_mode='binary'\nprotocol='3.1.1'", "mqtt: content_mode binary needs"),
        ("[mqtt]\nauth = 'x509'", "mqtt: auth x509 needs tls.enabled"),
        ("[mqtt]\nauth = 'entra-jwt'", "mqtt: auth entra-jwt needs MQTT 5"),
        ("[mqtt.tls]\ncert_file = 'a'", "mqtt.tls: cert_file and key_file go together"),
        ("[events]\nsinks = []\n[commands]\nsource = 'none'", "events.sinks is empty"),
        ("[events]\nsinks = []\n[commands]\nsource = 'eventhubs'", "events.sinks is empty"),
        ("[events]\nsinks = ['eventhubs']", "eventhubs needs connection_string_file or namespace"),
        ("[commands]\nsource = 'eventhubs'", "eventhubs needs connection_string_file or"),
        (
            "[eventhubs]\nnamespace = 'n.servicebus.windows.net'\nconnection_string_file = '/f'",
            "eventhubs: connection_string_file and namespace exclude each other",
        ),
        (
            "[eventhubs]\nidentity_client_id = 'x'\nconnection_string_file = '/f'",
            "eventhubs: identity_client_id goes with namespace",
        ),
        ("[eventhubs]\nnamespace = 'sb://n'", "eventhubs: namespace must be a host name"),
        ("[eventhubs]\nnamespace = 'short'", "eventhubs: namespace must be a host name"),
        ("[eventhubs]\nevents_hub = ''", "eventhubs: events_hub and commands_hub must not be"),
        ("[eventhubs]\nendpoint = 'host'", "eventhubs: endpoint must be HOST:PORT"),
        (
            "events.sinks = ['eventhubs']\n[eventhubs]\nnamespace = 'n.x'\nevents_hub = 'x'\ncommands_hub = 'x'",
            "eventhubs.events_hub and eventhubs.commands_hub must differ",
        ),
        ("[http]\nlisten = 'localhost'", "http: listen 'localhost' is not HOST:PORT"),
        ("[http]\nlisten = 'h:65536'", "http: listen 'h:65536' is not HOST:PORT"),
        ("[console]\nlisten = '8470'", "console: listen '8470' is not HOST:PORT"),
        ("[console]\nlisten = '0.0.0.0:8470'", "console: listen '0.0.0.0:8470' is open to others"),
        ("[console]\nclients_max = 0", "console.clients_max: Expected `int` >"),
        ("[log]\nlevel = 'loud'", "log.level: 'loud' is none of 'debug', 'info',"),
        ("[log", "not TOML"),
    ],
)
def test_load_bad_file_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    """Each error says which file, which key and what is wrong."""
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text)

    assert f"bridge.toml: {message}" in str(caught.value)


def test_load_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    """A missing file and one that is not text are told apart from bad options."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")

    for path in (tmp_path / "missing", binary):
        with pytest.raises(ConfigError) as caught:
            load(str(path), {})
        assert str(caught.value).startswith(f"cannot read {path}: ")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SEBRIDGE_MQTT__HOST", "broker", ("mqtt", "host", "broker")),
        ("SEBRIDGE_MQTT__PROTOCOL", "5", ("mqtt", "protocol", "5")),
        ("SEBRIDGE_MQTT__PORT", "8883", ("mqtt", "port", 8883)),
        ("SEBRIDGE_COMMANDS__REQUIRE_TOKEN", "true", ("commands", "require_token", True)),
        ("SEBRIDGE_EVENTS__SINKS", '["stdout"]', ("events", "sinks", ("stdout",))),
        (
            "SEBRIDGE_APPROVALS__RULES",
            '[{"name": "a", "action": "deny"}]',
            ("approvals", "rules", (Rule(name="a", action="deny"),)),
        ),
    ],
)
def test_load_environment_overrides_the_file(
    tmp_path: Path, variable: str, value: str, expected: tuple[str, str, Any]
) -> None:
    """Text is taken as it is; numbers, flags, lists and tables are JSON."""
    section, key, wanted = expected

    config = load_text(tmp_path, "[mqtt]\nhost = 'file'", {variable: value, "PATH": "x"})

    assert getattr(getattr(config, section), key) == wanted


def test_load_environment_reaches_a_table_below() -> None:
    """Each double underscore goes one table down; one without is not ours."""
    environment = {"SEBRIDGE_MQTT__TLS__CA_FILE": "/ca", "SEBRIDGE_HOME": "x"}

    assert load(None, environment).mqtt.tls.ca_file == "/ca"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SEBRIDGE_MQTT__HOTS", "x", "SEBRIDGE_MQTT__HOTS: mqtt has no key 'hots' (known: host,"),
        ("SEBRIDGE_MQQT__HOST", "x", "SEBRIDGE_MQQT__HOST: there is no section 'mqqt'"),
        ("SEBRIDGE_MQTT__HOST__X", "x", "there is no section 'host'"),
        ("SEBRIDGE_MQTT__X__Y__Z", "x", "there is no section 'x'"),
        ("SEBRIDGE_MQTT__PORT", "many", "SEBRIDGE_MQTT__PORT: 'many' is not JSON"),
        ("SEBRIDGE_MQTT__PORT", "0", "environment: mqtt.port: Expected `int` >= 1"),
    ],
)
def test_load_bad_variable_is_named(variable: str, value: str, message: str) -> None:
    """A misspelt variable is an error, like a misspelt key."""
    with pytest.raises(ConfigError) as caught:
        load(None, {variable: value})

    assert message in str(caught.value)


def test_load_variable_for_what_is_no_table_is_refused(tmp_path: Path) -> None:
    """A file that makes a value of a section cannot be overridden below it."""
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, "mqtt = 3", {"SEBRIDGE_MQTT__HOST": "x"})

    assert str(caught.value) == "mqtt is not a table"


def test_read_secret_trims_and_never_shows_the_content(tmp_path: Path) -> None:
    """A secret is a file's text; errors speak of the file only."""
    secret, empty, binary = (tmp_path / name for name in ("secret", "empty", "binary"))
    secret.write_text(" hush \n", encoding="utf-8")
    empty.write_text("\n", encoding="utf-8")
    binary.write_bytes(b"\xff")

    assert read_secret(str(secret), "mqtt.password_file") == "hush"
    for path, why in ((empty, "is empty"), (tmp_path / "no", "No such file"), (binary, "utf-8")):
        with pytest.raises(ConfigError) as caught:
            read_secret(str(path), "mqtt.password_file")
        assert str(caught.value).startswith("mqtt.password_file: ")
        assert why in str(caught.value)


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:80", ("::1", 80)), (":0", ("", 0))],
)
def test_http_address_splits_host_and_port(listen: str, expected: tuple[str, int]) -> None:
    """IPv6 addresses stand in brackets."""
    assert Http(listen=listen).address() == expected


def test_http_listen_empty_turns_it_off() -> None:
    """An empty address is allowed."""
    assert Http(listen="").listen == ""
