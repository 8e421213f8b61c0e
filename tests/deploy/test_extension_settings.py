"""Sequence numbers, settings, decryption and TOML, without a process of ours."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ConfigError
from bridge.extension import configuration, environment, settings
from bridge.extension.environment import HandlerEnvironment
from bridge.extension.settings import Settings
from bridge.service.layout import Layout
from tests.support.guest_agent import GuestAgent, encrypt

SECRET = "hush"


@pytest.fixture
def folders(tmp_path: Path) -> HandlerEnvironment:
    config = tmp_path / "waagent/handler/config"
    config.mkdir(parents=True)
    home = config.parent
    return HandlerEnvironment(
        root=home,
        configuration=config,
        status=home / "status",
        heartbeat=home / "heartbeat.log",
        log=home / "log",
    )


def test_sequence_number_is_the_variable(folders: HandlerEnvironment) -> None:
    """The guest agent says which settings it means; files do not overrule it."""
    (folders.configuration / "9.settings").touch()

    assert 4 == environment.sequence_number(folders, {"ConfigSequenceNumber": "4"})


def test_sequence_number_without_variable_is_the_newest_file(folders: HandlerEnvironment) -> None:
    """Numbers need not increase: time decides, not size."""
    for number, seconds in (("9", 100), ("2", 200), ("x", 300)):
        path = folders.configuration / f"{number}.settings"
        path.touch()
        os.utime(path, (seconds, seconds))

    assert 2 == environment.sequence_number(folders, {})


def test_sequence_number_without_anything_is_zero(folders: HandlerEnvironment) -> None:
    """No settings at all is number 0."""
    assert 0 == environment.sequence_number(folders, {})


@pytest.mark.parametrize("content", [None, "", " \n", '{"runtimeSettings":[{}]}'])
def test_settings_may_be_missing_or_empty(folders: HandlerEnvironment, content: str | None) -> None:
    """No settings in the goal state: the file has no bytes."""
    text = content.replace("{}", '{"handlerSettings": {}}') if content else content
    if text is not None:
        (folders.configuration / "0.settings").write_text(text)

    assert Settings(public={}, protected={}) == settings.read(folders, 0)


def test_configuration_of_no_settings_fills_in_paths_only(tmp_path: Path) -> None:
    """Defaults stay the agent's own; the extension adds where state and heartbeat lie."""
    layout = Layout(tmp_path)

    built = configuration.build(Settings(public={}, protected={}), layout, Path)

    expected = {
        "store": {"path": f"{tmp_path}/var/lib/sebridge/state.db"},
        "service": {"heartbeat_file": f"{tmp_path}/var/lib/sebridge/heartbeat.json"},
    }
    assert expected == tomllib.loads(built.text)
    assert {} == built.secrets


def test_protected_settings_become_files_that_the_options_name() -> None:
    """`mqtt.password` is for `mqtt.password_file`; a list is for an option that lists files."""
    found = Settings(
        public={"mqtt": {"host": "b"}},
        protected={
            "mqtt": {"password": SECRET, "tls": {"key": "PEM"}},
            "commands": {"trusted_keys": ["A", "B"]},
        },
    )

    built = configuration.build(found, Layout(), lambda name: Path("/secrets", name))

    options = tomllib.loads(built.text)
    assert options["mqtt"] == {
        "host": "b",
        "password_file": "/secrets/mqtt.password",
        "tls": {"key_file": "/secrets/mqtt.tls.key"},
    }
    assert ["/secrets/commands.trusted_keys.0", "/secrets/commands.trusted_keys.1"] == (
        options["commands"]["trusted_keys"]
    )
    assert {"mqtt.password", "mqtt.tls.key", "commands.trusted_keys.0"} < set(built.secrets)
    assert SECRET not in repr(built) + repr(found)


@pytest.mark.parametrize("public", [{"mqtt": {"password_file": "/x"}}, {"mqtt": 3}])
def test_option_set_twice_or_under_a_value_is_refused(public: dict[str, Any]) -> None:
    """Nobody has to guess which of two settings won."""
    found = Settings(public=public, protected={"mqtt": {"password": SECRET}})

    with pytest.raises(ConfigError) as caught:
        configuration.build(found, Layout(), Path)

    assert "mqtt.password_file" in str(caught.value)
    assert SECRET not in str(caught.value)


# Surrogates are no text; TOML has signed 64-bit integers only.
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


@given(st.dictionaries(texts, values))
def test_toml_says_what_the_json_said(table: dict[str, Any]) -> None:
    """Whatever JSON object comes as settings, the TOML file means the same."""
    assert table == tomllib.loads(configuration.to_toml(table))


def test_text_that_cannot_be_written_is_refused() -> None:
    """JSON can spell half a character; a file cannot hold it."""
    with pytest.raises(ConfigError):
        configuration.to_toml({"a": json.loads('"\\ud800"')})


def test_decryption_falls_back_to_smime(
    folders: HandlerEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An openssl without cms is asked again with smime."""
    agent = GuestAgent(tmp_path / "certificates", tmp_path)
    thumbprint = agent.make_certificate()
    for path in agent.folder.iterdir():
        path.rename(folders.agent_folder / path.name)
    agent.folder = folders.agent_folder
    envelope = encrypt(agent, '{"mqtt": {"password": "hush"}}', thumbprint)
    old = tmp_path / "bin/openssl"
    old.parent.mkdir()
    old.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/calls\n[ "$1" = cms ] && exit 1\n')
    with old.open("a") as script:
        script.write('PATH=/usr/bin:/bin exec openssl "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")

    plaintext = settings._open(
        envelope, folders.agent_folder / f"{thumbprint}.crt", folders.agent_folder
    )

    assert b'{"mqtt": {"password": "hush"}}' == plaintext
    assert "cms\nsmime\n" == (tmp_path / "calls").read_text()
