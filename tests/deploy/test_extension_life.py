"""The VM extension from install to uninstall, with the real zip and real processes."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.service.layout import Layout
from bridge.service.process import Process
from bridge.version import VERSION
from tests.deploy.conftest import REPOSITORY, Build
from tests.support.guest_agent import GuestAgent, Handler, openssl
from tests.support.mosquitto import Mosquitto

# Installs of real wheels: seconds on a quiet machine, a minute on a busy one.
pytestmark = pytest.mark.timeout(240)

PASSWORD = "hush-7f3a-secret"
NEXT = "99.0.1"
Settings = dict[str, object]


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{condition} did not come true"
        time.sleep(0.05)
    return result


def agent_of(vm: Layout) -> Process:
    process = Process.parse(vm.pid_file.read_text())
    assert process is not None
    assert process.is_alive
    return process


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that lets nobody in but `web`, with the password."""
    passwords = tmp_path / "passwords"
    command = ["mosquitto_passwd", "-b", "-c", str(passwords), "web", PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    lines = ("allow_anonymous false", f"password_file {passwords}", "log_dest file log")
    with Mosquitto(tmp_path, lines) as mosquitto:
        yield mosquitto


@pytest.fixture
def imds() -> Iterator[str]:
    """The endpoint of a VM of the simulator."""
    command = [sys.executable, "-m", "bridge", "simulate", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = next(m[0] for line in process.stdout if (m := re.search(r"http://\S+/vm/\w+", line)))
        yield url
        process.terminate()


def test_enable_logs_in_with_a_protected_password_and_shows_it_nowhere(
    handler: Handler, vm: Layout, broker: Mosquitto, imds: str, free_port: int
) -> None:
    """A secret travels from encrypted settings to the broker, and is seen nowhere else."""
    public = {
        "imds": {"endpoint": imds},
        "mqtt": {"host": "127.0.0.1", "port": broker.port, "username": "web"},
        "http": {"listen": f"127.0.0.1:{free_port}"},
    }
    thumbprint = handler.agent.make_certificate()
    handler.set(0, public, json.dumps({"mqtt": {"password": PASSWORD}}), thumbprint)

    said = [handler.run(operation) for operation in ("install", "enable")]

    assert [0, 0] == [answer.code for answer in said]
    assert "success" == handler.status()["status"]
    until(lambda: handler.heartbeat() == "Ready")
    command = [str(vm.command), "status", "--json", "--config", str(vm.configuration)]
    until(lambda: '"problem":""' in subprocess.check_output(command, text=True).split('"sinks"')[1])
    secret = vm.secrets / "mqtt.password"
    assert (PASSWORD, 0o600) == (secret.read_text(), secret.stat().st_mode & 0o777)
    pid = agent_of(vm).pid
    seen = [answer.output for answer in said]
    seen += [Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ")]
    files = [p for p in (*vm.root.rglob("*"), *handler.home.rglob("*")) if p.is_file()]
    seen += [p.read_bytes().decode(errors="replace") for p in files if p != secret]
    assert not [text for text in seen if PASSWORD in text]


def test_enable_again_leaves_a_running_agent_alone(
    handler: Handler, vm: Layout, away: Settings
) -> None:
    """The guest agent repeats enable at every boot; one process stays one process."""
    handler.set(3, away)
    handler.run("install", 3)

    first = handler.run("enable", 3)
    before = agent_of(vm)
    second = handler.run("enable", 3)

    assert (0, 0) == (first.code, second.code)
    assert before == agent_of(vm)
    assert "3" == (handler.home / "mrseq").read_text().strip()


def test_enable_with_other_settings_replaces_the_agent(
    handler: Handler, vm: Layout, away: Settings
) -> None:
    """New settings take effect at once, even under a lower number."""
    handler.set(3, away)
    handler.set(2, {**away, "log": {"level": "debug"}})
    handler.run("install", 3)
    handler.run("enable", 3)
    before = agent_of(vm)

    answer = handler.run("enable", 2)

    assert 0 == answer.code, answer.output
    assert not before.is_alive
    assert agent_of(vm).is_alive
    assert 'level = "debug"' in vm.configuration.read_text()


def test_enable_with_bad_settings_keeps_the_old_agent_and_says_not_ready(
    handler: Handler, vm: Layout, away: Settings
) -> None:
    """A typo must not end an agent that works, nor may its heartbeat hide the failure."""
    handler.set(0, away)
    handler.set(1, {**away, "mqtt": {"prot": 1883}})
    handler.run("install")
    handler.run("enable", 0)
    before, configuration = agent_of(vm), vm.configuration.read_text()

    answer = handler.run("enable", 1)

    assert 53 == answer.code
    status = handler.status(1)
    assert ("error", 53) == (status["status"], status["code"])
    assert "mqtt.prot: unknown key" in status["formattedMessage"]["message"]
    assert "NotReady" == handler.heartbeat()
    assert before == agent_of(vm)
    assert configuration == vm.configuration.read_text()


def test_enable_takes_trusted_keys_as_texts(handler: Handler, vm: Layout, away: Settings) -> None:
    """Keys come as PEM; what the check reads is what the agent will read."""
    thumbprint = handler.agent.make_certificate()
    key = openssl("genpkey", "-algorithm", "ed25519")
    public = openssl("pkey", "-pubout", stdin=key).decode()
    handler.set(0, away, json.dumps({"commands": {"trusted_keys": [public]}}), thumbprint)
    handler.set(1, away, json.dumps({"commands": {"trusted_keys": ["no PEM"]}}), thumbprint)

    assert 0 == handler.run("enable", 0).code, handler.status(0)
    assert 53 == handler.run("enable", 1).code

    path = vm.secrets / "commands.trusted_keys.0"
    assert str(path) in handler.status(1)["formattedMessage"]["message"]
    assert public == path.read_text()
    assert f'trusted_keys = ["{path}"]' in vm.configuration.read_text()


def test_disable_stops_the_agent_and_enable_resumes_its_ledger(
    handler: Handler, vm: Layout, away: Settings
) -> None:
    """Disable is not uninstall: the memory of what was approved stays."""
    handler.set(0, away)
    handler.run("install")
    handler.run("enable")
    before = agent_of(vm)

    assert 0 == handler.run("disable").code
    assert not before.is_alive
    assert "NotReady" == handler.heartbeat()
    ledger = (vm.state / "state.db").stat().st_ino
    assert 0 == handler.run("enable").code

    assert agent_of(vm) != before
    assert ledger == (vm.state / "state.db").stat().st_ino


@pytest.fixture(scope="module")
def next_package(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same program, one version further."""
    source = tmp_path_factory.mktemp("next")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(
        REPOSITORY / "bridge", source / "bridge", ignore=shutil.ignore_patterns("__pycache__")
    )
    (source / "bridge/version.py").write_text(f'VERSION = "{NEXT}"\n')
    return build(source, source / "package")


def test_update_in_the_guest_agents_order_keeps_the_ledger(
    guest_agent: GuestAgent,
    handler: Handler,
    next_package: Path,
    vm: Layout,
    away: Settings,
) -> None:
    """uninstall(old) comes after update(new) and is not told why; nothing shared may go."""
    handler.set(0, away)
    handler.run("install")
    handler.run("enable")
    ledger = (vm.state / "state.db").stat().st_ino
    new = guest_agent.unpack(next_package)
    new.set(0, away)

    answers = [
        handler.run("disable"),
        new.run("update", VERSION=handler.version),
        handler.run("uninstall"),
    ]
    shutil.rmtree(handler.home)
    answers += [new.run("install"), new.run("enable")]

    assert [0] * 5 == [answer.code for answer in answers], [a.output for a in answers]
    assert f"{NEXT} is started" in new.status()["formattedMessage"]["message"]
    assert f"sebridge {NEXT}\n" == subprocess.check_output([vm.command, "--version"], text=True)
    assert ledger == (vm.state / "state.db").stat().st_ino
    assert not (vm.programs / VERSION).exists()
    assert agent_of(vm).is_alive
    until(lambda: new.heartbeat() == "Ready")
    new.run("disable")
    new.run("uninstall")


def test_uninstall_leaves_nothing_but_the_ledger(
    handler: Handler, vm: Layout, away: Settings
) -> None:
    """Program, links, secrets and process go; the state folder stays."""
    thumbprint = handler.agent.make_certificate()
    handler.set(0, away, json.dumps({"mqtt": {"password": PASSWORD}}), thumbprint)
    handler.run("install")
    handler.run("enable")
    before = agent_of(vm)

    answers = [handler.run(operation) for operation in ("disable", "uninstall", "uninstall")]

    assert [0, 0, 0] == [answer.code for answer in answers]
    assert not before.is_alive
    assert (vm.state / "state.db").exists()
    assert [] == list(vm.programs.iterdir())
    assert [] == list(vm.secrets.iterdir())
    assert not vm.command.is_symlink()
