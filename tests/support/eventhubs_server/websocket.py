"""AMQP over WebSockets (the service's port 443), as a pipe to the AMQP port of the same server."""

import asyncio

from aiohttp import WSMsgType, web

_CHUNK_BYTES = 65536


class WebSocketFront:
    def __init__(self, host: str) -> None:
        self.port = 0
        self._host = host
        self._amqp_port = 0
        self._runner: web.AppRunner | None = None

    async def start(self, amqp_port: int) -> None:
        """Listen, on the same port as the last time."""
        self._amqp_port = amqp_port
        app = web.Application()
        app.router.add_get("/$servicebus/websocket", self._serve)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("AMQPWSB10",))
        await socket.prepare(request)
        reader, writer = await asyncio.open_connection(self._host, self._amqp_port)
        outgoing = asyncio.create_task(_pipe_out(reader, socket))
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    writer.write(message.data)
        finally:
            outgoing.cancel()
            writer.close()
        return socket


async def _pipe_out(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            await socket.send_bytes(chunk)
    except ConnectionError:
        pass  # either side is gone
    await socket.close()
