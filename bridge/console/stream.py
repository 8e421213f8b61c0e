"""Server-sent events: every open page gets the whole once, then what has changed.

Changes are gathered for a moment and rendered once for all pages. A page that does not keep up is
let go; its browser comes back by itself and gets the whole again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

# Fast enough for the eye; a thousand messages within it are one update.
GATHER_S = 0.1
# Also tells the page that the line is alive.
PING_S = 10.0
# A page that is this many updates behind starts afresh.
_BEHIND_MAX = 100
# Login and limits are looked at again when the browser comes back.
_LIFETIME_S = 3600.0


class Stream:
    def __init__(self, clients_max: int) -> None:
        self._clients_max = clients_max
        self._clients: set[asyncio.Queue[bytes]] = set()
        self._closed = asyncio.Event()

    def close(self) -> None:
        self._closed.set()
        for queue in self._clients:
            _offer(queue, b"")

    def send(self, kind: str, data: Any) -> None:
        message = encode(kind, data)
        for queue in list(self._clients):
            if not _offer(queue, message):
                self._clients.discard(queue)
                _empty(queue)
                _offer(queue, b"")

    async def serve(
        self, request: web.Request, first: Callable[[], Any], headers: dict[str, str]
    ) -> web.StreamResponse:
        if len(self._clients) >= self._clients_max:
            raise web.HTTPServiceUnavailable(text="Too many pages are open: console.clients_max.\n")
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        queue: asyncio.Queue[bytes] = asyncio.Queue(_BEHIND_MAX)
        self._clients.add(queue)
        try:
            await response.prepare(request)
            await response.write(encode("snapshot", first()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LIFETIME_S):
                    while not self._closed.is_set() and (message := await queue.get()):
                        await response.write(message)
        except ConnectionResetError:
            pass
        finally:
            self._clients.discard(queue)
        return response


def encode(kind: str, data: Any) -> bytes:
    """JSON has no raw line breaks, so one `data` line holds it."""
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def _offer(queue: asyncio.Queue[bytes], message: bytes) -> bool:
    try:
        queue.put_nowait(message)
    except asyncio.QueueFull:
        return False
    return True


def _empty(queue: asyncio.Queue[bytes]) -> None:
    while not queue.empty():
        queue.get_nowait()
