"""The unit under systemd's own checks, and what systemctl is told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.service.installation import Installation
from bridge.service.layout import Layout
from bridge.service.systemd import unit

REPOSITORY = Path(__file__).parents[2]
UNIT = REPOSITORY / "deploy/systemd/sebridge.service"
EXPOSURE_MAX = 1.2

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="Debian's package systemd is not installed"
)


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_systemd
def test_unit_is_hardened() -> None:
    """systemd's own score of what the process may still do stays low."""
    threshold = f"--threshold={round(EXPOSURE_MAX * 10)}"

    done = analyze("security", "--offline=true", "--no-pager", threshold, str(UNIT))

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "Overall exposure level" in done.stdout


@needs_systemd
def test_unit_is_valid(tmp_path: Path) -> None:
    """No unknown key, no bad value, and the program is where the unit says."""
    program = tmp_path / "opt/sebridge/current/bin/sebridge"
    folder = tmp_path / "usr/lib/systemd/system"
    for path in (program.parent, folder):
        path.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / UNIT.name).write_text(unit())
    for target in ("network", "sysinit", "basic", "shutdown", "multi-user"):
        (folder / f"{target}.target").write_text("[Unit]\nDescription=Test\n")
    (folder / "-.mount").write_text("")

    done = analyze("verify", "--man=no", f"--root={tmp_path}", UNIT.name)

    assert (0, "") == (done.returncode, done.stderr)


def test_unit_in_deploy_is_the_one_that_is_installed() -> None:
    """There is one unit; the folder for readers shows it."""
    assert UNIT.read_text() == unit()


@pytest.fixture
def vm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A VM whose systemctl writes down what it is told, and knows whether the unit is active."""
    layout = Layout(tmp_path / "vm")
    (layout.root / "run/systemd/system").mkdir(parents=True)
    script = tmp_path / "bin/systemctl"
    script.parent.mkdir()
    script.write_text(f"""#!/bin/sh
cd {tmp_path}
case $1 in
is-active) test -e active; exit ;;
restart) [ -e broken ] && echo "Job for $2 failed." >&2 && exit 1; touch active ;;
disable) rm -f active ;;
esac
echo "$*" >>calls
""")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return layout


def calls(vm: Layout) -> list[str]:
    log = vm.root.parent / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def test_systemd_is_told_each_thing_once(vm: Layout) -> None:
    """Install makes the unit known, enable starts it, and repeats of both are silent."""
    installation = Installation(vm)
    installation.install(Path(sys.prefix))
    assert unit() == vm.unit.read_text()
    assert ["daemon-reload"] == calls(vm)

    assert installation.enable()
    assert ["enable sebridge.service", "restart sebridge.service"] == calls(vm)

    installation.install(Path(sys.prefix))
    assert not installation.enable()
    assert [] == calls(vm)

    installation.disable()
    installation.uninstall(Path(sys.prefix))
    assert ["disable --now sebridge.service"] * 2 + ["daemon-reload"] == calls(vm)
    assert not vm.unit.exists()


def test_systemd_failure_is_told_with_the_next_step(vm: Layout) -> None:
    """What systemctl said, and where to read on; the next enable tries again."""
    command = [sys.executable, "-m", "bridge", "service"]
    (vm.root.parent / "broken").touch()
    subprocess.run([*command, "install", "--root", str(vm.root)], check=True, capture_output=True)

    done = subprocess.run(
        [*command, "enable", "--root", str(vm.root)], capture_output=True, text=True, check=False
    )

    assert 1 == done.returncode
    assert "Job for sebridge.service failed." in done.stderr
    assert "journalctl -u sebridge.service" in done.stderr
    (vm.root.parent / "broken").unlink()
    assert Installation(vm).enable()


def test_secrets_are_read_where_load_credential_puts_them(vm: Layout) -> None:
    """LoadCredential= of a folder gives each file the folder's id as a prefix."""
    assert "LoadCredential=secrets:/etc/sebridge/secrets\n" in unit()
    expected = Path("/run/credentials/sebridge.service/secrets_mqtt.password")
    assert expected == Installation(vm).runtime.secret_path("mqtt.password")
