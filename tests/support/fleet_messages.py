"""What a whole fleet of agents would publish, as CloudEvents that the agent's own code encodes."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.core import cloudevents
from bridge.core.cloudevents import (
    ApprovalInfo,
    CloudEvent,
    EventData,
    OutcomeData,
    StatusData,
    Vm,
    encode,
    rfc3339,
)
from bridge.core.diff import Ending
from bridge.version import VERSION

GROUP = "web-rg"
NOW = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)


def root_of(vm_name: str) -> str:
    return f"sebridge/v1/{GROUP}/{vm_name}"


def vm(name: str, **fields: Any) -> Vm:
    resource_id = f"/subscriptions/s/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachines/{name}"
    defaults = {"scale_set": name.rpartition("_")[0], "zone": "1", "location": "westeurope"}
    return Vm(**{"name": name, "resource_id": resource_id, **defaults, **fields})


def status(machine: Vm, word: str = "online", *, now: datetime = NOW, **fields: Any) -> bytes:
    data = StatusData(
        **{
            "status": word,
            "vm": machine,
            "version": VERSION,
            "approvals": "enforce",
            "commands": "unsigned",
            **fields,
        }
    )
    return encode(cloudevents.from_status(data, identifier=f"{machine.name}.{now}", now=now))


def event(
    machine: Vm,
    event_id: str = "602D9444-D2CD-49C7-8624-8643E7171297",
    *,
    transition: str = "scheduled",
    event_type: str = "Reboot",
    resources: tuple[str, ...] = (),
    in_s: float = 900,
    sequence: int = 1,
    leader: bool | None = None,
    state: str = "none",
    topic: str | None = None,
    now: datetime = NOW,
    ending: Ending | None = None,
    **azure: Any,
) -> bytes:
    """One transition of one event, as `machine` tells of it."""
    names = resources or (machine.name,)
    not_before = now + timedelta(seconds=in_s)
    started = transition == "started"
    data = EventData(
        transition=transition,
        event={
            "EventId": event_id,
            "EventType": event_type,
            "ResourceType": "VirtualMachine",
            "Resources": list(names),
            "EventStatus": "Started" if started else "Scheduled",
            "NotBefore": "" if started else format_datetime(not_before, usegmt=True),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
            **azure,
        },
        document_incarnation=7,
        vm=machine,
        not_before="" if started else rfc3339(not_before),
        leader=machine.name == min(names) if leader is None else leader,
        approval=ApprovalInfo(
            topic=f"{root_of(machine.name)}/commands" if topic is None else topic,
            token="t0ken",
            state=state,
        ),
        ended=ending,
    )
    draft = CloudEvent(
        specversion="1.0",
        source=machine.resource_id,
        type=cloudevents.EVENT_TYPE.format(transition),
        subject=event_id,
        time=rfc3339(now),
        partitionkey=machine.name,
        correlationid=event_id,
        datacontenttype=cloudevents.JSON_CONTENT_TYPE,
        data=msgspec.Raw(msgspec.json.encode(data)),
    )
    return encode(cloudevents.stamp(draft, ledger_id=machine.name, sequence=sequence))


def outcome(machine: Vm, *, sequence: int = 2, now: datetime = NOW, **fields: Any) -> bytes:
    defaults = {"status": "approved", "event_id": "602D9444-D2CD-49C7-8624-8643E7171297"}
    draft = cloudevents.from_outcome(OutcomeData(**{**defaults, **fields}), vm=machine, now=now)
    return encode(cloudevents.stamp(draft, ledger_id=machine.name, sequence=sequence))


class Publisher:
    """One client that speaks for every agent."""

    def __init__(self, port: int) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.max_queued_messages_set(0)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def status(self, machine: Vm, word: str = "online", **fields: Any) -> None:
        self._send(machine, "status", status(machine, word, **fields), retain=True)

    def event(self, machine: Vm, event_id: str, **fields: Any) -> None:
        payload = event(machine, event_id, **fields)
        self._send(machine, "events", payload)
        over = fields.get("transition") in {"completed", "canceled", "ended"}
        self._send(machine, f"pending/{event_id}", b"" if over else payload, retain=True)

    def outcome(self, machine: Vm, **fields: Any) -> None:
        self._send(machine, "outcomes", outcome(machine, **fields))

    def _send(self, machine: Vm, name: str, payload: bytes, *, retain: bool = False) -> None:
        self._client.publish(f"{root_of(machine.name)}/{name}", payload, 1, retain)

    def flush(self) -> None:
        self._client.publish("sebridge/flush", b"", 1).wait_for_publish(20)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
