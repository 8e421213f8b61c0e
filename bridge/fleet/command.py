"""`sebridge simulate --fleet N`: arguments, and the figures as a table or as JSON."""

import argparse
import asyncio
import os
import resource
import sys
from typing import Any

import msgspec

from bridge.errors import BridgeError, ConfigError

_TITLES = {
    "start_s": "all online and polling, s",
    "polls_a_s": "polls a second",
    "polls_kept": "of one a second and agent",
    "agent_cpu_ms_a_poll": "agents' CPU a poll, ms",
    "agent_cores": "agents' CPU, cores",
    "broker_cores": "broker's CPU, cores",
    "driver_cores": "driver's CPU, cores",
    "kb_an_agent": "memory an agent, KB",
    "mass_published_s": "mass event, all published, s",
    "mass_approved_s": "mass event, all approved, s",
    "storm_back_all_s": "broker restart, all back, s",
    "storm_published_s": "and all published, s",
    "storm_approved_s": "and all approved, s",
}
_FAULTS = ("lost", "twice", "posted_twice", "not_posted")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a fleet of agents, instead of a scale set's IMDS").add_argument
    add(
        "--fleet", type=int, default=0, metavar="N", help="drive N whole agents, print figures, end"
    )
    add(
        "--mqtt",
        default="",
        metavar="HOST:PORT",
        help="the broker; default: a mosquitto of its own",
    )
    add("--processes", type=int, default=os.cpu_count() or 1, help="for the agents: %(default)s")
    add("--steady", type=float, default=20.0, metavar="S", help="how long nothing happens")
    add("--patience", type=float, default=300.0, metavar="S", help="for each act")
    add("--json", action="store_true", help="figures as one JSON object")


def run(args: argparse.Namespace) -> int:
    # The drill loads everything; the other commands get by with the arguments.
    from bridge.fleet.drill import Drill, Plan  # noqa: PLC0415
    from bridge.fleet.worker import loop_factory  # noqa: PLC0415

    if args.fleet < 1:
        raise ConfigError(f"--fleet {args.fleet}: at least one agent is needed")
    plan = Plan(
        agents=args.fleet,
        processes=max(1, min(args.processes, args.fleet)),
        mqtt=_address(args.mqtt) if args.mqtt else None,
        steady_s=args.steady,
        patience_s=args.patience,
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        figures = runner.run(Drill(plan, _say).run())
    sys.stdout.write(_json(figures) if args.json else _table(figures))
    faults = [name for name in figures if name.endswith(_FAULTS) and figures[name]]
    if faults:
        raise BridgeError(f"the fleet broke its promises: {', '.join(faults)}")
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--mqtt {text}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def _json(figures: dict[str, Any]) -> str:
    return msgspec.json.encode(figures).decode() + "\n"


def _table(figures: dict[str, Any]) -> str:
    rows = [(title, f"{figures[name]:.4g}") for name, title in _TITLES.items() if name in figures]
    rows += [
        (name.replace("_", " "), str(figures[name])) for name in figures if name.endswith(_FAULTS)
    ]
    width = max(len(title) for title, _ in rows)
    return "".join(f"{title:<{width}}  {value:>9}\n" for title, value in rows)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
