"""A TCP server that answers as a test tells it to, and misbehaves on request."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Literal, NamedTuple, Self


class Request(NamedTuple):
    method: str
    path: str  # with the query
    headers: dict[str, str]  # names in lower case
    body: bytes


class Action(NamedTuple):
    """Send `data` (all at once, or dripped byte by byte), then hang, drop (FIN) or reset (RST)."""

    kind: Literal["hang", "drop", "reset", "drip"]
    data: bytes = b""
    interval_s: float = 0.02


HANG = Action("hang")
DROP = Action("drop")
RESET = Action("reset")

Script = Callable[[Request], bytes | Action]


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A complete HTTP answer; `Retry_After` becomes Retry-After."""
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class ScriptedImds:
    """`async with ScriptedImds(script) as imds:` listens on a free port of 127.0.0.1."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._serve_one(reader, writer):
                    pass
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read_request(reader)
        self.requests.append(request)
        step = self.script(request)
        if isinstance(step, bytes):
            writer.write(step)
            await writer.drain()
            return request.headers.get("connection", "") != "close"
        if step.kind == "drip":
            for byte in step.data:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(step.interval_s)
            return False
        writer.write(step.data)
        await writer.drain()
        if step.kind == "hang":
            await asyncio.Event().wait()
        if step.kind == "reset":
            if step.data:
                await asyncio.sleep(0.05)
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        return False


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)
