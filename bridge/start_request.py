"""The one request that changes something: the POST that approves an event.

A fresh connection each, connect and send apart, no pool, no proxy, no redirect, no retry:
the caller commits "sending" to the ledger between the two steps, and what `connect` raises
proves that nothing left this machine.
"""

import asyncio

import msgspec

from bridge import imds_wire
from bridge.core.http_answer import Answer, excerpt
from bridge.errors import ImdsUnavailable
from bridge.imds_wire import SCHEDULED_EVENTS, USER_AGENT, Connection

ANSWER_BYTES_MAX = 64 * 1024
# Once the status is known, this long for the words that explain it.
DETAIL_TIMEOUT_S = 1.0


class PostResult(msgspec.Struct, frozen=True):
    status: int | None  # None: sent, perhaps, and no answer that can be trusted
    detail: str


async def connect(endpoint: str, api_version: str, timeout_s: float) -> "StartRequestConnection":
    """Open the connection. ImdsUnavailable means that nothing was sent, provably."""
    try:
        address = imds_wire.parse(endpoint)
        target = address.target(SCHEDULED_EVENTS, api_version)
        async with asyncio.timeout(timeout_s):
            connection = await imds_wire.connect(address)
    except (OSError, ValueError) as error:
        reason = (
            f"no connection within {timeout_s:g} s"
            if isinstance(error, TimeoutError)
            else str(error)
        )
        raise ImdsUnavailable(
            f"POST to {endpoint}: {reason}; nothing was sent, check imds.endpoint"
        ) from error
    return StartRequestConnection(connection, host=address.host, target=target)


class StartRequestConnection:
    """Connected, and good for one POST."""

    def __init__(self, connection: Connection, *, host: str, target: str) -> None:
        self._connection = connection
        self._host = host
        self._target = target
        self._used = False

    async def post(self, event_id: str, timeout_s: float) -> PostResult:
        """Send the approval once and read the answer. Raises nothing but CancelledError."""
        if self._used:
            return PostResult(None, "this connection has carried its one request already")
        self._used = True
        connection = self._connection
        answer = Answer(body_bytes_max=ANSWER_BYTES_MAX)
        try:
            async with asyncio.timeout(timeout_s):
                connection.ask(self._request(event_id), answer)
                await connection.until(lambda: answer.status)
                if answer.status != 200:
                    async with asyncio.timeout(DETAIL_TIMEOUT_S):
                        await connection.until(lambda: answer.is_whole)
        except TimeoutError:
            lost = f"no answer within {timeout_s:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it was, the request may have arrived
            lost = f"{type(error).__name__}: {error}"
        else:
            lost = ""
        if answer.status is None:
            return PostResult(None, lost)
        return PostResult(answer.status, excerpt(answer.reason + b" " + answer.body))

    def close(self) -> None:
        self._connection.abort()

    def _request(self, event_id: str) -> bytes:
        body = msgspec.json.encode({"StartRequests": [{"EventId": event_id}]})
        head = (
            f"POST {self._target} HTTP/1.1\r\n"
            f"Host: {self._host}\r\n"
            "Metadata: true\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n"
            f"User-Agent: {USER_AGENT}\r\n"
            "\r\n"
        )
        return head.encode("ascii") + body
