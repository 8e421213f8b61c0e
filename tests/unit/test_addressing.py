"""Whom a command is for: read from either content mode, and never an exception."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core.addressing import addressee
from bridge.core.commands import COMMAND_TYPE, Wire
from tests.builders import command_bytes

BINARY = (
    ("specversion", "1.0"),
    ("id", "c-1"),
    ("source", "/ops/oncall"),
    ("type", COMMAND_TYPE),
)


@pytest.mark.parametrize(
    ("payload", "attributes", "expected"),
    [
        (command_bytes({"vm": "web_3"}), (), "web_3"),
        (command_bytes(), (), ""),
        (b'{"data":{"vm":null}}', (), ""),
        (b'{"data":{"vm":7}}', (), ""),
        (b'{"data":[]}', (), ""),
        (b"rubbish", (), ""),
        (b"\xff", (), ""),
        (b'{"data":{"vm":"web\xff"}}', (), ""),
        (b'{"vm":"web\xff","eventId":"E"}', BINARY, ""),
        (b'{"data":{"vm":"\xc3"}}', (), ""),
        (b'{"data":{"vm":"\\ud800"}}', (), ""),
        (b'{"data":' + b"[" * 4000, (), ""),
        (b'{"vm":"web_3","eventId":"E"}', BINARY, "web_3"),
        (b'{"vm":"web_3","eventId":"E"}', (), ""),
        (b'{"data":{"vm":"web_3","reason":"' + b"x" * 4096 + b'"}}', (), ""),
    ],
)
def test_addressee_is_read_without_the_rest(
    payload: bytes, attributes: tuple[tuple[str, str], ...], expected: str
) -> None:
    """The VM that a command names, from either content mode; whatever else it is, no exception."""
    assert addressee(Wire(payload=payload, attributes=attributes), bytes_max=4096) == expected


ANY_BYTES = st.binary(max_size=80)
ANY_NAME = st.builds(lambda name: b'{"vm":"%s","data":{"vm":"%s"}}' % (name, name), ANY_BYTES)


@settings(max_examples=150, deadline=None)
@given(ANY_BYTES | ANY_NAME, st.booleans())
def test_addressee_of_any_bytes_never_raises(payload: bytes, binary: bool) -> None:
    """A stranger's message in a shared hub stops nobody."""
    wire = Wire(payload=payload, attributes=BINARY if binary else ())

    assert isinstance(addressee(wire, bytes_max=4096), str)
