"""Reading every partition of a hub, for ever, over one connection after the other.

The client library tries again by itself without a pause, keeps refused links to itself, and after
an error leaves a partition alone for half a minute. So each connection here is used until its
first sign of trouble, then closed; when the next one is made is our own decision.

Signs of life: an event, or the call without one that the library makes for a partition whose link
has been open and quiet for a while. It does not come for a link that is refused again and again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient

from bridge.eventhubs.client import Namespace
from bridge.eventhubs.problems import FAILURES, Stalled
from bridge.reconnecting import keep_connected

_log = logging.getLogger("sebridge.eventhubs")

# Longer than a refused link takes to be refused, so that silence and refusal can be told apart.
QUIET_S = 5.0
_CLOSE_S = 5.0
_LOOK_S = 0.5
# Events in memory for each partition before the service is asked for more.
PREFETCH = 100

# An offset to go on behind, or a moment to start at.
Start = str | datetime
Starts = Callable[[EventHubConsumerClient, Sequence[str]], Awaitable[Mapping[str, Start]]]
Handle = Callable[[str, EventData], Awaitable[None]]


class Receiver:
    """`starts` tells where to begin in each partition; `handle` takes events and must not raise."""

    def __init__(
        self,
        namespace: Namespace,
        hub: str,
        group: str,
        *,
        starts: Starts,
        handle: Handle,
        on_stall: Callable[[str, str], None] = lambda _partition, _last_offset: None,
        connect_timeout_s: float,
        reconnect_s_max: float,
        quiet_s: float = QUIET_S,
        prefetch: int = PREFETCH,
    ) -> None:
        self._namespace = namespace
        self._hub = hub
        self._group = group
        self._starts = starts
        self._handle = handle
        self._on_stall = on_stall
        self._connect_timeout_s = connect_timeout_s
        self._reconnect_s_max = reconnect_s_max
        self._quiet_s = quiet_s
        self._prefetch = prefetch
        self._closing = asyncio.Event()
        self._signs: dict[str, float] = {}  # partition: when it last showed life
        self._silent: set[str] = set()  # no sign of life on this connection yet
        self._busy: set[str] = set()  # our own handler is at work
        self._trouble: asyncio.Queue[Exception] = asyncio.Queue()
        self._connections = 0  # made so far
        self.connected = False
        self.problem = "not connected yet"

    async def run(self) -> None:
        await keep_connected(self._serve, self._closing, pause_s_max=self._reconnect_s_max)

    async def close(self) -> None:
        self._closing.set()

    async def _serve(self) -> bool:
        before = self._connections
        try:
            await self._read()
        except FAILURES as error:
            self._complain(str(self._namespace.explain(error, self._hub)))
        return self._connections > before

    async def _read(self) -> None:
        """Until the first sign of trouble, which is raised, or until closed."""
        client = self._namespace.consumer(self._hub, self._group)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                partitions = await client.get_partition_ids()
                starts = dict(await self._starts(client, partitions))
            self.connected = True
            self._connections += 1
            await self._receive(client, starts)
        except Stalled as stalled:
            async with asyncio.timeout(self._connect_timeout_s):
                known = await client.get_partition_properties(stalled.partition)
            self._on_stall(stalled.partition, known["last_enqueued_offset"])
            raise
        finally:
            self.connected = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await client.close()

    async def _receive(self, client: EventHubConsumerClient, starts: dict[str, Start]) -> None:
        self._signs = dict.fromkeys(starts, time.monotonic())
        self._silent = set(starts)
        self._busy.clear()
        self._trouble = asyncio.Queue()
        receiving = asyncio.create_task(
            client.receive(
                self._on_event,
                on_error=self._on_error,
                starting_position=starts,
                max_wait_time=self._quiet_s,
                prefetch=self._prefetch,
            )
        )
        try:
            await self._watch()
        finally:
            receiving.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.gather(receiving, return_exceptions=True)

    async def _watch(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    raise await self._trouble.get()
            now = time.monotonic()
            for partition, seen_at in self._signs.items():
                if partition not in self._busy and now - seen_at > 4 * self._quiet_s:
                    raise Stalled(partition, self._group)

    async def _on_error(self, _: Any, error: Exception) -> None:
        """Whatever it is: this connection is given up, and only the connection."""
        self._trouble.put_nowait(error if isinstance(error, FAILURES) else OSError(repr(error)))

    async def _on_event(self, context: Any, event: EventData | None) -> None:
        partition = context.partition_id
        self._showed_life(partition)
        if event is None:
            return
        self._busy.add(partition)  # a full queue is back-pressure and no stall
        try:
            await self._handle(partition, event)
        finally:
            self._busy.discard(partition)
            self._showed_life(partition)

    def _showed_life(self, partition: str) -> None:
        self._signs[partition] = time.monotonic()
        self._silent.discard(partition)
        if self.problem and not self._silent:
            _log.info("reading hub %s", self._hub)
            self.problem = ""

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            _log.warning("hub %s: %s", self._hub, problem)
        self.problem = problem
