"""The stream of changes: the whole first, then what is new, and no patience with the slow."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.console.stream import Stream


class Served:
    """A stream behind a real port."""

    def __init__(self, stream: Stream, url: str) -> None:
        self.stream = stream
        self.url = url


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    stream = Stream(clients_max=2)

    async def open_stream(request: web.Request) -> web.StreamResponse:
        return await stream.serve(request, lambda: {"all": True}, {"X-Test": "1"})

    app = web.Application()
    app.router.add_get("/", open_stream)
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Served(stream, f"http://127.0.0.1:{runner.addresses[0][1]}/")
    stream.close()
    await runner.cleanup()


async def read(answer: aiohttp.ClientResponse) -> tuple[str, str]:
    async with asyncio.timeout(10):
        kind, data, _ = [await answer.content.readline() for _ in range(3)]
    return kind.decode().strip(), data.decode().strip()


async def test_stream_sends_the_whole_and_then_changes(served: Served) -> None:
    """Text with line breaks stays on one line of the stream."""
    async with aiohttp.ClientSession() as session, session.get(served.url) as answer:
        first = await read(answer)
        served.stream.send("change", {"text": "a\nb"})
        second = await read(answer)

    assert "text/event-stream" == answer.headers["Content-Type"]
    assert ("event: snapshot", 'data: {"all":true}') == first
    assert ("event: change", 'data: {"text":"a\\nb"}') == second


async def test_stream_lets_a_slow_page_go(served: Served) -> None:
    """A page too far behind is ended, so that its browser comes back for the whole."""
    async with aiohttp.ClientSession() as session, session.get(served.url) as slow:
        await read(slow)
        for number in range(200):  # without a chance to send anything in between
            served.stream.send("change", number)
        async with asyncio.timeout(10):
            rest: Any = await slow.content.read()

    assert b"data: 199" not in rest
    async with aiohttp.ClientSession() as session, session.get(served.url) as again:
        assert ("event: snapshot", 'data: {"all":true}') == await read(again)


async def test_stream_close_ends_every_page(served: Served) -> None:
    """A server that stops does not wait for its pages."""
    async with aiohttp.ClientSession() as session, session.get(served.url) as answer:
        await read(answer)
        served.stream.close()
        async with asyncio.timeout(10):
            assert b"" == await answer.content.read()
