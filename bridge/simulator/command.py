"""`sebridge simulate`: arguments, the lines it prints, and its end by signal."""

import argparse
import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from bridge.simulator.model import POLICIES
from bridge.simulator.scenarios import SCENARIOS
from bridge.simulator.settings import INSTANCES, Settings, SettingsError, parse_listen

if TYPE_CHECKING:
    from bridge.simulator.server import Simulator

EXIT_FINE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

API_VERSION = "2020-07-01"
DESCRIPTION = "the IMDS and scale-set simulator, with its control API"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", default="", help="port 0: any free one, printed")
    add("--scale-set", metavar="NAME", default="web", help="VMs are called NAME_ID")
    add("--instances", metavar="IDS", default=INSTANCES, help="ids by zone: %(default)s")
    add("--policy", metavar="POLICY", default="Default", help=f"one of {', '.join(POLICIES)}")
    add(
        "--terminate-notification",
        metavar="DURATION",
        default="",
        help="PT5M to PT15M, or off (default PT5M; off with --spot)",
    )
    add("--speed", type=float, default=1.0, help="simulated seconds in a real one")
    add(
        "--shorten",
        metavar="N",
        type=float,
        default=1.0,
        help="divide notices and durations; the clock stays real, as that of the agents",
    )
    add("--scenario", metavar="NAME", default="", help=f"one of {', '.join(SCENARIOS)}")
    add(
        "--first-call-delay",
        metavar="S",
        type=float,
        default=0.0,
        help="real seconds that the first call takes; Azure: up to 120",
    )
    add(
        "--requests-per-s-max",
        metavar="N",
        type=int,
        default=5,
        help="a VM, in real time, then 429; 0: no limit",
    )
    add("--spot", action="store_true", help="spot VMs: Preempt, no terminate notification")


def run(args: argparse.Namespace) -> int:
    if not args.listen:
        return _fail(EXIT_USAGE, "--listen HOST:PORT is missing")
    try:
        asyncio.run(_serve(_settings(args)))
    except SettingsError as failure:
        return _fail(EXIT_USAGE, str(failure))
    except OSError as failure:
        return _fail(EXIT_FAILED, f"cannot listen on {args.listen}: {failure}")
    return EXIT_FINE


def _settings(args: argparse.Namespace) -> Settings:
    host, port = parse_listen(args.listen)
    return Settings(
        host=host,
        port=port,
        scale_set=args.scale_set,
        instances=args.instances,
        policy=args.policy,
        terminate_notification=args.terminate_notification,
        spot=args.spot,
        speed=args.speed,
        shorten=args.shorten,
        scenario=args.scenario,
        first_call_delay_s=args.first_call_delay,
        requests_per_s_max=args.requests_per_s_max,
    )


async def _serve(settings: Settings) -> None:
    # The web server is for those who simulate; the other commands get by with the arguments.
    from bridge.simulator.server import start  # noqa: PLC0415

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Before the first line is out: whoever reads it may send the signal at once.
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopped.set)
    simulator = await start(settings)
    try:
        sys.stdout.write(_announcement(simulator))
        sys.stdout.flush()
        await stopped.wait()
    finally:
        await simulator.stop()


def _announcement(simulator: "Simulator") -> str:
    fleet = simulator.world.fleet
    endpoint = simulator.endpoint(fleet.vms[0].name)
    document = f"{endpoint}/metadata/scheduledevents?api-version={API_VERSION}"
    lines = (
        f"simulator  {simulator.url}  ({len(fleet.vms)} VMs of scale set {fleet.scale_set})",
        f"endpoint   {endpoint}  (imds.endpoint of that VM's agent)",
        f"document   curl -H Metadata:true '{document}'",
        f"control    {simulator.url}/control/state",
    )
    return "\n".join(lines) + "\n"


def _fail(code: int, message: str) -> int:
    sys.stderr.write(f"sebridge simulate: {message}\n")
    return code
