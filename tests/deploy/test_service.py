"""`sebridge service` on a VM without systemd: a process of its own, and who may be signalled."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import ServiceError
from bridge.service.installation import Installation
from bridge.service.layout import Layout
from bridge.service.process import Process

# Installs of real wheels: seconds on a quiet machine, a minute on a busy one.
pytestmark = pytest.mark.timeout(240)

PROGRAM = Path(sys.prefix)


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Layout]:
    layout = Layout(tmp_path / "vm")
    yield layout
    Installation(layout).disable()


@pytest.fixture
def config(vm: Layout, tmp_path: Path, free_port: int) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(f"""
imds.endpoint = "http://127.0.0.1:9"
mqtt.port = 9
store.path = "{vm.state}/state.db"
http.listen = "127.0.0.1:{free_port}"
""")
    return path


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def service(vm: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bridge", "service", *arguments, "--root", str(vm.root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def running(vm: Layout) -> Process | None:
    process = Process.parse(vm.pid_file.read_text()) if vm.pid_file.exists() else None
    return process if process and process.is_alive else None


def test_service_lives_from_install_to_purge(vm: Layout, config: Path) -> None:
    """Each operation does what it says, and once only."""
    assert "is installed" in service(vm, "install", "--config", str(config)).stdout
    assert running(vm) is None
    assert "the agent is started" in service(vm, "enable").stdout
    first = running(vm)
    assert "the agent runs already" in service(vm, "enable").stdout
    assert first
    assert first == running(vm)
    assert "is in place" in service(vm, "update").stdout
    assert first == running(vm)
    assert "the agent is stopped" in service(vm, "disable").stdout
    assert running(vm) is None
    assert f"{vm.state} is kept" in service(vm, "uninstall").stdout
    assert (vm.state / "state.db").exists()
    assert config.read_text() == vm.configuration.read_text()
    assert 0 == service(vm, "uninstall", "--purge").returncode
    assert not vm.state.exists()
    assert not vm.settings.exists()
    assert PROGRAM.exists()


def test_enable_with_a_bad_file_changes_nothing(vm: Layout, config: Path, tmp_path: Path) -> None:
    """The file is checked before it becomes the configuration."""
    service(vm, "install", "--config", str(config))
    bad = tmp_path / "bad.toml"
    bad.write_text("mqtt.prot = 1")

    done = service(vm, "enable", "--config", str(bad))

    assert 2 == done.returncode
    assert f"{vm.configuration}: mqtt.prot: unknown key" in done.stderr
    assert config.read_text() == vm.configuration.read_text()
    assert running(vm) is None


@pytest.mark.parametrize("operation", ["enable", "disable", "uninstall"])
def test_operations_on_nothing(vm: Layout, operation: str) -> None:
    """Stopping and removing what is not there is fine; starting it is not."""
    done = service(vm, operation)

    assert (1 if operation == "enable" else 0) == done.returncode
    assert ("service install" in done.stderr) == (operation == "enable")


def test_changed_secret_restarts_the_agent(vm: Layout, config: Path) -> None:
    """A new password counts from the next enable, though the configuration is the same."""
    service(vm, "install", "--config", str(config))
    service(vm, "enable")
    first = running(vm)
    (vm.secrets / "password").write_text("new")

    done = service(vm, "enable")

    assert "the agent is started" in done.stdout
    assert running(vm) not in (None, first)


def test_stop_signals_only_the_process_that_was_started(
    vm: Layout, stranger: subprocess.Popen[bytes]
) -> None:
    """A number that the kernel gave to somebody else is not ours to end."""
    found = Process.of(stranger.pid)
    assert found
    vm.runtime.mkdir(parents=True)
    for text in (
        str(Process(found.pid, "1", found.boot)),  # the number, at another time
        str(Process(found.pid, found.started, "another-boot")),
        str(found),  # the very process, but it is no agent
        f"{found.pid}",
    ):
        vm.pid_file.write_text(text)

        assert not Installation(vm).runtime.is_running
        Installation(vm).disable()

        assert stranger.poll() is None


def test_process_that_waits_to_be_reaped_is_gone() -> None:
    """A zombie has a number and a start time, but it runs nothing."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert Process.of(child.pid) is None


def test_update_that_does_not_start_goes_back(vm: Layout, config: Path, tmp_path: Path) -> None:
    """A new version that cannot run must not end the old one's work."""
    service(vm, "install", "--config", str(config))
    service(vm, "enable")
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    script = f'#!/bin/sh\n[ "$1" = run ] && exit 3\nexec {PROGRAM}/bin/sebridge "$@"\n'
    (broken / "bin/sebridge").write_text(script)
    (broken / "bin/sebridge").chmod(0o755)

    update = (
        "import sys; from pathlib import Path as P; from bridge.service import installation as i"
    )
    update += "; i.Installation(i.Layout(P(sys.argv[1]))).update(P(sys.argv[2]))"
    command = [sys.executable, "-c", update, str(vm.root), str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "ServiceError: the agent ended at once with exit code 3: it said nothing" in done.stderr
    assert PROGRAM == vm.current.readlink()
    assert running(vm)


def test_install_refuses_a_program_that_the_unit_cannot_see() -> None:
    """The unit hides home folders, so a program there would never start."""
    with pytest.raises(ServiceError) as caught:
        Installation(Layout()).install(Path("/home/me/.venv"))

    assert "/home/me/.venv" in str(caught.value)
