"""A process with many agents, each whole: its own ledger, IMDS connection and MQTT connection.

`python -m bridge.fleet.worker JSON`, until SIGTERM. Agents start spread over time, as machines do.
SIGUSR1 says that all of them are up: what lives now stays.
"""

import asyncio
import contextlib
import gc
import logging
import random
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bridge.app import Agent
from bridge.config import Commands, Config, Http, Imds, Mqtt, Store

# Ledger, its WAL, IMDS, MQTT, and what SQLite opens now and then.
_FILES_PER_AGENT = 8
# Python's own 700 is reached every hundred polls, and a worker makes thousands a second.
_GC_THRESHOLD = 20_000


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Which agents of the fleet are this worker's."""

    first: int
    count: int
    endpoint: str
    mqtt_host: str
    mqtt_port: int
    folder: str
    start_s: float  # all of them are started within this time

    def config(self, number: int) -> Config:
        return Config(
            imds=Imds(endpoint=f"{self.endpoint}/vm/{number}"),
            store=Store(path=str(Path(self.folder) / str(number) / "state.db")),
            commands=Commands(source="mqtt"),
            mqtt=Mqtt(host=self.mqtt_host, port=self.mqtt_port),
            http=Http(listen=""),
        )


async def run(share: Share) -> None:
    # One look through the objects of all agents stops every one of them for up to a second.
    gc.disable()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, _settle)
    async with asyncio.TaskGroup() as group:
        for number in range(share.first, share.first + share.count):
            group.create_task(_agent(share, number, stop))


def _settle() -> None:
    """From now on only what is new is looked through."""
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    gc.enable()


async def _agent(share: Share, number: int, stop: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), random.uniform(0, share.start_s))
    if not stop.is_set():
        await Agent(share.config(number)).run(stop)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def main() -> None:
    share = msgspec.json.decode(sys.argv[1], type=Share)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(hard, share.count * _FILES_PER_AGENT + 100), hard)
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(share))


if __name__ == "__main__":
    main()
