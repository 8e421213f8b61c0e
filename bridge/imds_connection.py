"""The connection that the GETs to IMDS share: opened when needed, kept, opened again.

Only for requests that may be repeated: one that the peer hangs up on before it answers, because it
was tired of the idle connection, is sent once more on a new one. Never for the POST.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bridge.imds_wire import HEADERS, Address, Answer, connect

_HEADERS = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())


class KeptConnection:
    def __init__(self, address: Address, *, on_repeat: Callable[[], object]) -> None:
        self._address = address
        self._on_repeat = on_repeat
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(
        self, target: str, *, connect_timeout_s: float, timeout_s: float, body_bytes_max: int
    ) -> Answer:
        """The whole answer. Only a status other than 200 holds without the rest of it.

        Raises OSError (TimeoutError with it) or ValueError.
        """
        answer: Answer | None = None
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._ask(target, connect_timeout_s, body_bytes_max)
                with self._kept_for_next(answer):
                    await answer.read_headers()
                    await answer.read_body()
        except (OSError, ValueError):
            if answer is None or answer.status == 200:
                raise
        return answer

    def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()

    async def _ask(self, target: str, connect_timeout_s: float, body_bytes_max: int) -> Answer:
        """Send the request and read the answer's first line."""
        streams, self._streams = self._streams, None
        if streams is not None and not _is_stale(streams[0]):
            try:
                return await self._exchange(streams, target, body_bytes_max)
            except ConnectionError:
                self._on_repeat()
        elif streams is not None:
            streams[1].transport.abort()
        async with asyncio.timeout(connect_timeout_s):
            streams = await connect(self._address)
        return await self._exchange(streams, target, body_bytes_max)

    async def _exchange(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        target: str,
        body_bytes_max: int,
    ) -> Answer:
        reader, writer = streams
        answer = Answer(reader, body_bytes_max=body_bytes_max)
        try:
            head = f"GET {target} HTTP/1.1\r\nHost: {self._address.host}\r\n{_HEADERS}\r\n"
            writer.write(head.encode("ascii"))
            await answer.read_status()
        except BaseException:
            writer.transport.abort()
            raise
        self._streams = streams
        return answer

    @contextmanager
    def _kept_for_next(self, answer: Answer) -> Iterator[None]:
        """Whatever happens: a connection with half an answer in it is never used again."""
        try:
            yield
        finally:
            if not answer.is_reusable:
                self.close()


def _is_stale(reader: asyncio.StreamReader) -> bool:
    """Closed by the peer, or spoilt by bytes that nobody asked for: they are no answer."""
    spoilt = bool(reader._buffer)  # type: ignore[attr-defined]  # noqa: SLF001 - no other way to look
    return spoilt or reader.at_eof()
