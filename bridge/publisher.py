"""The publisher: what is in the outbox goes to one sink, in order, at least once.

One publisher a sink, each with its own cursor, so that a dead sink never holds back another.
A row is marked only after the broker's acknowledgement; a crash in between sends it again,
under the same id.
"""

import asyncio
import logging
import random

from bridge.clock import Clock
from bridge.core.backoff import full_jitter
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.health import Pulse
from bridge.measures import Measures
from bridge.store import Store
from bridge.transports import Outgoing, Sink

logger = logging.getLogger("sebridge.publisher")

BATCH_ROWS_MAX = 100
# Sinks bound every wait themselves; a batch that takes longer than this is stuck.
_PUBLISH_S_MAX = 300.0


class Publisher:
    def __init__(
        self, sink: Sink, store: Store, clock: Clock, measures: Measures | None = None
    ) -> None:
        self._sink = sink
        self._store = store
        self._clock = clock
        self._failures = 0
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._measures = measures or Measures()
        self.pulse = Pulse(clock)
        self.published = 0
        self.problem = ""

    def wake(self) -> None:
        """Something was added to the outbox."""
        self._drained.clear()
        self._wake.set()

    async def drained(self) -> None:
        """Return when this sink has acknowledged everything there is."""
        if self._store.oldest(self._sink.name) is None:
            return
        self.wake()
        await self._drained.wait()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            self.pulse.beat(_PUBLISH_S_MAX)
            delay_s = await self.step()
            if delay_s:
                await asyncio.sleep(delay_s)
            elif self._store.oldest(self._sink.name) is None:
                self._drained.set()
                self.pulse.rest()
                await self._wake.wait()

    async def step(self) -> float:
        """Publish one batch; return how long to wait before the next."""
        batch = self._store.batch(self._sink.name, BATCH_ROWS_MAX)
        if not batch:
            return 0.0
        try:
            await self._sink.publish(batch)
        except SinkUnavailable as error:
            self._mark(batch[: error.delivered])
            return self._failed(str(error))
        except SinkRejected as error:
            self._mark(batch[: error.delivered])
            return self._refused(batch[error.delivered], error)
        self._mark(batch)
        self._failures = 0
        self.problem = ""
        return 0.0

    def _mark(self, rows: list[Outgoing]) -> None:
        if rows:
            self._store.mark_sent(self._sink.name, rows[-1].sequence)
            self.published += len(rows)
            created_at = (row.created_at for row in rows)
            self._measures.published(self._sink.name, created_at, self._clock.now())

    def _failed(self, why: str) -> float:
        if not self.problem:
            logger.warning("publishing failed", extra={"sink": self._sink.name, "why": why})
        self.problem = why
        self._failures += 1
        return full_jitter(self._failures, random.random(), cap_s=5.0)

    def _refused(self, row: Outgoing, error: SinkRejected) -> float:
        if not error.permanent:
            return self._failed(f"row {row.sequence} was refused and stays: {error}")
        logger.error(
            "row parked", extra={"sink": self._sink.name, "row": row.sequence, "why": str(error)}
        )
        self._store.park(self._sink.name, row.sequence, str(error), self._clock.now())
        return 0.0
