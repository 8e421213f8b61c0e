"""JSON from outside is one bounded object, or `NotJson`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core.strict_json import DEPTH_MAX, INTEGER_MAX, NotJson, decode_object

BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expecting value"),
    "list": (b"[]", "expected an object, got list"),
    "null": (b"null", "expected an object, got NoneType"),
    "duplicate": (b'{"a":1,"a":2}', "duplicate key 'a'"),
    "duplicate below": (b'{"a":[{"b":1,"b":1}]}', "duplicate key 'b'"),
    "duplicate by escape": (b'{"a":1,"\\u0061":2}', "duplicate key 'a'"),
    "nan": (b'{"a":NaN}', "malformed"),
    "infinite": (b'{"a":1e999}', "out of range"),
    "infinite below": (b'{"a":[-1e999]}', "out of range"),
    "bom": (b"\xef\xbb\xbf{}", "byte order mark"),
    "utf-16": ('{"a":1}'.encode("utf-16"), "malformed"),
    "bad utf-8": (b'{"a":"\xff"}', "utf-8"),
    "lone surrogate": (b'{"a":"\\ud800"}', "surrogates not allowed"),
    "lone surrogate in a key": (b'{"\\uDFFF":1}', "surrogates not allowed"),
    "trailing": (b"{} {}", "extra data"),
    "large integer": (b'{"a":%d}' % (INTEGER_MAX + 1), "a number is out of range"),
    "large integer in a list": (b'{"a":[-%d]}' % (INTEGER_MAX + 1), "a number is out of range"),
    "endless integer": (b'{"a":1%s}' % (b"0" * 5000), ""),
    "depth bomb": (b'{"a":' * 50_000, "too dense"),
    "thin depth bomb": (b'{"abcdef":' * 5_000, "recursion"),
    "list bomb": (b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "too dense"),
    "thin list bomb": (b'{"a":' + b"[       " * 5_000 + b"]" * 5_000 + b"}", "recursion"),
    "values without end": (b'{"a":[' + b"0," * 2_000 + b"0]}", "2002 values in 4009 bytes"),
    "too deep": (b'{"a":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}", "nested deeper than 64"),
}


@pytest.mark.parametrize(("raw", "why"), BAD.values(), ids=BAD)
def test_decode_object_bad_bytes_raise_not_json(raw: bytes, why: str) -> None:
    """What is not one clean object is refused with the reason."""
    with pytest.raises(NotJson) as caught:
        decode_object(raw, bytes_max=1_000_000)

    assert why in str(caught.value).lower() or why in str(caught.value)


def test_decode_object_size_is_checked_before_content() -> None:
    """A byte too many is refused, and exactly the limit is not."""
    with pytest.raises(NotJson) as caught:
        decode_object(b"{} ", bytes_max=2)

    assert str(caught.value) == "3 bytes, more than the 2 allowed"
    assert decode_object(b"{}", bytes_max=2) == {}


def test_decode_object_limits_themselves_are_allowed() -> None:
    """The deepest nesting and the largest number pass."""
    depth = DEPTH_MAX - 1
    nested = b"[" * depth + b"]" * depth

    actual = decode_object(b'{"a":%s,"b":%d}' % (nested, INTEGER_MAX), bytes_max=1000)

    assert actual["b"] == INTEGER_MAX


def test_decode_object_keeps_values_as_they_are() -> None:
    """Numbers, escapes and pairs of surrogates come out as they went in."""
    raw = b'{"a":[1.5,-0,1e2,true,null],"b":"\\ud83d\\ude00\\n","c":{"d":"\xc3\xa9"}}'

    expected = {"a": [1.5, 0, 100.0, True, None], "b": "\U0001f600\n", "c": {"d": "\u00e9"}}
    assert decode_object(raw, bytes_max=1000) == expected


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_decode_object_any_bytes_raise_nothing_else(raw: bytes) -> None:
    """Any bytes give an object or `NotJson`."""
    try:
        actual: object = decode_object(raw, bytes_max=1000)
    except NotJson:
        return

    assert isinstance(actual, dict)
