"""What an Event Hubs namespace does: publishes, reads, and answers on $cbs and $management.

Holds everything that survives connections; which links exist is decided here, how they carry
messages is not.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.support.eventhubs_server.access import Access, Right, node_path
from tests.support.eventhubs_server.faults import Counters, Delay, Drop, Faults, Kill, Refuse
from tests.support.eventhubs_server.frames import Frame, amqp_error
from tests.support.eventhubs_server.links import (
    Cursor,
    Delivery,
    IncomingLink,
    Link,
    LinkRefusedError,
    OutgoingLink,
    Queue,
    Responder,
)
from tests.support.eventhubs_server.messages import decode_batch, decode_message
from tests.support.eventhubs_server.requests import answer_management, answer_put_token
from tests.support.eventhubs_server.session import Session
from tests.support.eventhubs_server.store import Hub, Partition

RECEIVERS_MAX = 5  # non-epoch receivers for a partition and consumer group
_EPOCH = "com.microsoft:epoch"
_SELECTOR_FILTER = "apache.org:selector-filter:string"
_SOURCE_FILTER_FIELD = 7
_STOLEN = "amqp:link:stolen"


@dataclass(frozen=True)
class _Place:
    """Where a receiver reads."""

    hub: str
    group: str
    partition: str


@dataclass(frozen=True)
class _Receiver:
    link: OutgoingLink
    epoch: int | None


class Broker:
    def __init__(self, access: Access, message_bytes_max: int) -> None:
        self.access = access
        self.faults = Faults()
        self.counters = Counters()
        self.hubs: dict[str, Hub] = {}
        self._message_bytes_max = message_bytes_max
        self._receivers: dict[_Place, list[_Receiver]] = {}

    def receivers(self, hub: str) -> int:
        """Return how many receiver links the hub has now."""
        return sum(len(each) for place, each in self._receivers.items() if place.hub == hub)

    def message_bytes_max(self, attach: Frame) -> int:
        """Return the limit both sides accept; a client's 0 or null means it has none."""
        return min(self._message_bytes_max, attach["max_message_size"] or self._message_bytes_max)

    def open_link(self, session: Session, attach: Frame) -> Link:
        """Return the link for an attach, or raise LinkRefusedError."""
        client_receives = attach["role"]
        terminus = attach["source"] if client_receives else attach["target"]
        path = node_path(terminus.value[0])
        node, *rest = path.split("/")
        fault = self.faults.take("link", node)
        if isinstance(fault, Refuse):
            raise LinkRefusedError(fault.condition, fault.description)
        if node in ("$cbs", "$management"):
            return self._open_request_link(session, attach, node)
        hub = self.hubs.get(node)
        if hub is None:
            raise LinkRefusedError(
                "amqp:not-found", f"The messaging entity '{node}' could not be found."
            )
        self._authorize(session, path, "Listen" if client_receives else "Send")
        match rest:
            case [] if not client_receives:
                return self._open_publisher(session, attach, hub, None)
            case ["partitions", partition] if not client_receives:
                return self._open_publisher(session, attach, hub, partition)
            case ["consumergroups", group, "partitions", partition] if client_receives:
                return self._open_receiver(session, attach, hub, _Place(node, group, partition))
        raise LinkRefusedError("amqp:not-found", f"'{path}' is not a node for this direction.")

    def _authorize(self, session: Session, path: str, right: Right) -> None:
        if not session.connection.may(path, right):
            raise LinkRefusedError(
                "amqp:unauthorized-access",
                f"Unauthorized access. '{right}' claim(s) are required to perform this operation.",
            )

    def _open_publisher(
        self, session: Session, attach: Frame, hub: Hub, partition: str | None
    ) -> IncomingLink:
        if partition is not None:
            _require_partition(hub, partition)
        receive = partial(self._publish, hub, partition)
        return IncomingLink(session, attach["handle"], receive, self.message_bytes_max(attach))

    def _publish(self, hub: Hub, partition: str | None, delivery: Delivery) -> None:
        self.counters.transfers += 1
        connection = delivery.session.connection
        match self.faults.take("transfer", hub.name):
            case Refuse(condition, description):
                delivery.reject(condition, description)
            case Drop(stored=False):
                pass
            case Drop(stored=True):
                self._store(hub, partition, delivery)
            case Kill("before_store"):
                connection.abort()
            case Kill("before_settle"):
                self._store(hub, partition, delivery)
                connection.abort()
            case Kill("after_settle"):
                self._store(hub, partition, delivery)
                delivery.accept()
                connection.hang_up()
            case Delay(seconds):
                self._store(hub, partition, delivery)
                asyncio.get_running_loop().call_later(seconds, delivery.accept)
            case _:
                self._store(hub, partition, delivery)
                delivery.accept()

    def _store(self, hub: Hub, partition: str | None, delivery: Delivery) -> None:
        if delivery.is_batch:
            self.counters.batches += 1
            messages = decode_batch(delivery.payload)
        else:
            messages = [decode_message(delivery.payload)]
        self.counters.events += len(hub.append(messages, partition))

    def _open_receiver(
        self, session: Session, attach: Frame, hub: Hub, place: _Place
    ) -> OutgoingLink:
        if place.group not in hub.consumer_groups:
            raise LinkRefusedError(
                "amqp:not-found", f"The consumer group '{place.group}' could not be found."
            )
        partition = _require_partition(hub, place.partition)
        try:
            index = partition.start_index(_selector(attach))
        except ValueError as error:
            raise LinkRefusedError("amqp:invalid-field", str(error)) from error
        epoch = (attach["properties"] or {}).get(_EPOCH)
        self._make_room(place, epoch)

        def forget(link: OutgoingLink) -> None:
            partition.watchers.discard(link.pump)
            receivers[:] = [each for each in receivers if each.link is not link]

        link = OutgoingLink(session, attach["handle"], Cursor(partition, index), forget)
        receivers = self._receivers.setdefault(place, [])
        receivers.append(_Receiver(link, epoch))
        partition.watchers.add(link.pump)
        return link

    def _make_room(self, place: _Place, epoch: int | None) -> None:
        """Apply the rules of owner levels; conditions and texts as the service sends them."""
        present = self._receivers.get(place, [])
        highest = max((each.epoch for each in present if each.epoch is not None), default=None)
        if epoch is None:
            if highest is not None:
                raise LinkRefusedError(
                    _STOLEN,
                    f"At least one receiver for the endpoint is created with epoch of '{highest}', "
                    "and so non-epoch receiver is not allowed.",
                )
            if len(present) >= RECEIVERS_MAX:
                raise LinkRefusedError(
                    "amqp:resource-limit-exceeded",
                    "Exceeded the maximum number of allowed receivers per partition in a consumer "
                    f"group which is {RECEIVERS_MAX}.",
                )
        elif highest is not None and highest > epoch:
            raise LinkRefusedError(
                _STOLEN, f"A receiver with a higher epoch of '{highest}' already exists."
            )
        else:
            for each in tuple(present):
                text = (
                    f"New receiver with higher epoch of '{epoch}' is created hence current receiver "
                    f"with epoch '{each.epoch}' is getting disconnected."
                )
                each.link.session.detach(each.link, amqp_error(_STOLEN, text))

    def _open_request_link(self, session: Session, attach: Frame, node: str) -> Link:
        if attach["role"]:
            answers = Queue()
            link = OutgoingLink(session, attach["handle"], answers)
            session.responders[node] = Responder(link, answers)
            return link
        receive = partial(self._request, node)
        return IncomingLink(session, attach["handle"], receive, self.message_bytes_max(attach))

    def _request(self, node: str, delivery: Delivery) -> None:
        # Requests carry no reply-to: the answer goes out on the same session's link of the node.
        answer: Callable[..., bytes | None] = (
            answer_put_token if node == "$cbs" else answer_management
        )
        response = answer(self, delivery.session.connection, decode_message(delivery.payload))
        delivery.accept()
        responder = delivery.session.responders.get(node)
        if response is not None and responder is not None:
            responder.send(response)


def _require_partition(hub: Hub, partition: str) -> Partition:
    if partition not in hub.partitions:
        raise LinkRefusedError(
            "com.microsoft:argument-out-of-range",
            "The specified partition is invalid for an EventHub partition sender or receiver. "
            f"It should be between 0 and {len(hub.partitions) - 1}.",
        )
    return hub.partitions[partition]


def _selector(attach: Frame) -> str | None:
    source_fields = attach["source"].value
    filters = (
        source_fields[_SOURCE_FILTER_FIELD] if len(source_fields) > _SOURCE_FILTER_FIELD else None
    )
    described = (filters or {}).get(_SELECTOR_FILTER)
    return None if described is None else described.value
