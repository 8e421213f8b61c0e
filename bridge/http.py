"""What a probe, Prometheus or an operator on the VM can ask: /healthz /readyz /metrics /status.

Plain answers from callables; it knows nothing of the loops behind them.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from bridge.config import Http
from bridge.errors import ConfigError
from bridge.metrics import CONTENT_TYPE


class HttpServer:
    def __init__(
        self,
        config: Http,
        *,
        healthy: Callable[[], str],
        ready: Callable[[], str],
        metrics: Callable[[], bytes],
        status: Callable[[], dict[str, Any]],
        audit: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._config = config
        self._runner: web.AppRunner | None = None
        self._app = web.Application()
        self._app.on_response_prepare.append(_forbid_guessing)
        self._app.router.add_get("/healthz", _probe(healthy))
        self._app.router.add_get("/readyz", _probe(ready))
        self._app.router.add_get("/metrics", _text(metrics))
        self._app.router.add_get("/status", _json(status))
        self._app.router.add_get("/audit", _json(audit))

    async def start(self) -> None:
        host, port = self._config.address()
        self._runner = web.AppRunner(self._app, access_log=None, handle_signals=False)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            message = f"http.listen {self._config.listen}: {error.strerror or error}"
            raise ConfigError(message) from error

    async def close(self) -> None:
        if self._runner:
            await self._runner.cleanup()


async def _forbid_guessing(_: web.Request, response: web.StreamResponse) -> None:
    """Descriptions come from outside: no browser shall take JSON for a page."""
    response.headers["X-Content-Type-Options"] = "nosniff"


def _probe(problem: Callable[[], str]) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        why = problem()
        return web.Response(status=503 if why else 200, text=(why or "ok") + "\n")

    return answer


def _text(content: Callable[[], bytes]) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE}
        return web.Response(body=content(), headers=headers)

    return answer


def _json(content: Callable[[], Any]) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        body = msgspec.json.encode(content())
        return web.Response(body=body, content_type="application/json")

    return answer
