"""`http.listen`: is it our agent that answers there, or can one listen?"""

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import msgspec

from bridge.config import Http
from bridge.doctor.finding import Finding, failed, ok, warning

_ANSWER_S = 2.0
_NAME = "agent"
# What a wildcard address means to a client on the same machine.
_LOCAL = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class Seen(msgspec.Struct, kw_only=True):
    status: dict[str, Any] | None = None  # /status of the agent that runs here


async def check(config: Http, seen: Seen) -> AsyncGenerator[Finding, None]:
    if not config.listen:
        remedy = "set it to let probes, `sebridge status` and this check ask the agent"
        yield warning(_NAME, "http.listen is empty: a running agent cannot be asked", remedy)
        return
    host, port = config.address()
    taken = _why_taken(host, port)
    if taken is None:
        yield ok(_NAME, f"does not run; {config.listen} is free for it")
        return
    if taken.errno != errno.EADDRINUSE:
        remedy = "change http.listen to an address of this VM and a port that its user may open"
        yield failed(_NAME, f"cannot listen on {config.listen}: {taken.strerror or taken}", remedy)
        return
    try:
        seen.status = await _ask(_LOCAL.get(host, host), port)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):  # DecodeError is one
        seen.status = None
    if seen.status is None:
        remedy = "change http.listen, or stop the other program"
        yield failed(_NAME, f"another program answers at {config.listen}", remedy)
    else:
        yield _describe(seen.status)


def _why_taken(host: str, port: int) -> OSError | None:
    """None when an agent could listen there. Nothing is sent, and nothing listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the agent does: what an earlier agent left in TIME_WAIT is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error
    return None


async def _ask(host: str, port: int) -> dict[str, Any] | None:
    """The status, or None when a stranger answers."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/status"
    async with (
        asyncio.timeout(_ANSWER_S),
        aiohttp.ClientSession(trust_env=False) as session,
        session.get(url, allow_redirects=False) as response,
    ):
        status = msgspec.json.decode(await response.read())
    return status if isinstance(status, dict) and {"vm", "durable", "poll"} <= set(status) else None


def _describe(status: dict[str, Any]) -> Finding:
    problem = status["poll"].get("problem")
    if problem:
        remedy = "see the imds lines above, and the agent's log"
        return failed(_NAME, f"runs, and cannot poll: {problem}", remedy)
    broken = [f"{name}: {s['problem']}" for name, s in status["sinks"].items() if s["problem"]]
    if broken:
        remedy = "see the broker lines below, and the agent's log"
        return failed(_NAME, f"runs, and cannot publish ({'; '.join(broken)})", remedy)
    return ok(_NAME, f"runs and polls: {status['poll']['count']} polls so far")
