"""The two ways to keep the agent running: a systemd unit, or a process of its own."""

from pathlib import Path
from typing import Protocol

from bridge.service.detached import Detached
from bridge.service.layout import Layout
from bridge.service.systemd import Systemd


class Runtime(Protocol):
    def install(self) -> None:
        """Make the runtime know the agent, without starting it."""

    def start(self) -> None:
        """Start or restart, and come back when the agent is ready; raise if it is not."""

    def stop(self) -> None:
        """Stop the agent, now and at the next boot. Nothing to stop is fine."""

    def remove(self) -> None:
        """Forget the agent. It is stopped."""

    @property
    def is_running(self) -> bool: ...

    def secret_path(self, name: str) -> Path:
        """Where the agent reads a secret that lies in the layout's `secrets` folder."""
        ...


def choose(layout: Layout) -> Runtime:
    return Systemd(layout) if layout.has_systemd else Detached(layout)
