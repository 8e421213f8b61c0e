"""Where everything lies on the VM. A `root` other than / moves all of it, for tests."""

import dataclasses
import os
from pathlib import Path

UNIT_NAME = "sebridge.service"
ROOT_VARIABLE = "SEBRIDGE_ROOT"


@dataclasses.dataclass(frozen=True)
class Layout:
    root: Path = Path("/")

    @classmethod
    def from_environment(cls) -> "Layout":
        return cls(Path(os.environ.get(ROOT_VARIABLE) or "/"))

    @property
    def programs(self) -> Path:
        """One virtual environment a version, and `current`, a link to the one in use."""
        return self.root / "opt/sebridge"

    @property
    def current(self) -> Path:
        return self.programs / "current"

    @property
    def applied(self) -> Path:
        """What the running agent was started with, as a hash: root's alone, secrets are in it."""
        return self.programs / "applied"

    @property
    def command(self) -> Path:
        return self.root / "usr/local/bin/sebridge"

    @property
    def settings(self) -> Path:
        return self.root / "etc/sebridge"

    @property
    def configuration(self) -> Path:
        return self.settings / "config.toml"

    @property
    def secrets(self) -> Path:
        return self.settings / "secrets"

    @property
    def state(self) -> Path:
        """The ledger's folder. With DynamicUser= systemd makes it a link into `private_state`."""
        return self.root / "var/lib/sebridge"

    @property
    def private_state(self) -> Path:
        return self.root / "var/lib/private/sebridge"

    @property
    def heartbeat(self) -> Path:
        return self.state / "heartbeat.json"

    @property
    def runtime(self) -> Path:
        return self.root / "run/sebridge"

    @property
    def pid_file(self) -> Path:
        return self.runtime / "agent.pid"

    @property
    def lock(self) -> Path:
        return self.runtime / "service.lock"

    @property
    def log(self) -> Path:
        return self.root / "var/log/sebridge.log"

    @property
    def unit(self) -> Path:
        return self.root / "etc/systemd/system" / UNIT_NAME

    @property
    def has_systemd(self) -> bool:
        """As sd_booted(3) tells it."""
        return (self.root / "run/systemd/system").is_dir()
