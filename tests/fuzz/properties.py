"""Hypothesis against the same decoders: inputs by structure, where run.py mutates bytes.

Run by `make fuzz`; not collected by the default run.
"""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import command_fields
from tests.fuzz.targets import COMMANDS, TARGETS

EXAMPLES = 1_000
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(["2026-11-18T06:00:00Z", "io.sebridge.approve.v1", "1.0", "web_3"])
)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)
attributes = st.dictionaries(
    st.sampled_from([*json.loads(COMMANDS[3]), "data_base64", "subject", "dataschema"]) | st.text(),
    anything,
    max_size=4,
)
data = st.dictionaries(
    st.sampled_from(["eventId", "vm", "expect", "token", "reason", "override"]), anything
)
entries = st.lists(
    st.dictionaries(
        st.sampled_from(
            ["EventId", "EventType", "Resources", "EventStatus", "NotBefore", "Description"]
        ),
        anything,
    ),
    max_size=4,
)
often = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@pytest.mark.parametrize("name", TARGETS)
@often
@given(raw=st.binary(max_size=300))
def test_any_bytes(name: str, raw: bytes) -> None:
    """Bytes without any structure."""
    TARGETS[name].run(raw)


@often
@given(changes=attributes, body=data, signed=st.booleans())
def test_any_command(changes: dict[str, Any], body: dict[str, Any], signed: bool) -> None:
    """Any attributes and any data, in the form of a command, with a signature or without."""
    fields = json.loads(COMMANDS[3]) if signed else command_fields(body)
    raw = json.dumps({**fields, **changes}).encode()

    TARGETS["structured command"].run(raw)
    TARGETS["signed command"].run(raw)


@often
@given(
    payload=st.fixed_dictionaries(
        {},
        optional={
            "core": anything,
            "ext": anything,
            "signedextattrs": anything | st.lists(st.text()),
        },
    )
)
def test_any_signed_payload(payload: dict[str, Any]) -> None:
    """Any payload under a good signature."""
    TARGETS["signed payload"].run(json.dumps(payload).encode())


@often
@given(incarnation=anything, found=entries)
def test_any_document(incarnation: Any, found: list[dict[str, Any]]) -> None:
    """Any document in Azure's form."""
    raw = json.dumps({"DocumentIncarnation": incarnation, "Events": found}).encode()

    TARGETS["document"].run(raw)


@often
@given(text=st.text(max_size=200))
def test_any_text(text: str) -> None:
    """Any text in a log line, a topic, a configuration."""
    for name in ("log line", "topic", "configuration"):
        TARGETS[name].run(text.encode("utf-8", "surrogatepass"))
