"""The package on a Debian that really boots: the unit, its user and its limits under systemd."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.service.layout import Layout
from tests.support.guest_agent import GuestAgent, openssl

REPOSITORY = Path(__file__).parents[2]
BOOT = REPOSITORY / "build/container/boot.tar"
PASSWORD = "hush-51d2-secret"
SETTINGS = {
    "imds": {"endpoint": "http://127.0.0.1:9"},
    "mqtt": {"host": "127.0.0.1", "port": 9, "username": "web"},
}

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (shutil.which("systemd-nspawn") and BOOT.exists() and os.geteuid() == 0),
        reason="needs root and what `make base-images` makes",
    ),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bookworm has Python 3.11"),
]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Machine:
    """A booted container without a network; its file system is a folder here."""

    def __init__(self, root: Path) -> None:
        self.root = root
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"]
        command += ["--private-network", "--directory", str(root), "--console=read-only"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        until(lambda: self("systemctl", "is-active", "multi-user.target").returncode == 0)

    def __call__(self, *command: str) -> subprocess.CompletedProcess[str]:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        leader = (children.read_text().split() or ["0"])[0]
        entered = ["nsenter", "--target", leader, "--all", *command]
        return subprocess.run(entered, capture_output=True, text=True, check=False)

    def show(self, name: str) -> str:
        return self("systemctl", "show", "--value", "-p", name, "sebridge").stdout.strip()

    def stop(self) -> None:
        self("systemctl", "poweroff")
        self._process.wait(60)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Iterator[Machine]:
    """With the package unpacked, and settings that hold a secret, as the guest agent leaves them."""
    root = tmp_path_factory.mktemp("debian")
    subprocess.run(["tar", "-C", str(root), "-xf", str(BOOT)], check=True)
    agent = GuestAgent(root / "var/lib/waagent", Path("/"))
    handler = agent.unpack(package)
    key = openssl("pkey", "-pubout", stdin=openssl("genpkey", "-algorithm", "ed25519")).decode()
    secrets = json.dumps({"mqtt": {"password": PASSWORD}, "commands": {"trusted_keys": [key]}})
    handler.set(0, SETTINGS, secrets, agent.make_certificate())
    home = handler.home.rename(agent.folder / "handler")
    text = (home / "HandlerEnvironment.json").read_text()
    text = text.replace(str(handler.home), "/var/lib/waagent/handler").replace(str(root), "")
    (home / "HandlerEnvironment.json").write_text(text)
    machine = Machine(root)
    yield machine
    machine.stop()


def operate(machine: Machine, operation: str) -> int:
    command = f"cd /var/lib/waagent/handler && bin/sebridge-setup extension {operation}"
    return machine("env", "ConfigSequenceNumber=0", "sh", "-c", command).returncode


def test_dependencies_live_within_the_units_limits(machine: Machine) -> None:
    """No compiled dependency needs what the unit forbids: memory that is written and run, netlink…"""
    assert 0 == operate(machine, "install")
    limits = (REPOSITORY / "deploy/systemd/sebridge.service").read_text()
    limits = limits.partition("DynamicUser=")[1] + limits.partition("DynamicUser=")[2]
    lines = [line for line in limits.partition("[Install]")[0].splitlines() if "=" in line]
    properties = [argument for line in lines for argument in ("-p", line)]
    (machine.root / "opt/try.py").write_text(TRY)

    done = machine(
        "systemd-run", "--quiet", "--wait", "--pipe", *properties,
        "/opt/sebridge/current/bin/python", "/opt/try.py",
    )  # fmt: skip

    assert (0, "refused\nfine\n") == (done.returncode, done.stdout), done.stderr


def test_extension_under_systemd(machine: Machine) -> None:
    """From install to uninstall, on a Debian that has neither pip nor a registry."""
    layout = Layout(machine.root)
    assert [0, 0] == [operate(machine, name) for name in ("install", "enable")]
    pid = machine.show("MainPID")
    assert ("active", "enabled") == (machine.show("ActiveState"), machine.show("UnitFileState"))
    status = machine("cat", f"/proc/{pid}/status").stdout
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status
    assert "Uid:\t0\t" not in status

    credential = "/run/credentials/sebridge.service/secrets_mqtt.password"
    assert f'password_file = "{credential}"' in layout.configuration.read_text()
    seen = machine("nsenter", "--target", pid, "--mount", "cat", credential)
    assert PASSWORD == seen.stdout
    assert PASSWORD == machine("cat", credential).stdout  # for root's `sebridge doctor`, too
    heartbeat = machine("cat", "/var/lib/waagent/handler/heartbeat.log").stdout
    assert '"status": "Ready"' in heartbeat

    assert 0 == operate(machine, "enable")
    assert pid == machine.show("MainPID")

    machine("systemctl", "kill", "--signal=KILL", "sebridge")
    until(lambda: machine.show("MainPID") not in {"0", pid})
    until(lambda: machine.show("ActiveState") == "active")

    assert [0, 0] == [operate(machine, name) for name in ("disable", "uninstall")]
    assert "inactive" == machine.show("ActiveState")
    assert not layout.unit.exists()
    assert layout.private_state.joinpath("state.db").exists()
    assert [] == list(layout.secrets.iterdir())
    journal = machine("journalctl", "--no-pager").stdout
    assert "sebridge" in journal
    assert PASSWORD not in journal


TRY = """
import asyncio, mmap, ssl
import aiohttp, azure.eventhub.aio, azure.identity.aio, msgspec, paho.mqtt.client, uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    print("refused")
key = Ed25519PrivateKey.generate()
key.public_key().verify(key.sign(b"x"), b"x")
ssl.create_default_context()

async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    writer.close()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
print("fine")
"""
