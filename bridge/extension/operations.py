"""The five commands of HandlerManifest.json.

Update order, as the guest agent has it: disable(old), update(new), uninstall(old), install(new),
enable(new). uninstall(old) cannot know that it is part of an update; it finds out, because the
version in use is then another one, and leaves alone what all versions share.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from bridge.extension import configuration, report, settings
from bridge.extension.environment import HandlerEnvironment
from bridge.service import files, package
from bridge.service.installation import Installation
from bridge.version import VERSION


@dataclasses.dataclass(frozen=True)
class Extension:
    environment: HandlerEnvironment
    sequence: int
    installation: Installation

    @property
    def program(self) -> Path:
        return self.installation.layout.programs / VERSION


def install(extension: Extension) -> str:
    wheels = extension.environment.root / "wheels"
    extension.installation.install(package.install(extension.installation.layout, wheels))
    return f"sebridge {VERSION} is installed"


def enable(extension: Extension) -> str:
    """Called again after every boot and goal state: an agent that runs as told is left alone."""
    report.write_status(
        extension.environment, extension.sequence, "Enable", "transitioning", "starting the agent"
    )
    install(extension)  # nothing to do, unless the VM's Python is another one now
    found = settings.read(extension.environment, extension.sequence)
    layout, runtime = extension.installation.layout, extension.installation.runtime
    wanted = configuration.build(found, layout, runtime.secret_path)
    extension.installation.configure(wanted.text, wanted.secrets)
    started = extension.installation.enable()
    report.show_agents_heartbeat(extension.environment, layout)
    files.write(extension.environment.root / "mrseq", f"{extension.sequence}\n", 0o644)
    message = f"sebridge {VERSION} {'is started' if started else 'runs already'}"
    report.write_status(extension.environment, extension.sequence, "Enable", "success", message)
    return message


def disable(extension: Extension) -> str:
    extension.installation.disable()
    report.say_not_ready(extension.environment, "the agent is stopped")
    return "the agent is stopped"


def update(extension: Extension) -> str:
    """Makes this version the one in use; `enable` starts it."""
    return install(extension)


def uninstall(extension: Extension) -> str:
    installation = extension.installation
    if installation.is_current(extension.program):
        installation.forget_secrets()
    installation.uninstall(extension.program)
    return f"sebridge {VERSION} is removed; {installation.layout.state} is kept"


OPERATIONS: dict[str, Callable[[Extension], str]] = {
    "install": install,
    "enable": enable,
    "disable": disable,
    "update": update,
    "uninstall": uninstall,
}
