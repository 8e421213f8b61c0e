"""The published JSON Schemas: up to date, and of one mind with the code that decodes commands."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from bridge import schemas
from bridge.core import cloudevents, commands
from bridge.core.commands import Command, Malformed, Wire, decode
from tests.builders import command_fields

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
BUILT = schemas.build()
COMMAND = Draft7Validator(BUILT["command.v1.json"])


def agent_takes(fields: Any) -> bool:
    raw = msgspec.json.encode(fields)
    found = decode(Wire(payload=raw), bytes_max=65_536)
    assert isinstance(found, Command | Malformed)
    return isinstance(found, Command)


def test_committed_files_are_what_the_structs_make() -> None:
    """`make schemas` was run: nothing is stale, missing or left over."""
    committed = {path.name: path.read_bytes() for path in FOLDER.iterdir()}

    assert {name: schemas.render(schema) for name, schema in BUILT.items()} == committed


@pytest.mark.parametrize("name", BUILT)
def test_schema_is_valid_itself(name: str) -> None:
    """Each file is good draft-07."""
    Draft7Validator.check_schema(BUILT[name])


def test_schemas_name_every_type() -> None:
    """No CloudEvent type of the program is without a schema, and none is invented."""
    listed = [type_ for schema in BUILT.values() for type_ in schema["properties"]["type"]["enum"]]

    events = [cloudevents.EVENT_TYPE.format(kind) for kind in
              ("scheduled", "updated", "started", "completed", "canceled", "ended")]  # fmt: skip
    others = [*cloudevents.OUTCOME_TYPES.values(), cloudevents.STATUS_TYPE, commands.COMMAND_TYPE]
    assert sorted([*events, *others]) == sorted(listed)


def test_command_structs_have_the_keys_that_the_decoder_knows() -> None:
    """A key added to the decoder is added to the schema."""
    definitions = BUILT["command.v1.json"]["definitions"]

    assert set(definitions["CommandData"]["properties"]) == commands._DATA_KEYS
    assert set(definitions["Expect"]["properties"]) == commands._EXPECT_KEYS
    override = definitions["CommandData"]["properties"]["override"]["anyOf"][0]["items"]["enum"]
    assert set(override) == commands.OVERRIDES


GOOD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"vm": "web_3", "token": "t", "reason": "drained", "override": []}, {}),
    ({"vm": None, "expect": None, "token": None, "reason": None, "override": None}, {}),
    ({"vm": "", "reason": "two\nlines"}, {"idempotencykey": ""}),
    ({"expect": {}}, {}),
    ({"expect": {"eventType": "Reboot", "resources": ["web_3"]}}, {}),
    ({"expect": {"eventType": None, "resources": None}}, {}),
    ({"override": ["leader", "in-doubt", "history", "leader"]}, {}),
    ({"reason": "x" * 1024}, {"id": "x" * 512}),
    ({}, {"time": "2026-11-18T06:00:00Z", "expirytime": "2026-11-18T08:10:00.5+02:00"}),
    ({}, {"time": None, "expirytime": None, "idempotencykey": None, "datacontenttype": None}),
    ({}, {"datacontenttype": "application/json"}),
    ({}, {"datacontenttype": "Application/JSON; charset=utf-8"}),
    ({}, {"datacontenttype": "application/vnd.acme+json"}),
    ({}, {"traceparent": 7, "subject": None, "dataschema": {}}),
    ({"eventId": "Ärger 😀"}, {}),
]
BAD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"specversion": "0.3"}),
    ({}, {"specversion": 1.0}),
    ({}, {"type": "io.sebridge.approve.v2"}),
    ({}, {"type": None}),
    ({}, {"id": ""}),
    ({}, {"id": None}),
    ({}, {"id": 5}),
    ({}, {"id": "x" * 513}),
    ({}, {"source": ""}),
    ({}, {"source": "a\u0000b"}),
    ({}, {"source": "a\u200bb"}),
    ({}, {"idempotencykey": ["k"]}),
    ({}, {"time": "yesterday"}),
    ({}, {"time": "2026-11-18T06:00:00"}),
    ({}, {"time": "2026-11-18T06:00Z"}),
    ({}, {"time": "2026-11-18T06:00:00Z\n"}),
    ({}, {"time": "20261118T060000Z"}),
    ({}, {"time": "2026-W47-3T06:00:00Z"}),
    ({}, {"expirytime": 1794981600}),
    ({}, {"datacontenttype": "text/plain"}),
    ({}, {"datacontenttype": "application/xml; like=+json"}),
    ({}, {"datacontenttype": 5}),
    ({}, {"data": None}),
    ({}, {"data": []}),
    ({}, {"data": {}}),
    ({}, {"data_base64": ""}),
    ({"eventId": ""}, {}),
    ({"eventId": None}, {}),
    ({"eventId": "x" * 513}, {}),
    ({"event_id": "a"}, {}),
    ({"vm": 3}, {}),
    ({"vm": "a\nb"}, {}),
    ({"expect": []}, {}),
    ({"expect": {"type": "Reboot"}}, {}),
    ({"expect": {"resources": "web_3"}}, {}),
    ({"expect": {"resources": [3]}}, {}),
    ({"token": False}, {}),
    ({"reason": "x" * 1025}, {}),
    ({"reason": ["drained"]}, {}),
    ({"override": "leader"}, {}),
    ({"override": ["everything"]}, {}),
    ({"override": [1]}, {}),
]


@pytest.mark.parametrize(("data", "attributes"), GOOD)
def test_agent_and_schema_take_the_same(data: dict[str, Any], attributes: dict[str, Any]) -> None:
    """What a consumer may send by the schema, the agent can read."""
    fields = command_fields(data) | attributes

    assert (True, True) == (agent_takes(fields), COMMAND.is_valid(fields))


@pytest.mark.parametrize(("data", "attributes"), BAD)
def test_agent_and_schema_refuse_the_same(data: dict[str, Any], attributes: dict[str, Any]) -> None:
    """What the schema refuses the agent calls malformed, and the other way round."""
    fields = command_fields(data) | attributes

    assert (False, False) == (agent_takes(fields), COMMAND.is_valid(fields))


@pytest.mark.parametrize("missing", ["specversion", "id", "source", "type", "data"])
def test_agent_and_schema_miss_the_same(missing: str) -> None:
    """Each required attribute is required by both."""
    fields = command_fields()
    del fields[missing]

    assert (False, False) == (agent_takes(fields), COMMAND.is_valid(fields))


# Printable letters only: classes of invisible characters are the next test's subject.
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts | st.sampled_from(["leader", "1.0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
attribute_names = ["specversion", "id", "source", "type", "time", "idempotencykey", "data_base64"]
data_names = ["eventId", "vm", "token", "reason", "override", "surprise", "expect"]


@given(
    st.dictionaries(st.sampled_from(attribute_names), values, max_size=2),
    st.dictionaries(st.sampled_from(data_names), values, max_size=2),
    st.dictionaries(st.sampled_from(["eventType", "resources", "type"]), values, max_size=2),
)
def test_agent_and_schema_agree_on_any_change(
    attributes: dict[str, Any], data: dict[str, Any], expect: dict[str, Any]
) -> None:
    """Whatever is put in place of good values, both say the same."""
    fields = command_fields({"expect": expect, **data}, **attributes)

    assert agent_takes(fields) == COMMAND.is_valid(fields)


def test_schema_refuses_no_character_that_the_agent_takes() -> None:
    """The expression for invisible characters may miss some, and never goes too far."""
    invisible = re.compile(schemas._INVISIBLE)

    refused = {chr(number) for number in range(0x10000) if invisible.search(chr(number))}

    assert {character for character in refused if character.isprintable()} == set()
    assert set("\x00\n\x7f\xa0\u200b\u2028\u202e\ufeff") <= refused
