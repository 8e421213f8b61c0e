"""The consumer's side of the broker: what `watch`, `approve` and the console read and send.

A feed hands over what agents published, whichever transport carried it, always as structured
CloudEvents. It decides nothing, and never acts on what it reads. One module a transport, imported
only when it is configured.
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

import msgspec

FeedChannel = Literal["events", "pending", "outcomes", "status"]


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One message of one agent."""

    channel: FeedChannel
    agent: str  # which agent, the same for all its messages: its topic root, or its source
    payload: bytes  # structured CloudEvent; empty: the retained message of `event_id` is gone
    event_id: str = ""  # channel "pending": the EventId, also when the payload is empty


class Feed(Protocol):
    @property
    def settle_s(self) -> float:
        """How long it may take until there is no problem, in seconds."""
        ...

    async def run(self) -> None:
        """Keep the connection, for ever."""
        ...

    def received(self) -> AsyncIterator[Received]:
        """Everything from now on, retained state first; for one reader."""
        ...

    async def send(self, topic: str, vm_name: str, command: bytes) -> None:
        """Send a command to `approval.topic` of the event; returns once the broker has it.

        Raises SinkUnavailable or SinkRejected.
        """
        ...

    async def close(self) -> None: ...

    @property
    def problem(self) -> str:
        """Why it does not work right now; empty when it does."""
        ...
