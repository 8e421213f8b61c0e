"""The two ports to the outside: a `Sink` takes what leaves, a `CommandSource` gives what comes.

Each transport is one module behind these protocols, imported only when it is configured.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from bridge.core.cloudevents import Channel, CloudEvent
from bridge.core.commands import Wire


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One outbox row."""

    sequence: int
    channel: Channel
    event_id: str  # as IMDS spells it; "" when no event is named
    cloudevent: bytes  # structured JSON, final
    ends: bool = False  # the event is over: its retained message goes
    reply_topic: str = ""
    correlation: bytes | None = None
    created_at: datetime | None = None  # when it was put there


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One command, not yet acknowledged. `ack` is called once its ledger row is durable."""

    wire: Wire
    ack: Callable[[], None]
    reply_topic: str = ""  # already checked against the allowed prefix
    correlation: bytes | None = None
    position: tuple[str, str] | None = None  # (source, offset), stored with the ledger row


class Sink(Protocol):
    name: str

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        """Return once the broker has acknowledged every row, in order.

        Raises SinkUnavailable or SinkRejected, whose `delivered` counts the leading rows
        that are safe.
        """
        ...

    async def publish_status(self, status: CloudEvent) -> None:
        """Best effort, never durable. Raises nothing."""
        ...

    async def run(self) -> None:
        """Keep the connection, for ever."""
        ...

    async def close(self) -> None: ...

    @property
    def problem(self) -> str:
        """Why it does not work right now; empty when it does."""
        ...


class CommandSource(Protocol):
    def commands(self) -> AsyncIterator[Incoming]: ...


class ConnectedSource(CommandSource, Protocol):
    """A source with a connection to keep."""

    name: str

    async def run(self) -> None:
        """Keep the connection, for ever."""
        ...

    async def close(self) -> None: ...

    @property
    def problem(self) -> str:
        """Why no command can come right now; empty when one can."""
        ...


# Gives the newest CloudEvent of every pending event, to refresh what a broker may have forgotten.
PendingProvider = Callable[[], Sequence[Outgoing]]
# Returns once the document is known, and what was to be announced of it has left.
CaughtUp = Callable[[], Awaitable[object]]
# A bearer token for a broker, and when it expires (seconds since the epoch).
TokenProvider = Callable[[], Awaitable[tuple[str, float]]]
