"""An event loop that lives by a test's clock: what would be waited for passes at once.

Only for code that waits on nothing outside: with a socket in play the clock would run ahead of it.
"""

import asyncio
import contextlib
import selectors
from collections.abc import Coroutine
from typing import Any

from tests.fakes import FakeClock


class _Selector(selectors.DefaultSelector):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever wake this loop"
        self._clock.pass_s(timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.elapsed_s()


def live(clock: FakeClock, life: Coroutine[Any, Any, object], *, seconds: float = 3600) -> None:
    """Run it to its end, or for so long."""

    async def limited() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await life

    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        runner.run(limited())
