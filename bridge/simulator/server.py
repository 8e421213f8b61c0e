"""The simulator on a port: one IMDS a VM under /vm/NAME, and the control API.

Only here are sockets touched. A VM that is gone has no IMDS any more: its connections are cut.
"""

import asyncio
import socket
import struct

from aiohttp import web

from bridge.simulator import imds
from bridge.simulator.control import WORLD, add_routes, errors_as_json
from bridge.simulator.settings import Settings
from bridge.simulator.world import World

# StartRequests for a hundred VMs are 6 KB.
BODY_BYTES_MAX = 64 * 1024

# Requests that wait for a slow first call or a delay fault are not worth waiting for at the end.
SHUTDOWN_TIMEOUT_S = 0.1


class Simulator:
    """A running simulator; `world` is there for whoever shares its process."""

    def __init__(self, world: World, runner: web.AppRunner, url: str) -> None:
        self.world = world
        self.url = url
        self._runner = runner

    def endpoint(self, vm: str) -> str:
        """The `imds.endpoint` of this VM's agent."""
        return f"{self.url}/vm/{vm}"

    async def stop(self) -> None:
        await self._runner.cleanup()


async def start(settings: Settings) -> Simulator:
    """Listen; raises SettingsError for values that cannot be, OSError for the port."""
    world = World(settings)
    runner = web.AppRunner(build_app(world), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
    except OSError:
        await runner.cleanup()
        raise
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return Simulator(world, runner, f"http://{host}:{runner.addresses[0][1]}")


def build_app(world: World) -> web.Application:
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[errors_as_json])
    app[WORLD] = world
    add_routes(app)
    app.router.add_route("*", "/vm/{name}/metadata{path:(/.*)?}", serve_imds)
    return app


async def serve_imds(request: web.Request) -> web.StreamResponse:
    world = request.app[WORLD]
    vm = world.vm(request.match_info["name"])
    if vm is None:
        raise web.HTTPNotFound
    if not vm.is_running:
        return _cut(request, reset=False)
    asked = await _asked(request)
    world.count(vm, asked)
    if not world.admit(vm):
        return _response(world.too_many(vm, asked))
    await asyncio.sleep(world.first_call_wait_s(vm, asked))
    fault = world.take_fault(vm, asked)
    reply = world.exchange(vm, asked, fault)
    if fault is not None and fault.delay_s is not None:
        await asyncio.sleep(fault.delay_s)
    if reply is None:
        return _cut(request, reset=fault is not None and fault.kind == "reset")
    return _response(reply)


async def _asked(request: web.Request) -> imds.Request:
    path = request.match_info["path"].strip("/")
    return imds.Request(
        method=request.method,
        path=tuple(path.split("/")) if path else (),
        query=tuple(request.query.items()),
        metadata=request.headers.get("Metadata"),
        forwarded_for=request.headers.get("X-Forwarded-For"),
        body=await request.read(),
    )


def _response(reply: imds.Reply) -> web.Response:
    headers = {"Allow": reply.allow} if reply.allow else None
    return web.Response(
        body=reply.body, status=reply.status, content_type=reply.content_type, headers=headers
    )


def _cut(request: web.Request, *, reset: bool) -> web.Response:
    """End the connection without a byte; the response made here has nowhere to go."""
    transport = request.transport
    if transport is not None and reset:
        # A linger time of zero makes the close an RST instead of a FIN.
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    elif transport is not None:
        transport.close()
    return web.Response()
