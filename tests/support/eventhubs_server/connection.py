"""One client's connection: handshake, frames in and out, and the tokens it has presented."""

import asyncio
from typing import TYPE_CHECKING

from tests.support.eventhubs_server.access import Grant, Right
from tests.support.eventhubs_server.codec import Array, DecodeError, Symbol
from tests.support.eventhubs_server.frames import (
    AMQP_HEADER,
    FRAME_BYTES_MAX,
    SASL_HEADER,
    Frame,
    Kind,
    amqp_error,
    encode_frame,
    read_frame,
)
from tests.support.eventhubs_server.session import Session

if TYPE_CHECKING:
    from tests.support.eventhubs_server.broker import Broker

CHANNEL_MAX = 255
_SASL_OK = 0


class Connection:
    def __init__(
        self, broker: "Broker", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.broker = broker
        self.remote_frame_bytes_max = FRAME_BYTES_MAX
        self._reader = reader
        self._writer = writer
        self._grants: list[Grant] = []
        self._sessions: dict[int, Session] = {}

    async def serve(self) -> None:
        """Serve the client until it or the server ends the connection."""
        self.broker.counters.connections += 1
        try:
            await self._handshake()
            while not self._writer.is_closing():
                frame = await read_frame(self._reader)
                if frame is not None:
                    self._handle(frame)
                await self._writer.drain()
        except DecodeError as error:
            self._close(Frame(Kind.CLOSE, {"error": amqp_error("amqp:decode-error", str(error))}))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone, or we have cut it off
        finally:
            for session in self._sessions.values():
                session.closed()
            self._writer.close()

    def send(self, frame: Frame) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_frame(frame))

    def abort(self) -> None:
        """Cut the connection at once; what was not yet sent is lost."""
        self._writer.transport.abort()

    def hang_up(self) -> None:
        """Close the connection after what was sent."""
        self._writer.close()

    def grant(self, grant: Grant) -> None:
        self._grants.append(grant)

    def may(self, path: str, right: Right) -> bool:
        return any(grant.covers(path, right) for grant in self._grants)

    async def _handshake(self) -> None:
        header = await self._reader.readexactly(len(SASL_HEADER))
        if header == SASL_HEADER:
            self._writer.write(SASL_HEADER)
            mechanisms = Array([Symbol("MSSBCBS"), Symbol("ANONYMOUS")])
            self.send(Frame(Kind.SASL_MECHANISMS, {"mechanisms": mechanisms}))
            await read_frame(self._reader)
            self.send(Frame(Kind.SASL_OUTCOME, {"code": _SASL_OK}))
            header = await self._reader.readexactly(len(AMQP_HEADER))
        if header != AMQP_HEADER:
            raise DecodeError(f"protocol header {header!r}")
        self._writer.write(AMQP_HEADER)

    def _handle(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.OPEN:
                self._open(frame)
            case Kind.BEGIN:
                self._sessions[frame.channel] = Session(self, frame)
            case Kind.END:
                self._sessions.pop(frame.channel).closed()
                self.send(Frame(Kind.END, {}, frame.channel))
            case Kind.CLOSE:
                self._close(Frame(Kind.CLOSE, {}))
            case _ if frame.channel in self._sessions:
                self._sessions[frame.channel].handle(frame)

    def _open(self, frame: Frame) -> None:
        self.remote_frame_bytes_max = frame["max_frame_size"] or FRAME_BYTES_MAX
        fields = {
            "container_id": "eventhubs-test-server",
            "max_frame_size": FRAME_BYTES_MAX,
            "channel_max": CHANNEL_MAX,
        }
        self.send(Frame(Kind.OPEN, fields))

    def _close(self, frame: Frame) -> None:
        self.send(frame)
        self.hang_up()
