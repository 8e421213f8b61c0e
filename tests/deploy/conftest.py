"""A VM's file system in a folder, the real package, and the guest agent that unpacks it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.service import files
from bridge.service.installation import Installation
from bridge.service.layout import Layout
from bridge.version import VERSION
from tests.support import mosquitto
from tests.support.guest_agent import GuestAgent, Handler

REPOSITORY = Path(__file__).parents[2]

Build = Callable[[Path, Path], Path]


@pytest.fixture(scope="session")
def build() -> Build:
    """Builds a zip for the platform that the tests run on, from a source tree."""

    def build_from(source: Path, output: Path) -> Path:
        script = REPOSITORY / "deploy/extension/build.py"
        command = [sys.executable, str(script), "--source", str(source), "--output", str(output)]
        done = subprocess.run([*command, "here"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    return build_from


@pytest.fixture(scope="session")
def package(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(REPOSITORY, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed program stays between tests, as on a VM; everything else is new."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture
def vm(disk: Path) -> Iterator[Layout]:
    for name in ("etc", "run", "usr", "var"):
        shutil.rmtree(disk / name, ignore_errors=True)
    layout = Layout(disk)
    layout.current.unlink(missing_ok=True)
    program, spare = layout.programs / VERSION, disk / "spare"
    for other in set(layout.programs.glob("*")) - {program}:
        files.remove(other)
    _copy(spare, program)
    yield layout
    Installation(layout).disable()
    _copy(program, spare)


def _copy(program: Path, place: Path) -> None:
    """An installed program, so that a test which removes it costs the next one nothing."""
    if (program / ".complete").exists() and not place.exists():
        shutil.copytree(program, place, symlinks=True, copy_function=os.link)


@pytest.fixture
def guest_agent(vm: Layout, tmp_path: Path) -> GuestAgent:
    return GuestAgent(tmp_path / "waagent", vm.root)


@pytest.fixture
def handler(guest_agent: GuestAgent, package: Path) -> Handler:
    return guest_agent.unpack(package)


@pytest.fixture
def free_port() -> int:
    return mosquitto.free_port()


@pytest.fixture
def away(free_port: int) -> dict[str, object]:
    """Public settings with which neither IMDS nor the broker can be reached."""
    return {
        "imds": {"endpoint": "http://127.0.0.1:9"},
        "mqtt": {"host": "127.0.0.1", "port": 9},
        "http": {"listen": f"127.0.0.1:{free_port}"},
    }
