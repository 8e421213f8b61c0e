"""A transport whose loop turns for as long as a test looks at it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from bridge.transports import ConnectedSource, Sink

_Transport = TypeVar("_Transport", bound=Sink | ConnectedSource)


@asynccontextmanager
async def running(transport: _Transport) -> AsyncIterator[_Transport]:
    task = asyncio.create_task(transport.run())
    try:
        yield transport
    finally:
        await transport.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
