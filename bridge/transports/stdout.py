"""The simplest sink: one structured CloudEvent a line on standard output."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence

from bridge.core import cloudevents
from bridge.core.cloudevents import CloudEvent
from bridge.errors import SinkUnavailable
from bridge.transports import Outgoing


class StdoutSink:
    name = "stdout"
    problem = ""

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        for delivered, row in enumerate(batch):
            try:
                _write(row.cloudevent)
            except OSError as error:
                raise SinkUnavailable(f"standard output: {error}", delivered=delivered) from error

    async def publish_status(self, status: CloudEvent) -> None:
        with contextlib.suppress(OSError):  # the next row in the outbox tells of it
            _write(cloudevents.encode(status))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Every line is flushed as it is written."""


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
