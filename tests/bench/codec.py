"""The measurements without processes: CloudEvents out, commands in, the diff."""

import json
import timeit
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from bridge.core import cloudevents, commands, diff
from bridge.core.cloudevents import ApprovalInfo, Vm
from bridge.core.document import Document, decode
from tests.bench.fake_imds import scheduled_event

NOW = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)
VM = Vm(name="web_3", vm_id="5c08b38e", resource_id="/subscriptions/s/x", zone="2")


def microseconds(*works: Callable[[], object]) -> list[float]:
    """The best of twenty-five rounds of some 20 ms, in turns: a slow moment hits all alike."""
    timers = [timeit.Timer(work) for work in works]
    counts = [max(1, timer.autorange()[0] // 10) for timer in timers]
    rounds = [
        [timer.timeit(count) / count for timer, count in zip(timers, counts, strict=True)]
        for _ in range(25)
    ]
    return [min(found) * 1e6 for found in zip(*rounds, strict=True)]


class Codec(NamedTuple):
    whole_us: float  # all that the agent does
    alike_us: float  # only what the SDK does, too
    sdk_us: float


def write_cloudevent() -> Codec:
    """One CloudEvent to structured JSON.

    Whole: from a transition, times and all, stamped. Alike: from ready values, and each as its
    users write it: the SDK takes a dictionary, our struct takes keywords.
    """
    raw = json.dumps({"DocumentIncarnation": 1, "Events": [scheduled_event(1)]}).encode()
    document = decode(raw)
    (transition,) = diff.diff(None, document, diff.Circumstances(now=NOW, gap=False))
    approval = ApprovalInfo(topic="sebridge/v1/rg/web_3/commands", token="t" * 22, state="none")

    def whole() -> bytes:
        draft = cloudevents.from_transition(
            transition, document, vm=VM, leader=True, approval=approval, now=NOW
        )
        return cloudevents.encode(cloudevents.stamp(draft, ledger_id="0123456789ab", sequence=1))

    written = whole()
    ready, fields = cloudevents.decode(written), json.loads(written)
    data, sdk = fields.pop("data"), JSONFormat()
    sdk_fields = {**fields, "time": NOW}

    def alike() -> bytes:
        event = cloudevents.CloudEvent(
            specversion=ready.specversion,
            id=ready.id,
            source=ready.source,
            type=ready.type,
            subject=ready.subject,
            time=ready.time,
            sequence=ready.sequence,
            partitionkey=ready.partitionkey,
            correlationid=ready.correlationid,
            datacontenttype=ready.datacontenttype,
            data=data,
        )
        return cloudevents.encode(event)

    def theirs() -> bytes:
        return bytes(sdk.write(CloudEvent(sdk_fields, data)))

    assert alike() == written
    assert json.loads(theirs())["data"] == data
    return Codec(*microseconds(whole, alike, theirs))


def read_command() -> Codec:
    """One structured CloudEvent.

    Whole: to a `Command` whose every part is checked. Alike: to attributes and data.
    """
    payload = json.dumps(
        {
            "specversion": "1.0",
            "id": "0d6c3f0e",
            "source": "/ops/oncall",
            "type": "io.sebridge.approve.v1",
            "datacontenttype": "application/json",
            "time": "2026-11-18T06:00:00Z",
            "expirytime": "2026-11-18T06:10:00Z",
            "idempotencykey": "chg-4711",
            "data": {"eventId": "602d9444-d2cd-49c7-8624-8643e7171297", "vm": "web_3"},
        }
    ).encode()
    wire = commands.Wire(payload=payload, content_type="application/cloudevents+json")
    sdk = JSONFormat()

    def alike() -> object:
        event = cloudevents.decode(payload)
        return datetime.fromisoformat(event.time), msgspec.json.decode(event.data)

    assert isinstance(commands.decode(wire, bytes_max=65_536), commands.Command)

    def whole() -> object:
        return commands.decode(wire, bytes_max=65_536)

    return Codec(*microseconds(whole, alike, lambda: sdk.read(None, payload)))


def diff_documents(count: int) -> float:
    """Milliseconds for a diff in which a third ended, a third changed and a third is new."""
    third = count // 3 + 1
    before = _document(range(2 * third), "before")
    after = _document(range(third, 3 * third), "after")
    circumstances = diff.Circumstances(now=NOW + timedelta(seconds=1), gap=False)
    (us,) = microseconds(lambda: diff.diff(before, after, circumstances))
    return us / 1000


def _document(numbers: range, description: str) -> Document:
    events = [scheduled_event(number, description) for number in numbers]
    return decode(json.dumps({"DocumentIncarnation": 1, "Events": events}).encode())
