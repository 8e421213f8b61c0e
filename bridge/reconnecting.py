"""One connection after the other, with pauses that grow while they do not last."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

from bridge.core.backoff import full_jitter

# A connection that lived shorter than this was no success: the backoff goes on growing.
STABLE_S = 10.0


async def keep_connected(
    serve: Callable[[], Awaitable[bool]], closing: asyncio.Event, *, pause_s_max: float
) -> None:
    """Call `serve` until `closing` is set.

    It returns when its connection has ended, and tells whether there was one: an attempt that only
    ran into its time limit may take as long as a connection that lasts.
    """
    attempt = 0
    while not closing.is_set():
        began = time.monotonic()
        was_connected = await serve()
        lasted = was_connected and time.monotonic() - began > STABLE_S
        attempt = 0 if lasted else attempt + 1
        delay_s = full_jitter(attempt, random.random(), cap_s=pause_s_max)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), delay_s)
