"""Events from one transport, commands to another: for agents that are set up that way."""

import asyncio
from collections.abc import AsyncIterator

from bridge.feeds import Feed, Received


class MixedFeed:
    """Reads one feed and sends by the other, whose messages are drained and dropped."""

    def __init__(self, reader: Feed, sender: Feed) -> None:
        self._reader = reader
        self._sender = sender

    @property
    def settle_s(self) -> float:
        return max(self._reader.settle_s, self._sender.settle_s)

    @property
    def problem(self) -> str:
        return self._reader.problem or self._sender.problem

    async def run(self) -> None:
        loops = [self._reader.run(), self._sender.run(), self._drain()]
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def received(self) -> AsyncIterator[Received]:
        return self._reader.received()

    async def send(self, topic: str, vm_name: str, command: bytes) -> None:
        await self._sender.send(topic, vm_name, command)

    async def close(self) -> None:
        await asyncio.gather(self._reader.close(), self._sender.close())

    async def _drain(self) -> None:
        async for _ in self._sender.received():
            pass
