"""The doctor and IMDS: each answer has its line and its remedy."""

from email.utils import formatdate
from typing import Any

import pytest

from bridge.clock import SystemClock
from bridge.config import Imds
from bridge.doctor import imds
from bridge.doctor.finding import Finding
from tests.doctoring import collect, results, well
from tests.support.scripted_imds import DROP, HANG, RESET, Request, ScriptedImds, answer


async def examine(script: Any, **options: Any) -> tuple[dict[str, Finding], imds.Seen]:
    seen = imds.Seen()
    async with ScriptedImds(script) as server:
        config = Imds(endpoint=server.endpoint, **options)
        return await collect(imds.check(config, SystemClock(), seen)), seen


async def test_good_imds_says_who_we_are_and_what_is_pending() -> None:
    """Three good lines, with what an operator wants to see confirmed."""
    found, seen = await examine(well())

    assert results(found) == {"imds endpoint": "ok", "who am I": "ok", "scheduled events": "ok"}
    assert found["who am I"].text == "web_3 in web-rg (westeurope, v-1)"
    assert found["scheduled events"].text == (
        "api-version 2020-07-01, incarnation 4, 1 pending, 1 for this VM"
    )
    assert seen.identity
    assert seen.clock_offset_s is not None
    assert abs(seen.clock_offset_s) < 5


async def test_requests_are_few_and_marked() -> None:
    """A running agent shares the VM's budget; IMDS insists on the header."""
    async with ScriptedImds(well()) as server:
        await collect(imds.check(Imds(endpoint=server.endpoint), SystemClock(), imds.Seen()))

    assert len(server.requests) == 3
    assert {request.headers["metadata"] for request in server.requests} == {"true"}
    assert {request.method for request in server.requests} == {"GET"}


async def test_nobody_listens_is_one_failure_and_no_more() -> None:
    """Without an endpoint there is nothing else to ask."""
    async with ScriptedImds(well()) as server:
        config = Imds(endpoint=server.endpoint)

    found = await collect(imds.check(config, SystemClock(), imds.Seen()))

    assert results(found) == {"imds endpoint": "failed"}
    assert "only an Azure VM has IMDS" in found["imds endpoint"].remedy


@pytest.mark.parametrize("action", [DROP, RESET, HANG])
async def test_no_answer_is_a_failure(action: Any) -> None:
    """Whoever takes the connection and says nothing is not IMDS."""
    found, _ = await examine(lambda _: action)

    assert results(found) == {"imds endpoint": "failed"}
    assert "no answer from" in found["imds endpoint"].text


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (answer(302, Location="http://portal.example/"), "redirects to http://portal.example/"),
        (answer(307), "redirects to nowhere"),
        (answer(200, b"{}", Via="1.1 squid"), "a proxy answers"),
        (answer(407), "a proxy answers"),
        (answer(511, b"login"), "a proxy answers"),
        (answer(200, b" <!DOCTYPE html><title>Sign in</title>"), "a web page answers"),
        (answer(503, b"<html>Service Unavailable"), "a web page answers"),
    ],
)
async def test_somebody_else_answers_is_told(step: bytes, text: str) -> None:
    """A proxy, a captive page or a redirect stands between the VM and IMDS."""
    found, _ = await examine(lambda _: step)

    assert results(found) == {"imds endpoint": "failed"}
    assert text in found["imds endpoint"].text
    assert "find the proxy or firewall" in found["imds endpoint"].remedy


@pytest.mark.parametrize(
    ("status", "result", "remedy"),
    [
        (400, "failed", "imds.api_version"),
        (403, "failed", "metadata access rules"),
        (404, "failed", "imds.endpoint"),
        (410, "warning", "70 s"),
        (429, "warning", "imds.poll_interval_s"),
        (500, "failed", "asked again"),
    ],
)
async def test_each_status_has_its_remedy(status: int, result: str, remedy: str) -> None:
    """What passes by itself is a warning; the rest is a matter for a person."""
    found, _ = await examine(lambda _: answer(status, b"{}"))

    assert results(found) == {
        "imds endpoint": "ok",
        "who am I": result,
        "scheduled events": result,
    }
    for name in ("who am I", "scheduled events"):
        assert found[name].text == f"IMDS answers HTTP {status}"
        assert remedy in found[name].remedy


async def test_older_version_in_force_is_a_warning() -> None:
    """The ladder works, and the operator learns which rung it stands on."""

    def old(request: Request) -> bytes | None:
        return answer(400) if "api-version=2020-07-01" in request.path else None

    found, _ = await examine(well(answers=old))

    assert found["scheduled events"].result == "warning"
    assert "api-version 2019-08-01" in found["scheduled events"].text
    assert 'imds.api_version = "2019-08-01"' in found["scheduled events"].remedy


@pytest.mark.parametrize(
    ("body", "result", "text"),
    [
        (b"", "ok", "an empty answer, which says nothing yet"),
        (b"nonsense", "failed", "not a document"),
        (b'{"Events": 1}', "failed", "Events is missing"),
    ],
)
async def test_body_of_the_document_is_read(body: bytes, result: str, text: str) -> None:
    """What the poller could not use is a failure; an empty body is not."""

    def document(request: Request) -> bytes | None:
        return answer(200, body) if "scheduledevents" in request.path else None

    found, _ = await examine(well(answers=document))

    assert found["scheduled events"].result == result
    assert text in found["scheduled events"].text


async def test_slow_first_document_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request ever may take two minutes: that is no fault."""
    monkeypatch.setattr(imds, "_DOCUMENT_S", 0.5)

    def slow(request: Request) -> Any:
        return HANG if "scheduledevents" in request.path else None

    found, _ = await examine(well(answers=slow))

    assert found["scheduled events"].result == "warning"
    assert "two minutes" in found["scheduled events"].remedy


async def test_identity_without_a_name_or_an_id_is_told() -> None:
    """A name can be configured; a missing vmId puts the client id at risk."""

    def bare(request: Request) -> bytes | None:
        return answer(200, b'{"compute": {}}') if "instance" in request.path else None

    nameless, _ = await examine(well(answers=bare))
    named, _ = await examine(well(answers=bare), vm_name="web_3")

    assert nameless["who am I"].result == "failed"
    assert "imds.vm_name" in nameless["who am I"].text
    assert named["who am I"].result == "warning"
    assert "named by imds.vm_name" in named["who am I"].text
    assert "mqtt.client_id" in named["who am I"].remedy


@pytest.mark.parametrize(
    ("date", "expected"),
    [(formatdate(0, usegmt=True), True), ("garbage", False), (None, False)],
)
async def test_date_header_gives_the_clocks_offset(date: str | None, expected: bool) -> None:
    """Only a readable Date can be compared with."""
    _, seen = await examine(well(date=date))

    assert (seen.clock_offset_s is not None) is expected
    if seen.clock_offset_s is not None:
        assert seen.clock_offset_s > 1_000_000_000
