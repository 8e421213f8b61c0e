"""docs/events.md against the schemas: every field is in its table, and every example is real."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft7Validator

from bridge import schemas

TEXT = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
BUILT = schemas.build()
EXAMPLES = [
    msgspec.json.decode(found) for found in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
]


def listed(heading: str) -> set[str]:
    """The names in the first column of the first table below a heading, `data.` left out."""
    text = TEXT.partition(f"\n## {heading}\n")[2].partition("\n#")[0]
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(?:data\.)?([\w.]+)`", cell)}


def fields(schema: dict[str, Any], name: str) -> set[str]:
    properties = schema["definitions"][name]["properties"] if name else schema["properties"]
    return {field for field, value in properties.items() if value is not False}


def test_attributes_are_all_explained() -> None:
    """The table of attributes has those of the envelope, and no other."""
    assert fields(BUILT["outcome.v1.json"], "") - {"data"} == listed("Attributes")


def test_fields_of_an_event_are_all_explained() -> None:
    """The table has every field of the struct, those of `approval` one by one."""
    approval = {f"approval.{name}" for name in fields(BUILT["event.v1.json"], "ApprovalInfo")}

    expected = (fields(BUILT["event.v1.json"], "EventData") - {"approval"}) | approval
    assert expected == listed("`data` of an event")


def test_fields_of_an_outcome_are_all_explained() -> None:
    """The table has every field of the struct."""
    assert fields(BUILT["outcome.v1.json"], "OutcomeData") == listed("`data` of an outcome")


def test_fields_of_a_status_are_all_explained() -> None:
    """The table has every field of the struct."""
    assert fields(BUILT["status.v1.json"], "StatusData") == listed("`data` of a status")


def test_fields_of_a_command_are_all_explained() -> None:
    """The table has every attribute that the agent looks at, and every key of data."""
    schema = BUILT["command.v1.json"]

    expected = fields(schema, "") - {"data", "datacontenttype"} | fields(schema, "CommandData")
    assert expected == listed("Commands")


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if "specversion" in e], ids=lambda e: e["type"]
)
def test_whole_examples_follow_their_schema(example: dict[str, Any]) -> None:
    """What a reader copies from the page is valid."""
    (schema,) = (s for s in BUILT.values() if example["type"] in s["properties"]["type"]["enum"])

    Draft7Validator(schema).validate(example)


def test_every_transition_and_outcome_has_an_example() -> None:
    """No kind of message is left to the imagination."""
    data = [example.get("data", example) for example in EXAMPLES]

    transitions = {d["transition"] for d in data if "transition" in d}
    outcomes = {d["status"] for d in data if "commandId" in d}
    assert (
        set(BUILT["event.v1.json"]["definitions"]["EventData"]["properties"]["transition"]["enum"])
        == transitions
    )
    assert {"approved", "confirmed", "rejected", "in-doubt"} == outcomes
