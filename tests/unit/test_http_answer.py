"""An HTTP answer, however it is cut into pieces: a status, a bounded body, or an error."""

import http.client
import io
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.core.http_answer import HEAD_BYTES_MAX, Answer, BodyTooLarge, excerpt

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = {
    "length": (OK + b"Content-Length: 3\r\n\r\nabc", b"abc"),
    "nothing": (OK + b"Content-Length: 0\r\n\r\n", b""),
    "chunks": (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: x\r\n\r\n", b"abcde"),
    "interim": (b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" + OK + b"content-length:1\r\n\r\na", b"a"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "bare line feeds": (b"HTTP/1.1 200\nContent-Length: 1\n\na", b"a"),
}
WRONG = {
    "no status line": b"220 ready\r\n",
    "HTTP/2": b"HTTP/2 200\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n",
    "chunk without size": CHUNKED + b"x\r\n",
    "chunk of another length": CHUNKED + b"3\r\nabcde\r\n",
    "endless chunk": CHUNKED + b"fffffffff\r\n",
    "negative length": OK + b"Content-Length: -1\r\n\r\n",
    "length of two kinds": OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": OK + b"Content-Length: 9\r\nContent-Length: 1\r\n\r\n",
    "two codings": OK + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
    "unknown coding": OK + b"Transfer-Encoding: gzip\r\n\r\n",
    "endless headers": OK + b"X: y\r\n" * 20_000,
    "endless line": OK + b"X: " + b"y" * 200_000,
    "endless interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000,
}
whole = pytest.mark.parametrize(("raw", "body"), WHOLE.values(), ids=WHOLE)


def read(pieces: Iterable[bytes], *, body_bytes_max: int = 1000) -> Answer:
    answer = Answer(body_bytes_max=body_bytes_max)
    feed(answer, pieces)
    return answer


def feed(answer: Answer, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        answer.feed(piece)


def bytewise(raw: bytes) -> Iterable[bytes]:
    return (raw[index : index + 1] for index in range(len(raw)))


@whole
def test_one_piece_or_many_are_the_same_answer(raw: bytes, body: bytes) -> None:
    """What TCP does to the bytes changes nothing."""
    at_once, by_and_by = read([raw]), read(bytewise(raw))

    for answer in (at_once, by_and_by):
        assert (answer.status, answer.body, answer.is_whole) == (
            int(answer.status or 0),
            body,
            True,
        )
        assert answer.is_reusable
    assert at_once.status == by_and_by.status


@whole
def test_part_of_an_answer_is_never_whole(raw: bytes, body: bytes) -> None:
    """Wherever it is cut: an answer that ends too early is an error."""
    for size in range(len(raw)):
        answer = read([raw[:size]])
        assert not answer.is_whole
        with pytest.raises(ConnectionResetError):
            answer.end()
        assert not answer.is_whole
        assert not answer.is_reusable


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_chunks_are_read_as_the_standard_library_reads_them(
    parts: list[bytes], data: st.DataObject
) -> None:
    """Any chunks, in any pieces."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
    raw = CHUNKED + chunks + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert read(pieces).body == standard_library(raw)


def standard_library(raw: bytes) -> bytes:
    class Wire:
        def makefile(self, _: str) -> io.BytesIO:
            return io.BytesIO(raw)

    response = http.client.HTTPResponse(Wire())  # type: ignore[arg-type]
    response.begin()
    return response.read()


@pytest.mark.parametrize("raw", WRONG.values(), ids=WRONG)
def test_answer_that_cannot_be_trusted_is_an_error(raw: bytes) -> None:
    """A body whose end is unclear, or a head without end, is no answer."""
    for pieces in ([raw], (raw[i : i + 997] for i in range(0, len(raw), 997))):
        answer = Answer(body_bytes_max=1000)
        with pytest.raises(ValueError, match=r"."):
            feed(answer, pieces)
        assert not answer.is_whole
        answer.feed(b"\r\n\r\n")  # nothing brings it back
        assert not answer.is_whole


def test_status_stays_whatever_follows() -> None:
    """The POST has been answered as soon as its status is there."""
    answer = Answer(body_bytes_max=1000)
    with pytest.raises(ValueError, match="Content-Length"):
        answer.feed(b"HTTP/1.1 400 Bad\r\nContent-Length: x\r\n\r\n")

    assert (answer.status, answer.reason, answer.header("content-LENGTH")) == (400, b"Bad", "x")
    assert answer.header("Retry-After") == ""


def test_body_without_length_ends_with_the_connection() -> None:
    """As HTTP/1.0 has it; such a connection has nothing more to give."""
    answer = read([b"HTTP/1.0 200 OK\r\n\r\nto ", b"the end"])
    assert not answer.is_whole
    answer.end()
    assert (answer.body, answer.is_whole, answer.is_reusable) == (b"to the end", True, False)
    answer.end()
    assert answer.body == b"to the end"


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Connection: Close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n",
    ],
    ids=["farewell", "HTTP/1.0", "more than was asked for"],
)
def test_connection_is_not_used_again(raw: bytes) -> None:
    """What comes next on it might belong to something else."""
    answer = read([raw])
    assert answer.is_whole
    assert not answer.is_reusable


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Content-Length: 5\r\n\r\nabcde",
        CHUNKED + b"5\r\nabcde\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nabcde",
    ],
    ids=["length", "chunks", "to the end"],
)
def test_body_is_bounded(raw: bytes) -> None:
    """As much as is allowed is kept, for people to read; one byte more is refused."""
    for pieces in ([raw], bytewise(raw)):
        answer = Answer(body_bytes_max=4)
        with pytest.raises(BodyTooLarge, match="exceeds 4 bytes"):
            feed(answer, pieces)
        assert answer.body == b"abcd"


def test_head_is_bounded_to_the_byte() -> None:
    """Just below the limit it is an answer."""
    rest = b"Content-Length: 0\r\n\r\n"
    for size, fits in ((HEAD_BYTES_MAX - 1, True), (HEAD_BYTES_MAX, False)):
        filler = b"X" * (size - len(OK) - len(rest) - 4) + b": \r\n"
        raw = OK + filler + rest
        assert len(raw) == size
        if fits:
            assert read([raw]).is_whole
        else:
            with pytest.raises(ValueError, match="head exceeds"):
                read([raw])


def test_excerpt_is_one_readable_line() -> None:
    """Whatever a proxy's page holds."""
    assert excerpt(b"<h1>\r\n  No\x1b[2J \xff</h1>") == "<h1> No [2J \ufffd</h1>"
    assert len(excerpt(b"x" * 5000)) == 200
    assert excerpt(b"long", characters_max=2) == "lo"
