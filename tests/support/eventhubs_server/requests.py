"""Answers to requests on `$cbs` (put-token) and `$management` (READ of hub and partition)."""

from typing import TYPE_CHECKING, Any

from tests.support.eventhubs_server.access import AccessDeniedError
from tests.support.eventhubs_server.codec import Array, Int, Timestamp
from tests.support.eventhubs_server.faults import Drop, Refuse
from tests.support.eventhubs_server.messages import Message, encode_message
from tests.support.eventhubs_server.store import Hub, Partition, to_milliseconds

if TYPE_CHECKING:
    from tests.support.eventhubs_server.broker import Broker
    from tests.support.eventhubs_server.connection import Connection

OK, ACCEPTED, UNAUTHORIZED, NOT_FOUND = 200, 202, 401, 404
_EPOCH_START_MS = 0  # enqueued time of a partition that has no event yet


def answer_put_token(broker: "Broker", connection: "Connection", request: Message) -> bytes | None:
    """Check the token and remember what it allows; None if a test wants no answer."""
    broker.counters.put_tokens += 1
    fault = broker.faults.take("token", "$cbs")
    if isinstance(fault, Drop):
        return None
    asked = request.application_properties
    broker.counters.tokens.append((asked["type"], request.value))
    try:
        grant = broker.access.check(request.value, asked["type"], asked["name"])
    except AccessDeniedError as denial:
        fault = Refuse("amqp:unauthorized-access", str(denial))
    if isinstance(fault, Refuse):
        broker.counters.put_tokens_refused += 1
        return _response(request, UNAUTHORIZED, fault.description)
    connection.grant(grant)
    return _response(request, ACCEPTED, "Accepted")


def answer_management(broker: "Broker", connection: "Connection", request: Message) -> bytes:
    asked = request.application_properties
    name = asked["name"].lower()
    hub = broker.hubs.get(name)
    if not (connection.may(name, "Listen") or connection.may(name, "Send")):
        return _response(request, UNAUTHORIZED, "Unauthorized access.")
    if hub is None:
        return _response(request, NOT_FOUND, f"The messaging entity '{name}' could not be found.")
    if asked["type"] == "com.microsoft:eventhub":
        return _response(request, OK, "OK", _describe_hub(hub))
    partition = hub.partitions.get(asked["partition"])
    if partition is None:
        return _response(request, NOT_FOUND, "The partition could not be found.")
    return _response(request, OK, "OK", _describe_partition(hub, partition))


def _describe_hub(hub: Hub) -> dict[str, Any]:
    return {
        "name": hub.name,
        "type": "com.microsoft:eventhub",
        "created_at": Timestamp(to_milliseconds(hub.created_at)),
        "partition_count": Int(len(hub.partitions)),
        "partition_ids": Array(hub.partitions),
    }


def _describe_partition(hub: Hub, partition: Partition) -> dict[str, Any]:
    last = partition.events[-1] if partition.events else None
    enqueued_ms = to_milliseconds(last.enqueued_at) if last else _EPOCH_START_MS
    return {
        "name": hub.name,
        "type": "com.microsoft:partition",
        "partition": partition.id,
        "begin_sequence_number": 0,
        "last_enqueued_sequence_number": last.sequence_number if last else -1,
        "last_enqueued_offset": last.offset if last else "-1",
        "last_enqueued_time_utc": Timestamp(enqueued_ms),
        "is_partition_empty": last is None,
    }


def _response(request: Message, status: int, text: str, value: Any = None) -> bytes:
    return encode_message(
        Message(
            properties={"correlation_id": request.properties["message_id"]},
            application_properties={"status-code": Int(status), "status-description": text},
            value=value,
        )
    )
