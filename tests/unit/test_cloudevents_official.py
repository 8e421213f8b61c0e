"""Every CloudEvent this program can write is one for the official SDK, in both content modes."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkCloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core import cloudevents
from bridge.core.cloudevents import ApprovalInfo, CloudEvent, OutcomeData, StatusData, Vm
from bridge.core.diff import Circumstances, Transition, diff
from tests.builders import ANY_TEXT, EVENT_ID, NOW, PRINTABLE, document, scheduled_event

VM = Vm(name="web_3", vm_id="v-1", resource_id="/subscriptions/s/resourceGroups/rg/vm/web_3")
CALM = Circumstances(now=NOW, gap=False)
EMPTY = document(incarnation=8)
PENDING = document(scheduled_event())
STARTED = document(scheduled_event(event_status="Started", not_before=None))
TRANSITIONS = {
    "scheduled": (EMPTY, PENDING, CALM),
    "updated": (PENDING, document(scheduled_event(duration_in_seconds=9)), CALM),
    "started": (PENDING, STARTED, CALM),
    "completed": (STARTED, EMPTY, CALM),
    "canceled": (PENDING, EMPTY, CALM),
    "ended": (PENDING, EMPTY, Circumstances(now=NOW, gap=True)),
}


def from_transition(transition: Transition, vm: Vm = VM) -> CloudEvent:
    draft = cloudevents.from_transition(
        transition,
        PENDING,
        vm=vm,
        leader=True,
        approval=ApprovalInfo(topic="root/commands", token="t", state="none"),
        now=NOW,
    )
    return cloudevents.stamp(draft, ledger_id="L", sequence=42)


def from_outcome(outcome: OutcomeData, vm: Vm = VM) -> CloudEvent:
    draft = cloudevents.from_outcome(outcome, vm=vm, now=NOW)
    return cloudevents.stamp(draft, ledger_id="L", sequence=43)


def every_type() -> dict[str, CloudEvent]:
    events: dict[str, CloudEvent] = {}
    for kind, (previous, current, circumstances) in TRANSITIONS.items():
        (transition,) = diff(previous, current, circumstances)
        assert transition.kind == kind
        events[kind] = from_transition(transition)
    statuses: tuple[Any, ...] = ("approved", "confirmed", "rejected", "in-doubt")
    for status in statuses:
        outcome = OutcomeData(status=status, event_id=EVENT_ID, command_id="c-1", http_status=200)
        events[status] = from_outcome(outcome)
    words: tuple[Any, ...] = ("online", "offline", "blind")
    for word in words:
        status_data = StatusData(status=word, vm=VM, version="1")
        events[word] = cloudevents.from_status(status_data, identifier=f"s.{word}", now=NOW)
    return events


def data_of(event: CloudEvent) -> bytes:
    return bytes(cloudevents.decode(cloudevents.encode(event)).data)


def read_structured(event: CloudEvent) -> Any:
    return JSONFormat().read(SdkCloudEvent, cloudevents.encode(event))


def read_binary(event: CloudEvent) -> Any:
    """As a subscriber would: user properties, the content type, and the payload."""
    attributes: dict[str, Any] = dict(cloudevents.attributes(event))
    attributes["time"] = datetime.fromisoformat(attributes["time"])
    attributes["datacontenttype"] = cloudevents.JSON_CONTENT_TYPE
    data = JSONFormat().read_data(data_of(event), cloudevents.JSON_CONTENT_TYPE)
    return SdkCloudEvent(attributes, data)


@pytest.mark.parametrize("read", [read_structured, read_binary], ids=["structured", "binary"])
@pytest.mark.parametrize("event", every_type().values(), ids=every_type())
def test_every_type_is_valid_in_both_modes(event: CloudEvent, read: Any) -> None:
    """The SDK takes it, and finds the attributes and the data that were put in."""
    actual = read(event)

    expected = cloudevents.attributes(event) | {"datacontenttype": "application/json"}
    assert actual.get_attributes() | {"time": event.time} == expected
    assert abs(actual.get_time() - NOW) < timedelta(milliseconds=1)
    assert actual.get_data() == msgspec.json.decode(data_of(event))


def test_every_type_is_named_as_the_contract_has_it() -> None:
    """Consumers filter by these names."""
    assert {event.type for event in every_type().values()} == {
        *(f"io.sebridge.event.{kind}.v1" for kind in TRANSITIONS),
        *cloudevents.OUTCOME_TYPES.values(),
        "io.sebridge.agent.status.v1",
    }


def test_vm_without_a_resource_id_still_has_a_source() -> None:
    """CloudEvents forbids an empty source; what IMDS did not say is made from the VM's name."""
    bare = Vm(name="web 3")

    event = from_outcome(OutcomeData(status="approved"), vm=bare)

    assert event.source == "/virtualMachines/web%203"
    assert read_structured(event).get_source() == event.source


# What commands.decode and document.decode let through as names.
plain = st.text(PRINTABLE, max_size=40)
names = st.text(PRINTABLE, min_size=1, max_size=40)
vms = st.builds(Vm, name=names, vm_id=plain, resource_id=st.just("") | st.just(VM.resource_id))
outcomes = st.builds(
    OutcomeData,
    status=st.sampled_from(list(cloudevents.OUTCOME_TYPES)),
    reason=ANY_TEXT,
    detail=ANY_TEXT,
    rule=ANY_TEXT,
    event_id=plain,
    command_id=plain,
    idempotency_key=plain,
    requested_by=plain,
    replay=st.booleans(),
    http_status=st.none() | st.integers(100, 599),
    waiting_on=st.lists(plain, max_size=3).map(tuple),
)


@settings(max_examples=150, deadline=None)
@given(outcomes, vms)
def test_any_outcome_survives_the_way_out_and_back(outcome: OutcomeData, vm: Vm) -> None:
    """Encoded and read again it is the same, for us and for the SDK in both modes."""
    event = from_outcome(outcome, vm)

    again = cloudevents.decode(cloudevents.encode(event))

    assert cloudevents.attributes(again) == cloudevents.attributes(event)
    assert msgspec.json.decode(again.data, type=OutcomeData) == outcome
    assert read_structured(event).get_data() == read_binary(event).get_data()


@settings(max_examples=100, deadline=None)
@given(names, st.dictionaries(ANY_TEXT, ANY_TEXT | st.integers(-(2**63), 2**63 - 1)))
def test_any_scheduled_event_survives_the_way_out_and_back(
    event_id: str, raw: dict[str, Any]
) -> None:
    """What IMDS wrote stands in `data.event`, letter for letter."""
    (transition,) = diff(EMPTY, document(scheduled_event(event_id=event_id, raw=raw)), CALM)
    event = from_transition(transition)

    again = cloudevents.decode(cloudevents.encode(event))

    assert cloudevents.attributes(again) == cloudevents.attributes(event)
    assert read_structured(event).get_data()["event"] == raw
    assert read_binary(event).get_subject() == event_id
