"""The agent as a systemd unit, with systemctl as the only way to talk about it."""

import subprocess
from importlib import resources
from pathlib import Path

from bridge.errors import ServiceError
from bridge.service import files
from bridge.service.layout import UNIT_NAME, Layout

# Longer than TimeoutStartSec and TimeoutStopSec of the unit together.
_SYSTEMCTL_S_MAX = 90.0


class Systemd:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def install(self) -> None:
        if files.read(self._layout.unit) != unit():
            files.write(self._layout.unit, unit(), 0o644)
            self._systemctl("daemon-reload")

    def start(self) -> None:
        self._systemctl("enable", UNIT_NAME)
        self._systemctl("restart", UNIT_NAME)

    def stop(self) -> None:
        if self._layout.unit.exists():
            self._systemctl("disable", "--now", UNIT_NAME)

    def remove(self) -> None:
        files.remove(self._layout.unit)
        self._systemctl("daemon-reload")

    @property
    def is_running(self) -> bool:
        return self._run("is-active", "--quiet", UNIT_NAME).returncode == 0

    def secret_path(self, name: str) -> Path:
        """systemd.exec(5), LoadCredential=: a folder's files get its id and `_` as prefix."""
        return Path("/run/credentials", UNIT_NAME, f"secrets_{name}")

    def _systemctl(self, *arguments: str) -> None:
        done = self._run(*arguments)
        if done.returncode != 0:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            raise ServiceError(
                f"systemctl {' '.join(arguments)}: {said}; see `journalctl -u {UNIT_NAME}`"
            )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", *arguments]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, timeout=_SYSTEMCTL_S_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceError(f"{' '.join(command)}: {error}") from error


def unit() -> str:
    """The unit file, the same text that deploy/systemd/ shows."""
    return resources.files("bridge.service").joinpath(UNIT_NAME).read_text(encoding="utf-8")
