"""The doctor and the VM itself: proxies, the clock, and the port of the agent."""

import asyncio
import socket
import threading

import pytest
from aiohttp import web

from bridge.config import Http
from bridge.doctor import machine, port
from bridge.doctor.waiting import in_thread
from tests.doctoring import collect

ENDPOINT = "http://169.254.169.254"


@pytest.mark.parametrize(
    ("environment", "result", "text"),
    [
        ({}, "ok", "none set"),
        ({"http_proxy": ""}, "ok", "none set"),
        ({"https_proxy": "http://p"}, "ok", "none set"),
        ({"http_proxy": "http://u:secret@p"}, "warning", "http_proxy set, and no_proxy does not"),
        ({"ALL_PROXY": "socks://p", "no_proxy": "example.com"}, "warning", "ALL_PROXY set"),
        ({"http_proxy": "http://p", "NO_PROXY": "localhost,169.254.169.254"}, "ok", "exempts"),
        ({"http_proxy": "http://p", "no_proxy": "*"}, "ok", "exempts"),
    ],
)
def test_proxies_warn_when_imds_is_not_exempt(
    environment: dict[str, str], result: str, text: str
) -> None:
    """A warning only, since the agent ignores them; their values, which may hold passwords, stay."""
    finding = machine.check_proxies(environment, ENDPOINT)

    assert (finding.result, text in finding.text) == (result, True)
    assert "secret" not in finding.text + finding.remedy


@pytest.mark.parametrize(
    ("offset_s", "synchronised", "result", "text"),
    [
        (0.4, True, "ok", "agrees with IMDS"),
        (-4.9, False, "ok", "not synchronised"),
        (6.0, True, "warning", "6 s ahead of IMDS"),
        (-61.0, None, "failed", "61 s behind IMDS"),
        (None, True, "ok", "IMDS sent no time"),
        (None, False, "warning", "cannot be told"),
        (None, None, "warning", "cannot be told"),
    ],
)
def test_clock_says_what_can_be_known(
    offset_s: float | None, synchronised: bool | None, result: str, text: str
) -> None:
    """IMDS's time first, the kernel's word second, and honesty where neither speaks."""
    finding = machine.check_clock(offset_s, synchronised)

    assert (finding.result, text in finding.text) == (result, True)
    assert bool(finding.remedy) is (result != "ok")


def test_kernel_answers_without_privileges() -> None:
    """Any user may read the state of the clock."""
    assert machine.kernel_is_synchronised() in {True, False}


async def answer_with(text: str) -> tuple[web.AppRunner, int]:
    app = web.Application()

    async def status(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type="application/json")

    app.router.add_get("/status", status)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, runner.addresses[0][1]


@pytest.mark.parametrize(
    ("body", "result", "text"),
    [
        ('{"vm":{},"durable":true,"poll":{"count":7},"sinks":{}}', "ok", "7 polls so far"),
        ('{"vm":null,"durable":true,"poll":{"problem":"no IMDS"},"sinks":{}}', "failed", "no IMDS"),
        (
            '{"vm":{},"durable":true,"poll":{"count":1},"sinks":{"mqtt":{"problem":"away"}}}',
            "failed",
            "mqtt: away",
        ),
        ('{"hello":"world"}', "failed", "another program answers"),
        ("<html>", "failed", "another program answers"),
    ],
)
async def test_port_that_answers_is_told_apart(body: str, result: str, text: str) -> None:
    """Our agent with its troubles, or a stranger."""
    runner, number = await answer_with(body)
    try:
        found = await collect(port.check(Http(listen=f"127.0.0.1:{number}"), port.Seen()))
    finally:
        await runner.cleanup()

    assert (found["agent"].result, text in found["agent"].text) == (result, True)


async def test_port_that_is_free_or_impossible() -> None:
    """Free is fine; an address of another machine is not."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]

    fine = await collect(port.check(Http(listen=f"127.0.0.1:{free}"), port.Seen()))
    bad = await collect(port.check(Http(listen=f"[::2]:{free}"), port.Seen()))
    off = await collect(port.check(Http(listen=""), port.Seen()))

    assert (fine["agent"].result, "is free for it" in fine["agent"].text) == ("ok", True)
    assert (bad["agent"].result, "cannot listen" in bad["agent"].text) == ("failed", True)
    assert off["agent"].result == "warning"


async def test_port_whose_owner_is_silent_is_a_stranger() -> None:
    """A program that takes connections and says nothing is not our agent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        number = silent.getsockname()[1]
        found = await collect(port.check(Http(listen=f"127.0.0.1:{number}"), port.Seen()))

    assert "another program answers" in found["agent"].text


async def test_in_thread_gives_back_what_the_function_did() -> None:
    """A result, or the error."""
    assert await in_thread(int, "7", seconds=5) == 7
    with pytest.raises(ValueError):
        await in_thread(int, "seven", seconds=5)


def test_in_thread_that_hangs_holds_nobody() -> None:
    """The program can end although the thread, in a resolver or a dead mount, never does."""
    released = threading.Event()

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await in_thread(released.wait, seconds=0.05)

    asyncio.run(wait())

    assert not released.is_set()
    released.set()
