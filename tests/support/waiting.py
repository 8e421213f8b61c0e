"""Waiting for a condition, never for luck."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def until(condition: Callable[[], Result], seconds: float = 20) -> Result:
    """What the condition gives once it is true; TimeoutError if it never is."""
    async with asyncio.timeout(seconds):
        while not (result := condition()):
            await asyncio.sleep(0.01)
        return result
