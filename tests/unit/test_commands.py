"""Whatever arrives becomes a command or a reason, and never an exception."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core.commands import (
    COMMAND_TYPE,
    Command,
    Malformed,
    Wire,
    decode,
    fingerprint,
    reused_key,
    wire_key,
)
from tests.builders import (
    ANY_TEXT,
    EVENT_ID,
    PRINTABLE,
    command,
    command_bytes,
    command_fields,
)

BINARY = (
    ("specversion", "1.0"),
    ("id", "c-1"),
    ("source", "/ops/oncall"),
    ("type", COMMAND_TYPE),
)


def decode_wire(
    payload: bytes, content_type: str = "", attributes: tuple[tuple[str, str], ...] = ()
) -> Command | Malformed:
    wire = Wire(payload=payload, content_type=content_type, attributes=attributes)
    return decode(wire, bytes_max=4096)


def detail_of(actual: Command | Malformed) -> str:
    assert isinstance(actual, Malformed), actual
    return actual.detail


def test_decode_full_command_gives_every_field() -> None:
    """The contract's example arrives whole."""
    data = {
        "eventId": EVENT_ID,
        "vm": "web_3",
        "expect": {"eventType": "Terminate", "resources": ["web_3"]},
        "token": "t",
        "reason": "drained",
        "override": ["leader", "in-doubt", "history"],
    }
    payload = command_bytes(
        data,
        time="2026-11-18T06:00:00Z",
        expirytime="2026-11-18T08:10:00+02:00",
        idempotencykey="chg-4711",
        dssematerial="tolerated",
    )
    expected = Command(
        id="c-1",
        source="/ops/oncall",
        key="chg-4711",
        fingerprint=fingerprint(data),
        event_id=EVENT_ID,
        time=datetime(2026, 11, 18, 6, 0, tzinfo=UTC),
        expires_at=datetime(2026, 11, 18, 6, 10, tzinfo=UTC),
        vm="web_3",
        expect_type="Terminate",
        expect_resources=("web_3",),
        token="t",
        reason="drained",
        override=frozenset({"leader", "in-doubt", "history"}),
    )

    assert decode_wire(payload, "application/cloudevents+json; charset=utf-8") == expected


SHORTEST = Command(
    id="c-1",
    source="/ops/oncall",
    key="/ops/oncall#c-1",
    fingerprint=fingerprint({"eventId": EVENT_ID}),
    event_id=EVENT_ID,
)


def test_decode_shortest_command_gets_its_key_from_source_and_id() -> None:
    """Only eventId is required in data."""
    assert decode_wire(command_bytes()) == SHORTEST


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "Application/JSON; charset=utf-8"]
)
def test_decode_binary_mode_gives_the_same_command(content_type: str) -> None:
    """Attributes in user properties and data in the payload mean the same."""
    payload = msgspec.json.encode({"eventId": EVENT_ID})

    assert decode_wire(payload, content_type, (*BINARY, ("x", "tolerated"))) == SHORTEST


def test_decode_structured_content_type_ignores_user_properties() -> None:
    """What calls itself structured is read as structured."""
    attributes = (*BINARY, ("id", "other"))

    assert decode_wire(command_bytes(), "application/cloudevents+json", attributes) == SHORTEST


@pytest.mark.parametrize(
    "datacontenttype", ["application/json", "application/vnd.x+json", None, ""]
)
def test_decode_json_media_types_are_taken(datacontenttype: str | None) -> None:
    """Every way to say JSON is good."""
    assert decode_wire(command_bytes(datacontenttype=datacontenttype)) == SHORTEST


@pytest.mark.parametrize(
    ("payload", "attributes", "why"),
    [
        (b"{}", (*BINARY, ("id", "c-2")), "a user property stands there twice"),
        (b"{}", (*BINARY, ("datacontenttype", "text/plain")), "'text/plain' is not JSON"),
        (b"{}", (*BINARY[:3], ("type", "other")), "specversion is not"),
        (b"{}", BINARY, "data.eventId is missing"),
        (b"[]", BINARY, "expected an object"),
        (b"\xff", BINARY, "malformed"),
        (b'{"eventId":"a","eventId":"b"}', BINARY, "duplicate key 'eventId'"),
    ],
)
def test_decode_bad_binary_command_is_malformed(
    payload: bytes, attributes: tuple[tuple[str, str], ...], why: str
) -> None:
    """Binary commands are read as strictly as structured ones."""
    if why.startswith("specversion"):
        payload, attributes = command_bytes(specversion="0.3"), attributes[1:]

    assert why in detail_of(decode_wire(payload, "", attributes))


@pytest.mark.parametrize(
    ("data", "attributes", "why"),
    [
        ({}, {"specversion": "0.3"}, "specversion is not '1.0'"),
        ({}, {"specversion": 1.0}, "specversion is not '1.0'"),
        ({}, {"type": "other"}, f"type is not '{COMMAND_TYPE}'"),
        ({}, {"type": ["x"]}, f"type is not '{COMMAND_TYPE}'"),
        ({}, {"id": None}, "id is missing"),
        ({}, {"id": ""}, "id is missing"),
        ({}, {"id": 5}, "id is not a plain string"),
        ({}, {"source": "a\nb"}, "source is not a plain string"),
        ({}, {"source": "a" * 513}, "source is not a plain string"),
        ({}, {"idempotencykey": 1}, "idempotencykey is not a plain string"),
        ({}, {"idempotencykey": "auto:e-1"}, "idempotencykey must not begin with auto:"),
        ({}, {"idempotencykey": "key-reused:0"}, "must not begin with key-reused:"),
        ({}, {"source": "malformed:0"}, "idempotencykey must not begin with malformed:"),
        ({}, {"time": "yesterday"}, "time is not an RFC 3339 time"),
        ({}, {"time": "2026-11-18T06:00:00"}, "time is not an RFC 3339 time with a time zone"),
        ({}, {"time": 1}, "time is not a plain string"),
        ({}, {"expirytime": "0001-01-01T00:00:00+23:00"}, "expirytime is not an RFC 3339 time"),
        ({}, {"data": None}, "data is not an object"),
        ({}, {"data": "e"}, "data is not an object"),
        ({}, {"data_base64": "e30="}, "data_base64 is not used here"),
        ({}, {"datacontenttype": "text/xml"}, "datacontenttype 'text/xml' is not JSON"),
        ({}, {"datacontenttype": [1]}, "datacontenttype '[1]' is not JSON"),
        ({"eventId": None}, {}, "data.eventId is missing"),
        ({"eventId": 1}, {}, "data.eventId is not a plain string"),
        ({"exepct": {}}, {}, "data.exepct is not a known key"),
        ({"a\nb": {}}, {}, "data.ab is not a known key"),
        ({"vm": 3}, {}, "data.vm is not a plain string"),
        ({"expect": "x"}, {}, "data.expect is not an object"),
        ({"expect": []}, {}, "data.expect is not an object"),
        ({"expect": False}, {}, "data.expect is not an object"),
        ({"expect": {"type": "x"}}, {}, "data.expect.type is not a known key"),
        ({"expect": {"eventType": 1}}, {}, "data.expect.eventType is not a plain string"),
        ({"expect": {"resources": "x"}}, {}, "data.expect.resources is not a list of strings"),
        ({"expect": {"resources": [1]}}, {}, "data.expect.resources is not a list of strings"),
        ({"token": 1}, {}, "data.token is not a plain string"),
        ({"reason": 1}, {}, "data.reason is not a string of at most 1024"),
        ({"reason": "x" * 1025}, {}, "data.reason is not a string of at most 1024"),
        ({"override": "leader"}, {}, "data.override is not a list of strings"),
        ({"override": [2**70]}, {}, "a number is out of range"),
        ({"override": ["all"]}, {}, "data.override 'all' is none of history, in-doubt, leader"),
    ],
)
def test_decode_bad_field_is_malformed_and_named(
    data: dict[str, Any], attributes: dict[str, Any], why: str
) -> None:
    """The answer names the field that is wrong."""
    payload = json.dumps(command_fields(data) | attributes).encode()

    assert why in detail_of(decode_wire(payload))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "expecting value"),
        (b"approve!", "malformed"),
        (b'{"id":"a","id":"b"}', "duplicate key 'id'"),
        (b'{"a":' * 700, "expecting value"),
        (b"[" * 4096, "too dense"),
        (b'{"id":"\xff"}', "utf-8"),
        (b" " * 4097, "4097 bytes, more than the 4096 allowed"),
    ],
)
def test_decode_bad_bytes_are_malformed(payload: bytes, why: str) -> None:
    """Rubbish gets an answer with the reason."""
    assert why in detail_of(decode_wire(payload)).lower()


def test_decode_malformed_keeps_the_senders_name() -> None:
    """The sender can find his mistake, and control characters do not travel."""
    actual = decode_wire(command_bytes({"typo": 1}, id="c\n1", source="/ops"))

    assert isinstance(actual, Malformed)
    assert (actual.id, actual.source) == ("c1", "/ops")


@pytest.mark.parametrize(
    "data", [{"expect": None}, {"expect": {}}, {"reason": None, "token": None}]
)
def test_decode_null_means_absent(data: dict[str, Any]) -> None:
    """A null is the same as leaving the key out."""
    actual = decode_wire(command_bytes(data))

    assert isinstance(actual, Command)
    assert (actual.expect_type, actual.expect_resources, actual.token) == (None, None, None)


def test_wire_key_same_rubbish_same_key() -> None:
    """The same bytes and properties get the same answer, others another."""
    first = Wire(payload=b"x", attributes=(("a", "\ud800"),))
    other = Wire(payload=b"x", attributes=(("a", "b"),))

    assert wire_key("malformed", first) == wire_key("malformed", first)
    assert wire_key("malformed", first) != wire_key("malformed", other)
    assert wire_key("malformed", first).startswith("malformed:")


def test_fingerprint_order_of_keys_does_not_matter() -> None:
    """A sender that writes the same data in another order repeats himself."""
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )


def test_fingerprint_tells_one_body_from_another() -> None:
    """A key that comes with other data is reused, not repeated."""
    one, other = {"eventId": "a"}, {"eventId": "a", "override": ["in-doubt"]}

    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) != fingerprint({"eventId": "b"})


def test_reused_key_is_of_key_and_body() -> None:
    """The same key with the same data is the same refusal, whatever the command's id."""
    again = command(id="c-2", source="/other")
    others = (command(key="chg-4712"), command(fingerprint="f-2"))

    assert reused_key(command()) == reused_key(again)
    assert reused_key(command()).startswith("key-reused:")
    assert len({reused_key(each) for each in (command(), *others)}) == 3


names = st.sampled_from([*command_fields(), "time", "datacontenttype", "idempotencykey"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["eventId", "expect", "override", "reason"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.text(max_size=10), st.booleans())
def test_decode_any_bytes_never_raise(payload: bytes, content_type: str, binary: bool) -> None:
    """Any bytes get an answer."""
    actual = decode_wire(payload, content_type, BINARY if binary else ())

    assert isinstance(actual, Command | Malformed)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(names, values), st.dictionaries(st.text(max_size=8), st.text(max_size=8)))
def test_decode_any_json_never_raises(changes: dict[str, Any], properties: dict[str, str]) -> None:
    """Any command with any field replaced gets an answer."""
    payload = json.dumps(command_fields() | changes).encode()

    actual = decode_wire(payload, "", tuple(properties.items()))

    assert isinstance(actual, Command | Malformed)


plain = st.text(PRINTABLE, min_size=1, max_size=12)
moments = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {"id": plain, "source": plain},
        optional={"idempotencykey": plain, "time": moments, "expirytime": moments},
    ),
    st.fixed_dictionaries(
        {"eventId": plain},
        optional={
            "vm": plain,
            "token": plain,
            "reason": ANY_TEXT,
            "expect": st.fixed_dictionaries(
                {}, optional={"eventType": plain, "resources": st.lists(plain, max_size=3)}
            ),
            "override": st.lists(st.sampled_from(["leader", "in-doubt", "history"])),
        },
    ),
)
def test_decode_any_good_command_is_the_same_in_both_modes(
    attributes: dict[str, str], data: dict[str, Any]
) -> None:
    """Nothing that the sender said is lost, and the content mode does not matter."""
    all_attributes = {"specversion": "1.0", "type": COMMAND_TYPE} | attributes

    structured = decode_wire(json.dumps(all_attributes | {"data": data}).encode())
    binary = decode_wire(
        json.dumps(data).encode(), "application/json", tuple(all_attributes.items())
    )

    assert isinstance(structured, Command)
    assert binary == structured
    assert structured.event_id == data["eventId"]
    assert structured.key == attributes.get(
        "idempotencykey", f"{attributes['source']}#{attributes['id']}"
    )
    assert structured.token == data.get("token")
    assert structured.expect_type == data.get("expect", {}).get("eventType")
    assert structured.override == set(data.get("override", []))
    for moment, name in ((structured.time, "time"), (structured.expires_at, "expirytime")):
        assert (moment.isoformat() if moment else None) == attributes.get(name)
