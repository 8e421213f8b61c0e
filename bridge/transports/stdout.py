"""The simplest sink: one structured CloudEvent a line on standard output.

Whoever reads it may stop reading, and the event loop must not stop with him: nothing is written
that could block. Standard output is shared with other processes, so it is not made non-blocking;
neither is it given to `loop.add_writer`, because uvloop would do that. A line that was begun is
ended before the next one.
"""

import asyncio
import contextlib
import os
import select
import stat
import sys
from collections.abc import Sequence

from bridge.core import cloudevents
from bridge.core.cloudevents import CloudEvent
from bridge.errors import SinkUnavailable
from bridge.transports import Outgoing

# Room for a whole batch where somebody reads slowly; the publisher asks again.
PATIENCE_S = 10.0
# A status is soon out of date, and its sender has other sinks to tell.
_STATUS_PATIENCE_S = 1.0
_LOOK_S = 0.005


class StdoutSink:
    name = "stdout"
    problem = ""

    def __init__(self) -> None:
        self._output: _Output | None = None
        self._writing = asyncio.Lock()
        self._rest = memoryview(b"")  # of a line that was begun

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        delivered = 0
        try:
            async with asyncio.timeout(PATIENCE_S):
                for row in batch:
                    await self._write_line(row.cloudevent)
                    delivered += 1
        except OSError as error:
            text = f"standard output: {str(error) or 'nobody reads it'}"
            raise SinkUnavailable(text, delivered=delivered) from error

    async def publish_status(self, status: CloudEvent) -> None:
        with contextlib.suppress(OSError):  # the next row in the outbox tells of it
            async with asyncio.timeout(_STATUS_PATIENCE_S):
                await self._write_line(cloudevents.encode(status))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Every line was written out, as far as somebody read."""
        if self._output is not None:
            self._output.close()
            self._output = None

    async def _write_line(self, line: bytes) -> None:
        async with self._writing:
            await self._write_rest()
            whole = self._rest = memoryview(line + b"\n")
            try:
                await self._write_rest()
            finally:
                if len(self._rest) == len(whole):  # nothing of it was seen, so nothing is owed
                    self._rest = memoryview(b"")

    async def _write_rest(self) -> None:
        if self._output is None:
            self._output = _Output(sys.stdout.fileno())
        while self._rest:
            self._rest = self._rest[await self._output.write_some(self._rest) :]


class _Output:
    """A descriptor of any kind, written to only as far as it has room."""

    def __init__(self, shared: int) -> None:
        self._shared = shared
        self._descriptor = _own_terminal(shared) if os.isatty(shared) else shared
        is_file = stat.S_ISREG(os.fstat(shared).st_mode)
        # What is ready takes PIPE_BUF bytes without blocking; a file takes all of it.
        self._bytes_max = sys.maxsize if is_file else select.PIPE_BUF
        self._readiness = select.poll()
        self._readiness.register(self._descriptor, select.POLLOUT)

    async def write_some(self, data: memoryview) -> int:
        """How much was written; the caller may be cancelled only while nothing was."""
        await asyncio.sleep(0)
        while not self._readiness.poll(0):  # noqa: ASYNC110 - nothing else tells of room
            await asyncio.sleep(_LOOK_S)
        try:
            return os.write(self._descriptor, data[: self._bytes_max])
        except BlockingIOError:  # another process was quicker, or has made it non-blocking
            await asyncio.sleep(_LOOK_S)
            return 0

    def close(self) -> None:
        if self._descriptor != self._shared:
            os.close(self._descriptor)


def _own_terminal(shared: int) -> int:
    """The same terminal, opened anew and non-blocking: being ready, it may have room for a byte."""
    try:
        return os.open(os.ttyname(shared), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return shared
