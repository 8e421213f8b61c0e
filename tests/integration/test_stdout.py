"""Standard output as a sink, where the reader stalls, goes away or comes back."""

import asyncio
import contextlib
import fcntl
import os
import pty
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.core.cloudevents import CloudEvent, encode
from bridge.errors import SinkUnavailable
from bridge.transports import Outgoing, stdout
from bridge.transports.stdout import StdoutSink
from tests.support.waiting import until

Ends = tuple[int, int]  # to read from, to write to


def _socket_pair() -> Ends:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


KINDS: dict[str, Callable[[], Ends]] = {
    "pipe": os.pipe,
    "socket": _socket_pair,
    "terminal": pty.openpty,
}


class Reader:
    """The other end of a sink's standard output: it reads nothing until it is told to."""

    def __init__(self, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
        self.output = ends[1]
        self._end = ends[0]
        self._monkeypatch = monkeypatch
        self._read = b""
        os.set_blocking(self._end, False)

    def sink(self) -> StdoutSink:
        """Only within a test: pytest changes standard output between its fixtures and itself."""
        output = os.fdopen(self.output, "w", closefd=False)
        self._monkeypatch.setattr(sys, "stdout", output)
        return StdoutSink()

    def lines(self) -> list[bytes]:
        """Every line so far; the last one may lack its end."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._end, 65_536):
                self._read += data
        return self._read.splitlines()

    def ids(self) -> list[str]:
        """Raises if lines were mixed up."""
        return [msgspec.json.decode(line)["id"] for line in self.lines() if line]

    async def stall(self, sink: StdoutSink, *names: str, size: int) -> SinkUnavailable:
        """Read nothing, until the sink gives up."""
        with self._monkeypatch.context() as impatient:
            impatient.setattr(stdout, "PATIENCE_S", 0.3)
            with pytest.raises(SinkUnavailable) as caught:
                await sink.publish(rows(*names, size=size))
        return caught.value

    def fill(self) -> None:
        """Until there is room for nothing."""
        os.set_blocking(self.output, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(self.output, b"\n"):
                pass
        os.set_blocking(self.output, True)

    async def until_ended(self, publishing: asyncio.Future[Any]) -> None:
        """Read along."""
        await until(lambda: (self.lines(), publishing.done())[1])
        await publishing

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture(params=KINDS)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    ends = KINDS[request.param]()
    made = Reader(ends, monkeypatch)
    yield made
    made.close()
    os.close(ends[1])


def cloudevent(name: str, size: int = 10) -> CloudEvent:
    return CloudEvent(
        specversion="1.0",
        id=name,
        source="/vm",
        type="io.sebridge.event.scheduled.v1",
        time="2026-01-01T00:00:00Z",
        datacontenttype="application/json",
        data=msgspec.Raw(b'"%s"' % (b"x" * size)),
    )


def rows(*names: str, size: int = 10) -> list[Outgoing]:
    return [
        Outgoing(
            sequence=number,
            channel="events",
            event_id=name,
            cloudevent=encode(cloudevent(name, size)),
        )
        for number, name in enumerate(names)
    ]


async def longest_pause_s(during: asyncio.Future[Any]) -> float:
    """How long the event loop served nobody else."""
    longest, seen_at = 0.0, time.monotonic()
    while not during.done():
        await asyncio.sleep(0.005)
        longest, seen_at = max(longest, time.monotonic() - seen_at), time.monotonic()
    return longest


async def test_stalled_reader_fails_the_publish_and_holds_up_nobody(reader: Reader) -> None:
    """The event loop turns on, the error comes in time, and the descriptor is left as it was."""
    flags = fcntl.fcntl(reader.output, fcntl.F_GETFL)
    sink = reader.sink()
    stalled = asyncio.create_task(reader.stall(sink, "1", "2", "3", size=1_000_000))
    pause_s = await longest_pause_s(stalled)
    error = await stalled
    await sink.publish_status(cloudevent("status"))
    await sink.close()

    assert (0, "standard output: nobody reads it") == (error.delivered, str(error))
    assert pause_s < 1.0
    assert flags == fcntl.fcntl(reader.output, fcntl.F_GETFL)


async def test_line_that_was_cut_short_is_ended_before_the_next(reader: Reader) -> None:
    """Once somebody reads again, every line is whole, whoever gave up in the middle of one."""
    sink = reader.sink()
    await reader.stall(sink, "cut", size=300_000)
    assert reader.lines()
    publishing = asyncio.create_task(sink.publish(rows("next", "last")))
    await reader.until_ended(publishing)
    await sink.close()

    assert ["cut", "next", "last"] == reader.ids()


async def test_line_of_which_nothing_went_is_not_owed(reader: Reader) -> None:
    """A status that found no room is not said when it is long out of date."""
    sink = reader.sink()
    reader.fill()
    await sink.publish_status(cloudevent("status"))
    assert not any(reader.lines())
    publishing = asyncio.create_task(sink.publish(rows("next", "last")))
    await reader.until_ended(publishing)
    await sink.close()

    assert ["next", "last"] == reader.ids()


async def test_two_who_write_at_once_write_whole_lines(reader: Reader) -> None:
    """A status waits for the line that is being written."""
    sink = reader.sink()
    writing = asyncio.gather(
        sink.publish(rows("1", "2", size=100_000)), sink.publish_status(cloudevent("status"))
    )
    await reader.until_ended(writing)
    await sink.close()

    assert {"1", "2", "status"} == set(reader.ids())


@pytest.mark.parametrize("kind", ["pipe", "socket"])
async def test_reader_that_went_away_fails_the_publish(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed pipe is an error with a text, as ever."""
    ours, theirs = KINDS[kind]()
    with os.fdopen(theirs, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        os.close(ours)
        with pytest.raises(SinkUnavailable, match="Broken pipe") as caught:
            await StdoutSink().publish(rows("1"))
        await StdoutSink().publish_status(cloudevent("status"))

    assert 0 == caught.value.delivered


async def test_descriptor_that_somebody_made_non_blocking_is_waited_for(reader: Reader) -> None:
    """It is shared: what others did to it is no error."""
    os.set_blocking(reader.output, False)
    sink = reader.sink()
    await reader.until_ended(asyncio.create_task(sink.publish(rows("1", "2", size=200_000))))
    await sink.close()

    assert ["1", "2"] == reader.ids()


async def test_file_takes_every_line_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redirection into a file loses and overwrites nothing."""
    with (tmp_path / "out").open("w") as output:
        output.write("before\n")
        output.flush()
        monkeypatch.setattr(sys, "stdout", output)
        await StdoutSink().publish(rows("1", "2", size=100_000))

    lines = (tmp_path / "out").read_bytes().splitlines()
    assert [b"before", *(row.cloudevent for row in rows("1", "2", size=100_000))] == lines
