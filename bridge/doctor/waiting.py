"""Waiting for what may never come: a resolver, a dead mount, a silent peer.

asyncio's own worker threads are joined at the end of the program, so one that hangs in the
kernel would hold the doctor for ever. The threads here are left behind.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_thread(function: Callable[..., Result], *arguments: Any, seconds: float) -> Result:
    """The function's result or error, or TimeoutError."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: object) -> None:
        if not future.done():
            setter(value)

    def work() -> None:
        setter: Callable[[Any], None] = future.set_result
        value: object
        try:
            value = function(*arguments)
        except Exception as error:  # noqa: BLE001 - a task boundary: it is raised in the caller
            setter, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, setter, value)

    threading.Thread(target=work, daemon=True).start()
    async with asyncio.timeout(seconds):
        return await future
