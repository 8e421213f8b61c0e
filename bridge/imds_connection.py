"""The connection that the GETs to IMDS share: opened when needed, kept, opened again.

Only for requests that may be repeated: one that the peer hangs up on before it answers, because it
was tired of the idle connection, is sent once more on a new one. Never for the POST.
"""

import asyncio
from collections.abc import Callable

from bridge.core.http_answer import Answer
from bridge.imds_wire import HEADERS, Address, Connection, connect

_HEADERS = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())


class KeptConnection:
    def __init__(self, address: Address, *, on_repeat: Callable[[], object]) -> None:
        self._address = address
        self._on_repeat = on_repeat
        self._connection: Connection | None = None

    async def get(
        self, target: str, *, connect_timeout_s: float, timeout_s: float, body_bytes_max: int
    ) -> Answer:
        """The whole answer. Only a status other than 200 holds without the rest of it.

        Raises OSError (TimeoutError with it) or ValueError.
        """
        answer: Answer | None = None
        head = f"GET {target} HTTP/1.1\r\nHost: {self._address.host}\r\n{_HEADERS}\r\n"
        request = head.encode("ascii")
        try:
            async with asyncio.timeout(timeout_s):
                connection, answer = await self._ask(request, connect_timeout_s, body_bytes_max)
                try:
                    await connection.until(lambda: answer.is_whole)
                finally:
                    self._keep(connection, answer)
        except (OSError, ValueError):
            if answer is None or answer.status == 200:
                raise
        return answer

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    async def _ask(
        self, request: bytes, connect_timeout_s: float, body_bytes_max: int
    ) -> tuple[Connection, Answer]:
        """Send the request and read the answer's first line."""
        kept, self._connection = self._connection, None
        if kept is not None and not kept.is_stale:
            try:
                return kept, await _exchange(kept, request, body_bytes_max)
            except ConnectionError:
                self._on_repeat()
        elif kept is not None:
            kept.abort()
        async with asyncio.timeout(connect_timeout_s):
            fresh = await connect(self._address)
        return fresh, await _exchange(fresh, request, body_bytes_max)

    def _keep(self, connection: Connection, answer: Answer) -> None:
        """Unless there is half an answer in it: then it is never used again."""
        if answer.is_reusable:
            self._connection = connection
        else:
            connection.abort()


async def _exchange(connection: Connection, request: bytes, body_bytes_max: int) -> Answer:
    answer = Answer(body_bytes_max=body_bytes_max)
    try:
        connection.ask(request, answer)
        await connection.until(lambda: answer.status)
    except BaseException:
        connection.abort()
        raise
    return answer
