"""The approval POST against a server that does as it is told."""

import asyncio
import time

import pytest

from bridge.core.approvals import post_result
from bridge.errors import ImdsUnavailable
from bridge.start_request import PostResult, connect
from bridge.version import VERSION
from tests.support.scripted_imds import DROP, HANG, RESET, Action, Request, ScriptedImds, answer

EVENT_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"


async def post(imds: ScriptedImds, timeout_s: float = 2.0, prefix: str = "") -> PostResult:
    connection = await connect(imds.endpoint + prefix, "2020-07-01", 2.0)
    try:
        return await connection.post(EVENT_ID, timeout_s)
    finally:
        connection.close()


async def result_of(step: bytes | Action, timeout_s: float = 2.0) -> PostResult:
    """Post once to a server that does `step`; it must see exactly one request."""
    async with ScriptedImds(lambda _: step) as imds:
        result = await post(imds, timeout_s)
        await asyncio.sleep(0.02)
        assert len(imds.requests) == 1
    return result


async def test_request_on_the_wire() -> None:
    """The request is the documented one, behind the endpoint's path prefix."""
    async with ScriptedImds(lambda _: answer(200)) as imds:
        assert (await post(imds, prefix="/vm/web_3/")).status == 200
        (request,) = imds.requests
    assert request.method == "POST"
    assert request.path == "/vm/web_3/metadata/scheduledevents?api-version=2020-07-01"
    assert request.body == b'{"StartRequests":[{"EventId":"%s"}]}' % EVENT_ID.encode()
    assert request.headers == {
        "host": f"127.0.0.1:{imds.port}",
        "metadata": "true",
        "content-type": "application/json",
        "content-length": str(len(request.body)),
        "connection": "close",
        "user-agent": f"sebridge/{VERSION}",
    }


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY and ALL_PROXY do not divert the POST."""
    async with ScriptedImds(lambda _: answer(502)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.endpoint)
        assert (await result_of(answer(200))).status == 200
        assert proxy.connections == 0


@pytest.mark.parametrize("status", [200, 202, 400, 403, 404, 405, 410, 429, 500, 503])
async def test_status_is_reported(status: int) -> None:
    """Whatever IMDS answers is reported once, never repeated."""
    assert (await result_of(answer(status))).status == status


async def test_redirect_is_not_followed() -> None:
    """A 307 would send the approval twice; it is reported instead."""
    result = await result_of(answer(307, Location="/metadata/scheduledevents"))
    assert result.status == 307
    assert post_result(result.status) == "in-doubt"


@pytest.mark.parametrize(
    "step",
    [
        Action("drop", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"),
        Action("drop", b"HTTP/1.1 200 OK\r\n"),
        Action("hang", b"HTTP/1.1 200\r\n"),
        Action("reset", b"HTTP/1.0 200 OK\r\n\r\n"),
        Action("drip", answer(200), 0.001),
    ],
)
async def test_success_counts_once_its_status_was_read(step: Action) -> None:
    """A 200 holds even if the rest of the answer is cut short."""
    assert (await result_of(step)).status == 200


@pytest.mark.parametrize("kind", ["drop", "reset"])
async def test_refusal_counts_with_a_short_body(kind: str) -> None:
    """A 400 holds even if its explanation is cut short."""
    whole = answer(400, b"unknown event")
    step = Action("drop" if kind == "drop" else "reset", whole[:-5])
    assert (await result_of(step)).status == 400


async def test_detail_is_short_and_printable() -> None:
    """The explanation of an error becomes one printable line of bounded length."""
    result = await result_of(answer(400, b"Event\r\n\x1b[31m not\xff found " + b"x" * 999))
    assert result.detail.startswith("Scripted Event [31m not")
    assert result.detail.isprintable()
    assert len(result.detail) <= 200


@pytest.mark.parametrize(
    "step",
    [
        answer(500, b"x" * 200_000),
        b"HTTP/1.1 500 No\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 500 No\r\nX: " + b"y" * 200_000,
    ],
)
async def test_huge_error_is_read_in_part(step: bytes) -> None:
    """An error of any size is cut off; its status holds."""
    assert (await result_of(step)).status == 500


async def test_error_without_its_body_does_not_wait_long() -> None:
    """A status whose explanation never comes is reported before the answer timeout."""
    began = time.monotonic()
    head = b"HTTP/1.1 429 Slow down\r\nContent-Length: 9\r\n\r\n"
    assert await result_of(Action("hang", head), 10) == PostResult(429, "Slow down")
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    "step",
    [
        DROP,
        RESET,
        Action("drop", b"HTTP/1.1 20"),
        Action("drop", b"HTTP/1.1 200"),
        Action("drop", b"nonsense\r\n\r\n"),
        Action("drop", b"HTTP/1.1 2000 OK\r\n\r\n"),
        Action("drop", b"HTTP/2 200 OK\r\n\r\n"),
        Action("drop", b"HTTP/1.1 100 Continue\r\n\r\n"),
        Action("drop", b"x" * 200_000),
        Action("drop", b"HTTP/1.1 100 Continue\r\n\r\n" * 4000),
    ],
)
async def test_lost_answer_is_in_doubt(step: Action) -> None:
    """An answer that is missing, cut or garbage leaves the approval in doubt, with a reason."""
    result = await result_of(step)
    assert result.status is None
    assert result.detail
    assert post_result(result.status) == "in-doubt"


@pytest.mark.parametrize("step", [HANG, Action("drip", answer(200), 0.05)])
async def test_late_answer_is_in_doubt(step: Action) -> None:
    """No complete status line in time leaves the approval in doubt."""
    assert await result_of(step, 0.2) == PostResult(None, "no answer within 0.2 s")


async def test_interim_answer_is_skipped() -> None:
    """A 100 Continue is not the answer; the one behind it is."""
    interim = b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n"
    assert (await result_of(interim + answer(200))).status == 200
    assert (await result_of(interim + answer(429))).status == 429


async def test_connection_refused_proves_that_nothing_left() -> None:
    """A closed port raises before anything can be sent."""
    async with ScriptedImds(lambda _: answer(200)) as imds:
        endpoint = imds.endpoint
    with pytest.raises(ImdsUnavailable, match="nothing was sent"):
        await connect(endpoint, "2020-07-01", 2.0)


async def test_connect_timeout_proves_that_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that does not come about in time raises."""

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("bridge.imds_wire.connect", never)
    with pytest.raises(ImdsUnavailable, match=r"within 0\.05 s"):
        await connect("http://127.0.0.1", "2020-07-01", 0.05)


@pytest.mark.parametrize("version", ["2020-07-01\r\nX: y", "2020 07", "é"])
async def test_unusable_address_is_refused_before_connecting(version: str) -> None:
    """Nothing that could split the request line gets near a socket."""
    async with ScriptedImds(lambda _: answer(200)) as imds:
        with pytest.raises(ImdsUnavailable, match="api_version"):
            await connect(imds.endpoint, version, 2.0)
        assert imds.connections == 0


async def test_connection_carries_one_request_only() -> None:
    """A second POST on the same connection is not sent."""
    async with ScriptedImds(lambda _: answer(200)) as imds:
        connection = await connect(imds.endpoint, "2020-07-01", 2.0)
        assert (await connection.post(EVENT_ID, 2.0)).status == 200
        assert (await connection.post(EVENT_ID, 2.0)).status is None
        await post(imds)  # on another connection: by now the server has read everything
        connection.close()
        assert len(imds.requests) == 2


async def test_cancellation_passes_through() -> None:
    """The only thing that post raises is the cancellation of its task."""
    arrived = asyncio.Event()

    def hang(_: Request) -> Action:
        arrived.set()
        return HANG

    async with ScriptedImds(hang) as imds:
        task = asyncio.create_task(post(imds))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
