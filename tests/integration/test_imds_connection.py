"""The connection that GETs share, against a server that does as it is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from bridge import imds_wire
from bridge.core.http_answer import Answer, BodyTooLarge
from bridge.imds_connection import KeptConnection
from tests.support.scripted_imds import HANG, Action, Request, Script, ScriptedImds, answer
from tests.support.waiting import until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Asking:
    """A connection to a scripted server, and how often a request was repeated."""

    def __init__(self, imds: ScriptedImds) -> None:
        self.repeats = 0
        self.connection = KeptConnection(
            imds_wire.parse(imds.endpoint), on_repeat=self._count_repeat
        )

    def _count_repeat(self) -> None:
        self.repeats += 1

    async def get(self, *, timeout_s: float = 2.0, body_bytes_max: int = 1000) -> Answer:
        return await self.connection.get(
            "/x", connect_timeout_s=2.0, timeout_s=timeout_s, body_bytes_max=body_bytes_max
        )


async def body_of(step: bytes | Action) -> bytes:
    async with ScriptedImds(lambda _: step) as imds:
        asking = Asking(imds)
        try:
            return (await asking.get()).body
        finally:
            asking.connection.close()


@pytest.mark.parametrize(
    ("step", "body"),
    [
        (answer(200, b"abc"), b"abc"),
        (answer(200), b""),
        (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: x\r\n\r\n", b"abcde"),
        (CHUNKED + b"0\r\n\r\n", b""),
        (Action("drop", b"HTTP/1.0 200 OK\r\n\r\nto the end"), b"to the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, b"abc"), b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200\nContent-Length: 1\n\na", b"a"),
    ],
)
async def test_body_is_read_however_it_is_framed(step: bytes | Action, body: bytes) -> None:
    """Content-Length, chunks and the end of the connection all delimit a body."""
    assert await body_of(step) == body


@pytest.mark.parametrize(
    "step",
    [
        CHUNKED + b"x\r\n",
        CHUNKED + b"3\r\nabcde\r\n",
        CHUNKED + b"fffffffff\r\n",
        Action("drop", CHUNKED + b"5\r\nab"),
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000,
    ],
)
async def test_answer_that_cannot_be_trusted_is_an_error(step: bytes | Action) -> None:
    """A body whose end is unclear, or a head without end, is no answer."""
    with pytest.raises((OSError, ValueError)):
        await body_of(step)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", CHUNKED])
async def test_body_is_bounded(head: bytes) -> None:
    """One byte more than allowed is refused, whichever way it comes."""
    body = b"x" * 1001 if head != CHUNKED else b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"
    with pytest.raises(BodyTooLarge, match="exceeds 1000 bytes"):
        await body_of(head + body)


async def test_connection_is_kept() -> None:
    """Answers of known length share one connection, chunked ones and errors with them."""
    steps = [answer(200), CHUNKED + b"0\r\n\r\n", answer(500, b"no"), answer(200)]
    async with ScriptedImds(lambda _: steps.pop(0)) as imds:
        asking = Asking(imds)
        statuses = [(await asking.get()).status for _ in range(4)]
        asking.connection.close()
        assert (statuses, imds.connections) == ([200, 200, 500, 200], 1)


@pytest.mark.parametrize(
    "first",
    [
        answer(200, Connection="close"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        answer(200) + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nunasked",
        Action("hang", b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nshort"),
    ],
)
async def test_connection_is_not_kept_when_it_must_not(first: bytes | Action) -> None:
    """After a farewell, bytes that nobody asked for, or half an answer, comes a new connection."""
    steps = [first, answer(200, b"asked")]
    async with ScriptedImds(lambda _: steps.pop(0)) as imds:
        asking = Asking(imds)
        await asking.get(timeout_s=0.2)
        await asyncio.sleep(0.05)  # what was not asked for must have arrived to be noticed
        assert (await asking.get()).body == b"asked"
        asking.connection.close()
        assert (imds.connections, asking.repeats) == (2, 0)


def hangs_up_after_one() -> Script:
    """Each connection gets one answer and is cut at its second request."""
    asked: list[Request] = []

    def script(request: Request) -> bytes | Action:
        asked.append(request)
        return Action("drop") if len(asked) == 2 else answer(200, b"%d" % len(asked))

    return script


async def test_tired_connection_is_replaced_once() -> None:
    """A peer that hangs up on a kept connection is asked again on a new one, and it is told."""
    async with ScriptedImds(hangs_up_after_one()) as imds:
        asking = Asking(imds)
        assert [(await asking.get()).body for _ in range(2)] == [b"1", b"3"]
        asking.connection.close()
        assert (imds.connections, asking.repeats) == (2, 1)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_request_to_a_peer_that_has_gone_is_an_error_at_once(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Between connecting and asking lies a commit to disk; nobody waits for such an answer."""

    async def ask() -> None:
        async with closing_server() as address:
            connection = await imds_wire.connect(address)
            await until(lambda: connection.is_stale)
            answer = Answer(body_bytes_max=1000)
            with pytest.raises(ConnectionResetError, match="before the request"):
                connection.ask(b"GET / HTTP/1.1\r\n\r\n", answer)
            connection.abort()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask())


@contextlib.asynccontextmanager
async def closing_server() -> AsyncIterator[imds_wire.Address]:
    """It takes every connection and hangs up."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield imds_wire.parse(f"http://127.0.0.1:{port}")


async def test_fresh_connection_is_never_repeated() -> None:
    """A peer that hangs up on a new connection has been asked once."""
    async with ScriptedImds(lambda _: Action("drop")) as imds:
        asking = Asking(imds)
        with pytest.raises(ConnectionError):
            await asking.get()
        assert (len(imds.requests), asking.repeats) == (1, 0)


async def test_abandoned_request_leaves_no_connection_behind() -> None:
    """Cancelled in the middle, the half-read answer is not taken for the next one."""
    arrived = asyncio.Event()
    steps: list[bytes | Action] = [answer(200), HANG, answer(200, b"mine")]

    def script(_: Request) -> bytes | Action:
        arrived.set()
        return steps.pop(0)

    async with ScriptedImds(script) as imds:
        asking = Asking(imds)
        await asking.get()
        arrived.clear()
        task = asyncio.create_task(asking.get())
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await asking.get()).body == b"mine"
        asking.connection.close()
