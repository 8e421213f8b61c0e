"""The command line: parsing, exit codes, one function a command.

Exit codes: 0 fine, 1 failed, 2 bad usage or configuration; `approve` adds 3 and 4.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, TypeVar

import msgspec

from bridge import configfile
from bridge.config import Config
from bridge.errors import BridgeError, ConfigError
from bridge.version import VERSION

DEFAULT_CONFIG = "/etc/sebridge/config.toml"
_Answer = TypeVar("_Answer")
_PORT_MAX = 65_535
_SECONDS_MAX = 31_536_000.0  # a year, as in the configuration


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = args.function
    try:
        return command(args)
    except ConfigError as error:
        print(f"sebridge: {error}", file=sys.stderr)
        return 2
    except BridgeError as error:
        print(f"sebridge: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sebridge", description="Azure Scheduled Events on your own message bus."
    )
    parser.add_argument("--version", action="version", version=f"sebridge {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: Callable[[argparse.Namespace], int], text: str) -> Any:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(
            "--config", metavar="FILE", default=DEFAULT_CONFIG, help="TOML; default: %(default)s"
        )
        command.set_defaults(function=function)
        return command

    add("run", _run, "the agent: poll, publish, take approvals, until SIGTERM")
    watch = add("watch", _watch, "live tail of events and outcomes from the broker")
    watch.add_argument("--json", action="store_true", help="one CloudEvent a line")
    add("console", _console, "the fleet's web console, until SIGTERM")
    approve = add("approve", _approve, "approve an event and wait for the outcome")
    _add_approve_arguments(approve.add_argument)
    for name, function, text in (
        ("status", _status, "on the VM: pending events, outbox, last poll, connections"),
        ("audit", _audit, "on the VM: the approval ledger"),
    ):
        as_json = "one JSON value a line"
        add(name, function, text).add_argument("--json", action="store_true", help=as_json)
    from bridge.fleet import command as fleet  # noqa: PLC0415
    from bridge.simulator import command as simulator  # noqa: PLC0415

    text = simulator.DESCRIPTION
    simulate = commands.add_parser("simulate", help=text, description=text)
    simulator.add_arguments(simulate)
    fleet.add_arguments(simulate)
    simulate.set_defaults(function=lambda args: (fleet if args.fleet else simulator).run(args))
    doctor = add("doctor", _doctor, "check IMDS, clock, ledger, broker and topics; say what to do")
    doctor.add_argument("--json", action="store_true", help="one finding a line")
    text = "everything on one machine, with a story to watch: simulator, broker, agents, console"
    demo = commands.add_parser("demo", help=text, description=text)
    demo.add_argument("--headless", action="store_true", help="plain lines instead of a screen")
    demo.add_argument("--duration", type=_seconds, metavar="S", help="default: until Ctrl-C")
    demo.add_argument("--port", type=_port, default=0, help="of the MQTT broker; 0: any free one")
    demo.set_defaults(function=_demo)
    text = "keys for signed commands"
    keys = commands.add_parser("keys", help=text, description=text)
    from bridge import keys as key_files  # noqa: PLC0415

    key_files.add_arguments(keys, DEFAULT_CONFIG)
    text = "install, start, stop, remove the agent here"
    service = commands.add_parser("service", help=text, description=text)
    from bridge.service import command as service_command  # noqa: PLC0415

    service_command.add_arguments(service)
    service.set_defaults(function=service_command.run)
    add("check-config", _check_config, "validate; print what is in force, secrets masked")
    return parser


def _add_approve_arguments(add: Callable[..., object]) -> None:
    add("event_id", metavar="EVENT_ID", type=_not_empty)
    add("--vm", metavar="NAME", default="", help="the VM to ask; default: the event's leader")
    add("--key", default="", help="idempotency key; default: a new one")
    add("--reason", metavar="TEXT", default="", help="why, for the audit trail")
    add("--key-file", metavar="FILE", default="", help="sign with this private key (PEM)")
    text = "for the outcome, and until the command expires; default: %(default)g"
    add("--timeout", type=_seconds, default=60.0, metavar="S", help=text)


def _not_empty(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port (0 to {_PORT_MAX})")
    return int(text)


def _run(args: argparse.Namespace) -> int:
    from bridge import app, log  # noqa: PLC0415

    config = configfile.load(args.config)
    log.configure(config.log)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(app.run(config))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _watch(args: argparse.Namespace) -> int:
    from bridge import consumer, feed_choice  # noqa: PLC0415

    _leave_complaints_to_the_command()

    async def watch() -> None:
        feed = feed_choice.make_feed(configfile.load(args.config))
        watching = asyncio.ensure_future(consumer.watch(feed, as_json=args.json))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, watching.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    asyncio.run(watch())
    return 0


def _approve(args: argparse.Namespace) -> int:
    from bridge import consumer, feed_choice, keys  # noqa: PLC0415

    request = consumer.ApprovalRequest(
        event_id=args.event_id,
        vm=args.vm,
        key=args.key,
        reason=args.reason,
        timeout_s=args.timeout,
    )
    config, sign = configfile.load(args.config), keys.signer(args.key_file)
    _leave_complaints_to_the_command()

    async def approve() -> int:
        return await consumer.approve(feed_choice.make_feed(config), request, sign)

    return asyncio.run(approve())


def _leave_complaints_to_the_command() -> None:
    """What the feed logs, `watch` and `approve` print by themselves; nobody needs it twice."""
    logging.getLogger().addHandler(logging.NullHandler())


def _console(args: argparse.Namespace) -> int:
    from bridge import feed_choice, log  # noqa: PLC0415
    from bridge.console import server  # noqa: PLC0415

    config = configfile.load(args.config)
    log.configure(config.log)

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        feed = feed_choice.make_feed(config)
        await server.serve(config, feed, stop=stop, on_ready=_print_address)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve())
    return 0


def _print_address(url: str) -> None:
    print(f"console at {url}", flush=True)


def _status(args: argparse.Namespace) -> int:
    status = _ask_agent(configfile.load(args.config), "/status", dict[str, Any])
    if "poll" not in status:
        raise BridgeError("what answers at http.listen is no agent: it tells of no poll")
    if args.json:
        print(msgspec.json.encode(status).decode())
        return 0
    from bridge import views  # noqa: PLC0415

    print(views.status(status))
    return 0


def _audit(args: argparse.Namespace) -> int:
    rows = _ask_agent(configfile.load(args.config), "/audit", list[dict[str, Any]])
    if args.json:
        for row in rows:
            print(msgspec.json.encode(row).decode())
        return 0
    from bridge import views  # noqa: PLC0415

    print(views.audit(rows))
    return 0


def _ask_agent(config: Config, path: str, shape: type[_Answer]) -> _Answer:
    """The agent holds its ledger alone, so it is asked rather than the file."""
    if not config.http.listen:
        raise ConfigError("http.listen is empty: the running agent cannot be asked")
    host, port = config.http.address()
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    import urllib.error  # noqa: PLC0415 - `run` never asks, and need not load it
    import urllib.request  # noqa: PLC0415

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return msgspec.json.decode(answer.read(), type=shape)
    except (urllib.error.HTTPError, HTTPException, msgspec.DecodeError, UnicodeError) as error:
        raise BridgeError(
            f"what answers at {url} is no agent: {error}; check http.listen"
        ) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise BridgeError(f"no agent answers at {url}: {reason}; is `sebridge run` up?") from error


def _doctor(args: argparse.Namespace) -> int:
    from bridge.doctor import command  # noqa: PLC0415

    return asyncio.run(command.run(args.config, as_json=args.json))


def _demo(args: argparse.Namespace) -> int:
    try:
        from bridge.demo import run as demo  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BridgeError(
            f"the demo needs {error.name}: pip install 'scheduled-events-bridge[demo]'"
        ) from error
    playing = demo.run(headless=args.headless, duration_s=args.duration or 0, port=args.port)
    print(asyncio.run(playing))
    return 0


def _check_config(args: argparse.Namespace) -> int:
    config = configfile.load(args.config)
    from bridge import views  # noqa: PLC0415

    if config.commands.trusted_keys:
        from bridge.signatures import Verifier  # noqa: PLC0415

        Verifier.load(config.commands)
    print(views.configuration(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
