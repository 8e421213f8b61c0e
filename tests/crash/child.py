"""The real agent, with counting proxies around store and POST; dies at the n-th step.

Usage: python -m tests.crash.child CONFIG KILL_AT (0: live on). Product code has no hooks.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bridge import app, configfile, log, start_request
from bridge.store import Store
from bridge.transports.stdout import StdoutSink

WRITES = (
    "recover",
    "record",
    "accept",
    "answer",
    "replay",
    "begin_post",
    "finish_post",
    "reject_accepted",
    "mark_sent",
    "set_identity",
    "set_sinks",
)


class Steps:
    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at
        self._count = 0

    def step(self) -> None:
        self._count += 1
        if self._count == self._kill_at:
            os._exit(9)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result

        return wrapped

    def around_async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = await function(*args, **kwargs)
            self.step()
            return result

        return wrapped


def main() -> None:
    config, steps = configfile.load(sys.argv[1]), Steps(int(sys.argv[2]))
    log.configure(config.log)
    for name in WRITES:
        setattr(Store, name, steps.around(getattr(Store, name)))
    connection = start_request.StartRequestConnection
    connection.post = steps.around_async(connection.post)  # type: ignore[method-assign]
    StdoutSink.publish = steps.around_async(StdoutSink.publish)  # type: ignore[method-assign]
    asyncio.run(app.run(config))


if __name__ == "__main__":
    main()
