"""Doubles that take functions or lists, for driving loops by step(): clock, IMDS, sink, commands."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta

from bridge.core.cloudevents import CloudEvent
from bridge.core.commands import Wire
from bridge.errors import BridgeError
from bridge.transports import Incoming, Outgoing
from tests.builders import NOW


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self, now: datetime = NOW) -> None:
        self._began = now
        self.passed_s = 1_000.0

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.passed_s - 1_000.0)

    def elapsed_s(self) -> float:
        return self.passed_s

    def pass_s(self, seconds: float) -> None:
        self.passed_s += seconds


class FakeImds:
    """Gives what the test put last: a body, or an error to raise."""

    def __init__(self, answer: bytes | BridgeError = b"") -> None:
        self.answer = answer

    async def get_document(self) -> bytes:
        if isinstance(self.answer, BridgeError):
            raise self.answer
        return self.answer


class MemorySink:
    """Keeps what it is given; `refuse` may raise before anything is kept."""

    name = "memory"
    problem = ""

    def __init__(self, refuse: Callable[[Sequence[Outgoing]], None] = lambda _: None) -> None:
        self.refuse = refuse
        self.rows: list[Outgoing] = []
        self.statuses: list[CloudEvent] = []

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        self.refuse(batch)
        self.rows += batch

    async def publish_status(self, status: CloudEvent) -> None:
        self.statuses.append(status)

    async def run(self) -> None:
        return

    async def close(self) -> None:
        return


class ListSource:
    """Hands over the given payloads and remembers which were acknowledged."""

    def __init__(self, *payloads: bytes) -> None:
        self.acked: list[bytes] = []
        self._payloads = list(payloads)

    async def commands(self) -> AsyncIterator[Incoming]:
        while self._payloads:
            yield self.incoming(self._payloads.pop(0))

    def incoming(self, payload: bytes, *, retained: bool = False) -> Incoming:
        wire = Wire(payload=payload, retained=retained)
        return Incoming(wire=wire, ack=lambda: self.acked.append(payload))
