"""The two directions of an AMQP link (amqp-core-transport 2.6), with credit but without meaning.

What is done with an incoming message, and where outgoing ones come from, is handed in.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tests.support.eventhubs_server.codec import Described
from tests.support.eventhubs_server.frames import Frame, Kind, accepted, rejected
from tests.support.eventhubs_server.messages import BATCH_FORMAT
from tests.support.eventhubs_server.store import Partition

if TYPE_CHECKING:
    from tests.support.eventhubs_server.session import Session

CREDIT = 1000  # enough for any test not to notice; renewed when half of it is used


class LinkRefusedError(Exception):
    """The attach is answered with a detach that carries this error."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class Link(Protocol):
    handle: int

    def opened(self) -> None: ...
    def on_flow(self, frame: Frame) -> None: ...
    def on_transfer(self, frame: Frame) -> None: ...
    def closed(self) -> None: ...


@dataclass(frozen=True)
class Delivery:
    """One whole message from the client, to be settled once or never."""

    session: "Session"
    id: int
    is_settled: bool
    is_batch: bool
    payload: bytes

    def accept(self) -> None:
        self._settle(accepted())

    def reject(self, condition: str, description: str) -> None:
        self._settle(rejected(condition, description))

    def _settle(self, state: Described) -> None:
        if not self.is_settled:
            # The client ignores dispositions that are not settled themselves.
            self.session.send(
                Kind.DISPOSITION, role=True, first=self.id, last=self.id, settled=True, state=state
            )


class IncomingLink:
    """The client sends; transfers are joined to deliveries and handed to `receive`."""

    def __init__(
        self,
        session: "Session",
        handle: int,
        receive: Callable[[Delivery], None],
        message_bytes_max: int,
    ) -> None:
        self.handle = handle
        self._session = session
        self._receive = receive
        self._message_bytes_max = message_bytes_max
        self._first: Frame | None = None
        self._payload = b""
        self._delivery_count = 0
        self._credit_left = 0

    def opened(self) -> None:
        self._grant_credit()

    def on_flow(self, frame: Frame) -> None:
        pass  # the client only says how much it has to send

    def on_transfer(self, frame: Frame) -> None:
        self._first = self._first or frame
        self._payload += frame.payload
        if frame["more"]:
            return
        first, payload = self._first, self._payload
        self._first, self._payload = None, b""
        self._count_delivery()
        delivery = Delivery(
            session=self._session,
            id=first["delivery_id"],
            is_settled=bool(first["settled"]),
            is_batch=first["message_format"] == BATCH_FORMAT,
            payload=payload,
        )
        if len(payload) > self._message_bytes_max:
            # The service rejects the delivery and keeps the link, seen in
            # https://github.com/Azure/azure-event-hubs-python/issues/106.
            delivery.reject(
                "amqp:link:message-size-exceeded",
                f"The received message (delivery-id:{delivery.id}, size:{len(payload)} bytes) exceeds "
                f"the limit ({self._message_bytes_max} bytes) currently allowed on the link.",
            )
        else:
            self._receive(delivery)

    def closed(self) -> None:
        pass

    def _count_delivery(self) -> None:
        self._delivery_count += 1
        self._credit_left -= 1
        if self._credit_left < CREDIT // 2:
            self._grant_credit()

    def _grant_credit(self) -> None:
        self._credit_left = CREDIT
        self._session.send_flow(
            handle=self.handle, delivery_count=self._delivery_count, link_credit=CREDIT
        )


class Feed(Protocol):
    """Messages waiting for a client."""

    def head(self) -> bytes | None: ...
    def advance(self) -> None: ...


class Cursor:
    """A position in a partition."""

    def __init__(self, partition: Partition, index: int) -> None:
        self._partition = partition
        self._index = index

    def head(self) -> bytes | None:
        events = self._partition.events
        return events[self._index].wire if self._index < len(events) else None

    def advance(self) -> None:
        self._index += 1


class Queue:
    """Answers, each sent once."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()

    def head(self) -> bytes | None:
        return self.messages[0] if self.messages else None

    def advance(self) -> None:
        self.messages.popleft()


class OutgoingLink:
    """The client receives; the feed is pumped as far as credit and session window allow.

    Transfers go out settled: the client never settles what it receives.
    """

    def __init__(
        self,
        session: "Session",
        handle: int,
        feed: Feed,
        on_closed: Callable[["OutgoingLink"], None] = lambda _: None,
    ) -> None:
        self.handle = handle
        self.session = session
        self._feed = feed
        self._on_closed = on_closed
        self._delivery_count = 0
        self._credit = 0

    def opened(self) -> None:
        pass  # nothing goes out before the client's first flow

    def on_flow(self, frame: Frame) -> None:
        self._credit = (
            (frame["delivery_count"] or 0) + (frame["link_credit"] or 0) - self._delivery_count
        )

    def on_transfer(self, frame: Frame) -> None:
        raise ValueError("transfer on a link that the client receives on")

    def closed(self) -> None:
        self._on_closed(self)

    def pump(self) -> None:
        while self._credit > 0 and (payload := self._feed.head()) is not None:
            if not self.session.transfer(self.handle, self._delivery_count, payload):
                return
            self._delivery_count += 1
            self._credit -= 1
            self._feed.advance()


@dataclass(frozen=True)
class Responder:
    """The link that carries a node's answers, and the queue it drains."""

    link: OutgoingLink
    answers: Queue

    def send(self, message: bytes) -> None:
        self.answers.messages.append(message)
        self.link.pump()
