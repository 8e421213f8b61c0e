"""`sebridge service`: arguments and what is printed; the work is in `installation`."""

import argparse
import sys
from pathlib import Path

from bridge.errors import BridgeError, ConfigError, ServiceError
from bridge.service import package
from bridge.service.installation import Installation
from bridge.service.layout import Layout
from bridge.version import VERSION

_OPERATIONS = {
    "install": "put this version in place; starts nothing",
    "enable": "start the agent, now and at every boot",
    "disable": "stop the agent, now and at the next boot",
    "update": "put this version in place, and restart the agent if it runs",
    "uninstall": "stop and remove the agent; configuration and ledger stay",
}
_TAKES_CONFIG = ("install", "enable", "update")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operations = parser.add_subparsers(required=True, metavar="OPERATION", dest="operation")
    for name, text in _OPERATIONS.items():
        operation = operations.add_parser(name, help=text, description=text)
        operation.add_argument("--root", default="", metavar="DIR", help=argparse.SUPPRESS)
        if name in _TAKES_CONFIG:
            operation.add_argument("--config", metavar="FILE", help="becomes the configuration")
        if name == "uninstall":
            operation.add_argument(
                "--purge", action="store_true", help="configuration, secrets and ledger go, too"
            )


def run(args: argparse.Namespace) -> int:
    layout = Layout(Path(args.root)) if args.root else Layout.from_environment()
    installation = Installation(layout)
    try:
        with installation.locked():
            print(_operate(installation, args))  # noqa: T201 - a command line prints
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise ServiceError(f"{where}{error.strerror or error}; are you root?") from error
    return 0


def main(arguments: list[str]) -> int:
    """`sebridge service` before anything is installed: straight from the package."""
    parser = argparse.ArgumentParser(prog="sebridge-setup service")
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except BridgeError as error:
        print(f"sebridge: {error}", file=sys.stderr)  # noqa: T201 - a command line prints
        return 2 if isinstance(error, ConfigError) else 1


def _operate(installation: Installation, args: argparse.Namespace) -> str:
    match args.operation:
        case "install":
            installation.install(_program(installation.layout))
            _configure(installation, args.config)
            return f"sebridge {VERSION} is installed"
        case "enable":
            _configure(installation, args.config)
            started = installation.enable()
            return "the agent is started" if started else "the agent runs already"
        case "disable":
            installation.disable()
            return "the agent is stopped"
        case "update":
            installation.update(_program(installation.layout))
            if args.config:
                _configure(installation, args.config)
                installation.enable()
            return f"sebridge {VERSION} is in place"
        case _:
            installation.uninstall(_place(installation.layout), purge=args.purge)
            kept = "" if args.purge else f"; {installation.layout.state} is kept"
            return f"sebridge is removed{kept}"


def _program(layout: Layout) -> Path:
    """The virtual environment that this command runs in, or a new one from the package."""
    wheels = package.find_wheels()
    return package.install(layout, wheels) if wheels else Path(sys.prefix)


def _place(layout: Layout) -> Path:
    return layout.programs / VERSION if package.find_wheels() else Path(sys.prefix)


def _configure(installation: Installation, config: str | None) -> None:
    if config is None or Path(config).resolve() == installation.layout.configuration.resolve():
        return
    try:
        text = Path(config).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {config}: {error}") from error
    installation.configure(text)
