"""A small byte mutator: real messages in, nearly real ones out. The same seed gives the same bytes."""

import random
from collections.abc import Callable, Sequence

BYTES_MAX = 65_536
# What parsers trip over: structure, numbers, escapes, encodings, topics, markup, terminals.
DICTIONARY: tuple[bytes, ...] = (
    *(bytes([byte]) for byte in b'{}[]",:\\/+#$-.eE0 \t\n\r\x00\x1b\x7f\xff'),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e400", b"-0", b"1.7976931348623157e308"),
    *(b"9" * 19, b"9" * 400, b"9223372036854775808", b"0.1" * 30),
    *(b"\\u0000", b"\\ud800", b"\\uDFFF\\ud800", b"\\ud83d\\ude00", b"\xed\xa0\x80", b"\xc0\xaf"),
    *(b"\xef\xbb\xbf", b"\xe2\x80\xae", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\xc3\x9f"),
    *(b"{}", b"[]", b'""', b'{"a":' * 70, b"[" * 70, b'"eventId":"x",', b'"id":"x",'),
    *(b"data", b"data_base64", b"dssematerial", b"idempotencykey", b"expirytime", b"override"),
    *(b"2026-11-18T06:00:00Z", b"0001-01-01T00:00:00+23:59", b"9999-12-31T23:59:59-23:59"),
    *(b"<script>alert(1)</script>", b"../../commands", b"sebridge/v1/+/#", b"\x1b[2J", b"%0a"),
)


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One to six changes to one of the seeds; never longer than a command may be."""
    raw = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 6)):
        rng.choice(_CHANGES)(raw, seeds, rng)
    return bytes(raw[:BYTES_MAX])


def _flip(raw: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    if raw:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def _delete(raw: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randint(0, len(raw))
    del raw[start : start + rng.randint(1, 16)]


def _insert_word(raw: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randint(0, len(raw))
    raw[at:at] = rng.choice(DICTIONARY)


def _replace_by_word(raw: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    at, word = rng.randint(0, len(raw)), rng.choice(DICTIONARY)
    raw[at : at + len(word)] = word


def _replace_value(raw: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    """Between two quotes or after a colon, where a decoder looks."""
    at = raw.find(rng.choice((b":", b'"', b"=")), rng.randint(0, len(raw)))
    if at >= 0:
        end = raw.find(rng.choice((b",", b'"', b"\n")), at + 1)
        raw[at + 1 : end if end > at else at + 1] = rng.choice(DICTIONARY)


def _repeat(raw: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randint(0, len(raw))
    part = raw[start : start + rng.randint(1, 40)]
    raw[start:start] = part * rng.choice((1, 1, 2, 3, 30))


def _splice(raw: bytearray, seeds: Sequence[bytes], rng: random.Random) -> None:
    other = rng.choice(seeds)
    start = rng.randint(0, len(other))
    at = rng.randint(0, len(raw))
    raw[at:] = other[start:]


def _truncate(raw: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    del raw[rng.randint(0, len(raw)) :]


_CHANGES: tuple[Callable[[bytearray, Sequence[bytes], random.Random], None], ...] = (
    _flip,
    _delete,
    _insert_word,
    _replace_by_word,
    _replace_value,
    _repeat,
    _splice,
    _truncate,
)


def bombs(prefix: bytes = b'{"a":', suffix: bytes = b"}") -> list[bytes]:
    """64 KiB each, made to keep a decoder busy: wide, deep, dense, and full of slow numbers."""
    room = BYTES_MAX - len(prefix) - len(suffix)

    def fill(unit: bytes, *, before: bytes = b"[", after: bytes = b"0]") -> bytes:
        count = (room - len(before) - len(after)) // len(unit)
        return prefix + before + unit * count + after + suffix

    chain = b"[" * 60 + b"0" + b" " * 250 + b"]" * 60 + b","
    return [
        fill(b"0,"),
        fill(b"[],"),
        fill(b'{"":0},'),
        fill(b"0    ,"),
        fill(b"{}         ,"),
        fill(chain),
        fill(b"1.7976931348623157e308,"),
        fill(b"9007199254740993.00001,"),
        fill(b"1e-5,"),
        fill(b"9" * 4200 + b","),
        fill(b'"\\ud83d\\ude00",'),
        fill(b"\\ud83d\\ude00", before=b'"', after=b'"'),
        fill(b" ", before=b"", after=b"0"),
        fill(b"[", before=b"", after=b""),
        fill(b'{"a":', before=b"", after=b""),
        prefix + b"{" + b",".join(b'"%x":0' % n for n in range(6500)) + b',"0":0}' + suffix,
        (b"\xff" + bytes(range(256)) * 256)[:BYTES_MAX],
    ]
