"""The console on a port: reads a feed, keeps the fleet's state, shows it, sends approvals.

It is a consumer like any other: it decides nothing that the agents do not decide again.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from bridge.config import Config
from bridge.console.approval import Desk, Refused
from bridge.console.security import COOKIE, HEADERS, SOURCE, Gate
from bridge.console.state import Changes, FleetState
from bridge.console.stream import GATHER_S, PING_S, Stream
from bridge.errors import BridgeError
from bridge.feeds import Feed
from bridge.version import VERSION

STATIC = Path(__file__).parent / "static"
# A reason of 1024 characters, escaped, and the names around it.
BODY_BYTES_MAX = 16_384
_SHUTDOWN_S = 0.5
_AGE_S = 1.0

_log = logging.getLogger("sebridge.console")


async def serve(
    config: Config,
    feed: Feed,
    *,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Until `stop` is set. `on_ready` gets the page's address; the feed is closed at the end."""
    console = ConsoleServer(config, feed)
    url = await console.start()
    on_ready(url)
    try:
        async with asyncio.TaskGroup() as group:
            loops = (feed.run(), console.read(), console.tell(), console.age(), console.ping())
            tasks = [group.create_task(loop) for loop in loops]
            await stop.wait()
            for task in tasks:
                task.cancel()
    finally:
        await console.close()
        await feed.close()


class ConsoleServer:
    def __init__(self, config: Config, feed: Feed) -> None:
        self._config = config.console
        self._feed = feed
        self._state = FleetState(self._config)
        self._gate = Gate(self._config)
        self._desk = Desk(self._config, self._state, feed)
        self._stream = Stream(self._config.clients_max)
        self._problem = ""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._gate.middleware])
        app.router.add_get("/", _page("index.html"))
        app.router.add_get("/login", _page("login.html"))
        app.router.add_post("/login", self._log_in)
        app.router.add_get("/static/{name}", _static)
        app.router.add_get("/api/stream", self._open_stream)
        app.router.add_get("/api/event", self._details)
        app.router.add_post("/api/approve", self._approve)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S
        )

    async def start(self) -> str:
        host, port = self._config.address()
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host or None, port).start()
        except OSError as error:
            await self._runner.cleanup()
            message = f"console.listen {self._config.listen}: {error.strerror or error}"
            raise BridgeError(message) from error
        name = host if host not in {"", "0.0.0.0", "::"} else "localhost"  # noqa: S104
        return f"http://{f'[{name}]' if ':' in name else name}:{self._runner.addresses[0][1]}/"

    async def close(self) -> None:
        self._stream.close()
        await self._runner.cleanup()

    async def read(self) -> None:
        async for received in self._feed.received():
            self._state.apply(received, _now())

    async def tell(self) -> None:
        """Gather what changed for a moment, then tell every page."""
        while True:
            await asyncio.sleep(GATHER_S)
            changes = self._state.take_changes(_now())
            if changes:
                self._stream.send("change", _fields(changes))
            if self._feed.problem != self._problem:
                self._problem = self._feed.problem
                self._stream.send("ping", self._pulse())

    async def age(self) -> None:
        while True:
            await asyncio.sleep(_AGE_S)
            self._state.tick(_now())

    async def ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            self._stream.send("ping", self._pulse())

    def _pulse(self) -> dict[str, Any]:
        return {
            "time": _now().isoformat(),
            "problem": self._feed.problem,
            "refused": self._state.refused,
        }

    async def _open_stream(self, request: web.Request) -> web.StreamResponse:
        def first() -> dict[str, Any]:
            return {
                **_fields(self._state.everything(_now())),
                **self._pulse(),
                "csrf": self._gate.csrf_token(request),
                "user": self._gate.user(request),
                "readOnly": self._config.read_only,
                "version": VERSION,
            }

        headers = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return await self._stream.serve(request, first, headers)

    async def _details(self, request: web.Request) -> web.Response:
        """The CloudEvents as they were received, one a VM, the leader's first."""
        event = self._state.event(request.query.get("key", ""))
        if event is None:
            raise web.HTTPNotFound(text="This event is not known any more.\n")
        lead = event.lead
        tellings = [lead, *(t for t in event.tellings.values() if t is not lead)]
        body = [
            {
                "agent": telling.agent,
                "vm": telling.data.vm.name,
                "cloudEvent": telling.payload.decode(errors="replace"),
            }
            for telling in tellings[:_DETAILS_MAX]
        ]
        return _json({"count": len(tellings), "messages": body})

    async def _approve(self, request: web.Request) -> web.Response:
        if not self._gate.is_genuine(request):
            raise web.HTTPForbidden(text="The page is too old: load it again.\n")
        source = self._gate.source(request)
        by = self._gate.user(request) or SOURCE
        try:
            await self._desk.approve(await request.read(), source=source, by=by, now=_now())
        except Refused as refusal:
            _log.warning("approval refused", extra={"by": by, "why": str(refusal)})
            return web.Response(status=refusal.status, text=f"{refusal}\n")
        _log.info("approval sent", extra={"by": by})
        return _json({}, status=202)

    async def _log_in(self, request: web.Request) -> web.Response:
        form = await request.post()
        session = await self._gate.log_in(str(form.get("token", "")))
        if session is None:
            _log.warning("wrong token", extra={"peer": request.remote})
            return web.Response(status=303, headers={"Location": "/login?wrong"})
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            COOKIE,
            session,
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("Origin", "").startswith("https:"),
            max_age=int(self._config.session_s),
        )
        return response


# The rest say the same in other names; a page cannot show a thousand anyway.
_DETAILS_MAX = 10
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in _TYPES}


def _page(name: str) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        body = (STATIC / name).read_bytes()
        return _file(body, "text/html")

    return answer


async def _static(request: web.Request) -> web.Response:
    """Only names that were there at the start: no path can lead elsewhere."""
    path = _FILES.get(request.match_info["name"])
    if path is None:
        raise web.HTTPNotFound
    return _file(path.read_bytes(), _TYPES[path.suffix])


def _file(body: bytes, content_type: str) -> web.Response:
    headers = {"Cache-Control": "no-cache"}
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)


def _json(value: Any, *, status: int = 200) -> web.Response:
    body, headers = msgspec.json.encode(value), {"Cache-Control": "no-store"}
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _fields(changes: Changes) -> dict[str, Any]:
    return {
        "vms": changes.vms,
        "removedVms": changes.removed_vms,
        "events": changes.events,
        "removedEvents": changes.removed_events,
        "history": changes.history,
    }


def _now() -> datetime:
    return datetime.now(UTC)
