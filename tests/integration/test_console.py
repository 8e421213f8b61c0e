"""The console's server on a real port and a real broker: who gets in, and what a click becomes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from bridge.cli import main
from bridge.config import Commands, Config, Console, Mqtt
from bridge.console.security import Gate
from bridge.console.server import serve
from bridge.core.commands import Parts, Wire, split
from bridge.errors import ConfigError
from bridge.feed_choice import make_feed
from bridge.signatures import Verifier
from tests.support.fleet_messages import Publisher, root_of, vm
from tests.support.mosquitto import Mosquitto

WEB_3 = vm("web_3")
EVENT = "602D9444-D2CD-49C7-8624-8643E7171297"
KEY = EVENT.lower()
TOKEN = "correct-horse-battery-staple"


class Visitor:
    """A browser without a browser: cookies, an Origin, and the page's data."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def get(self, path: str, **headers: str) -> tuple[int, Any, str]:
        async with self.session.get(
            self.url + path, headers=headers, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers, await answer.text()

    async def post(self, path: str, data: Any, **headers: str) -> tuple[int, Any, str]:
        given = {"Origin": self.url, **headers}
        async with self.session.post(
            self.url + path, data=data, headers=given, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers, await answer.text()

    async def snapshot(self, **headers: str) -> dict[str, Any]:
        async with self.session.get(self.url + "/api/stream", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.content.readline()) == b"event: snapshot\n"
            line = await answer.content.readuntil(b"\n")
            return dict(msgspec.json.decode(line.removeprefix(b"data: ")))

    async def until_shown(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while not (snapshot := await self.snapshot())["events"]:
                await asyncio.sleep(0.05)
            return snapshot

    async def approve(self, snapshot: dict[str, Any], **changes: Any) -> tuple[int, str]:
        [shown] = snapshot["events"]
        click = {"event": shown["key"], "revision": shown["revision"], "key": "key-00001"}
        headers = {"X-CSRF-Token": changes.pop("csrf", snapshot["csrf"])}
        headers |= changes.pop("headers", {})
        body = msgspec.json.encode({**click, "reason": "drained", **changes})
        status, _, text = await self.post("/api/approve", body, **headers)
        return status, text


class CommandLog:
    """The agent's ear: everything sent to its command topic."""

    def __init__(self, port: int) -> None:
        self.seen: list[dict[str, Any]] = []
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = self._subscribe
        self._client.on_message = lambda _c, _d, m: self.seen.append(msgspec.json.decode(m.payload))
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _subscribe(self, *_: Any) -> None:
        self._client.subscribe(f"{root_of('web_3')}/commands", 1)

    async def wait(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(10):
            while len(self.seen) < count:
                await asyncio.sleep(0.02)
        return self.seen

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def publisher(broker: Mosquitto) -> Iterator[Publisher]:
    speaking = Publisher(broker.port)
    speaking.status(WEB_3)
    speaking.event(WEB_3, EVENT)
    speaking.flush()
    yield speaking
    speaking.stop()


@pytest.fixture
def command_log(broker: Mosquitto) -> Iterator[CommandLog]:
    listening = CommandLog(broker.port)
    yield listening
    listening.stop()


@pytest.fixture
async def visit(broker: Mosquitto) -> AsyncIterator[Callable[..., Awaitable[Visitor]]]:
    """Start a console with these options and visit it."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Visitor:
            section = Console(**{"listen": "127.0.0.1:0", **options})
            mqtt = Mqtt(host="127.0.0.1", port=broker.port)
            url = await stack.enter_async_context(running(Config(mqtt=mqtt, console=section)))
            visitor = Visitor(url)
            stack.push_async_callback(visitor.session.close)
            return visitor

        yield start


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[str]:
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(config, make_feed(config), stop=stop, on_ready=address.set_result)
    )
    async with asyncio.timeout(10):
        yield await address
    stop.set()
    await serving


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


async def test_page_comes_with_every_security_header(visit: Any) -> None:
    """Nothing inline, nothing foreign, no frames, no sniffing; on errors, too."""
    visitor = await visit()
    for path, wanted in (("/", 200), ("/static/app.js", 200), ("/static/none.js", 404)):
        status, headers, _ = await visitor.get(path)

        assert wanted == status
        assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "nosniff" == headers["X-Content-Type-Options"]
        assert "DENY" == headers["X-Frame-Options"]


async def test_page_holds_no_inline_script_or_style(visit: Any) -> None:
    """The policy would block them, so there must be none."""
    visitor = await visit()
    for path in ("/", "/login"):
        _, _, text = await visitor.get(path)

        assert "style=" not in text
        assert "<style" not in text
        assert " onclick" not in text
        assert text.count("<script") == text.count('<script type="module" src="/static/')


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static/"])
async def test_static_serves_its_own_files_only(visit: Any, path: str) -> None:
    """No path leads out of the folder."""
    visitor = await visit()
    status, _, text = await visitor.get(path)

    assert 404 == status
    assert "import" not in text


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]", 200), ("ops.example", 200),
     ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 421)],
)  # fmt: skip
async def test_host_must_be_a_name_of_ours(visit: Any, host: str, expected: int) -> None:
    """A name that a stranger's DNS points here is refused."""
    visitor = await visit(hosts=("Ops.Example",))

    assert expected == (await visitor.get("/", Host=host))[0]


async def test_snapshot_has_retained_state_at_once(visit: Any, publisher: Publisher) -> None:
    """A console that has just started shows what is pending and who is there."""
    visitor = await visit()
    snapshot = await visitor.until_shown()

    assert ["web_3"] == [row["name"] for row in snapshot["vms"]]
    assert ("Reboot", "") == (snapshot["events"][0]["type"], snapshot["events"][0]["obstacle"])


async def test_approve_sends_one_command_from_our_own_state(
    visit: Any, publisher: Publisher, command_log: CommandLog
) -> None:
    """The click names the event; topic, token and expectations are the server's. Twice is once."""
    visitor = await visit()
    snapshot = await visitor.until_shown()
    first = await visitor.approve(snapshot)
    second = await visitor.approve(snapshot)
    await command_log.wait(1)
    third = await visitor.approve(snapshot, key="key-00002")
    await command_log.wait(2)

    assert [202, 202, 202] == [first[0], second[0], third[0]]
    assert ["key-00001", "key-00002"] == [c["idempotencykey"] for c in command_log.seen]
    command = command_log.seen[0]
    assert "/sebridge/console" == command["source"]
    assert command["expirytime"] > command["time"]
    assert command["data"] == {
        "eventId": EVENT,
        "vm": "web_3",
        "expect": {"eventType": "Reboot", "resources": ["web_3"]},
        "token": "t0ken",
        "reason": "drained",
    }


async def test_approve_is_signed_where_a_key_is_configured(
    visit: Any, publisher: Publisher, command_log: CommandLog, tmp_path: Path
) -> None:
    """An agent that trusts the console's key, and says that it wants one, takes what a click sends."""
    assert main(["keys", "new", str(tmp_path / "keys")]) == 0
    (private,), (public,) = ((tmp_path / "keys").glob(f"*.{kind}.pem") for kind in ("key", "pub"))
    visitor = await visit(key_file=str(private))
    publisher.status(WEB_3, commands="signed")
    snapshot = await visitor.until_shown()
    async with asyncio.timeout(10):
        while "--key-file" not in snapshot["events"][0]["command"]:
            await asyncio.sleep(0.05)
            snapshot = await visitor.snapshot()
    assert (await visitor.approve(snapshot))[0] == 202
    [command] = await command_log.wait(1)

    verifier = Verifier.load(Commands(trusted_keys=(str(public),)))
    parts = split(Wire(payload=msgspec.json.encode(command)), bytes_max=65_536)
    assert isinstance(parts, Parts)
    assert isinstance(verifier.verify(parts), Parts)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"csrf": ""}, 403),
        ({"csrf": "0" * 64}, 403),
        ({"headers": {"Origin": "http://evil.example"}}, 403),
        ({"headers": {"Origin": "null"}}, 403),
        ({"headers": {"Sec-Fetch-Site": "cross-site"}}, 403),
        ({"revision": "another"}, 409),
        ({"event": "another"}, 404),
        ({"key": "short"}, 400),
        ({"topic": "sebridge/v1/g/v/commands"}, 400),
        ({"reason": "x" * 1025}, 400),
        ({"reason": "x" * 20_000}, 413),
    ],
)
async def test_approve_refuses_what_is_not_our_page_or_not_what_was_seen(
    visit: Any,
    publisher: Publisher,
    command_log: CommandLog,
    changes: dict[str, Any],
    expected: int,
) -> None:
    """No token, another origin, a changed event, unknown fields, excess: nothing is sent."""
    visitor = await visit()
    snapshot = await visitor.until_shown()

    assert expected == (await visitor.approve(snapshot, **changes))[0]
    assert 202 == (await visitor.approve(snapshot, key="key-after"))[0]
    assert ["key-after"] == [c["idempotencykey"] for c in await command_log.wait(1)]


async def test_approve_is_refused_in_read_only_mode(
    visit: Any, publisher: Publisher, command_log: CommandLog
) -> None:
    """The server refuses, whatever the page shows."""
    visitor = await visit(read_only=True)
    snapshot = await visitor.until_shown()

    assert (403, "This console is read-only.\n") == await visitor.approve(snapshot)
    assert snapshot["readOnly"]


async def test_approve_without_a_broker_tells_the_person(
    visit: Any, publisher: Publisher, broker: Mosquitto
) -> None:
    """The dialog stays open with the reason, and the same key may be tried again."""
    visitor = await visit()
    snapshot = await visitor.until_shown()
    await asyncio.to_thread(broker.stop)
    async with asyncio.timeout(10):
        while not (await visitor.snapshot())["problem"]:
            await asyncio.sleep(0.05)
    status, text = await visitor.approve(snapshot)

    assert 503 == status
    assert text.startswith("The broker did not take the command: ")


async def test_token_is_asked_for_and_opens_everything(
    visit: Any, publisher: Publisher, token_file: str
) -> None:
    """Without it nothing but the form; with it a cookie that scripts and other sites cannot use."""
    visitor = await visit(token_file=token_file)
    home, stream = await visitor.get("/"), await visitor.get("/api/stream")
    wrong = await visitor.post("/login", {"token": "wrong"})
    foreign = await visitor.post("/login", {"token": TOKEN}, Origin="http://evil.example")
    right = await visitor.post("/login", {"token": TOKEN})

    assert (303, "/login", 401) == (home[0], home[1]["Location"], stream[0])
    assert (303, "/login?wrong", 403) == (wrong[0], wrong[1]["Location"], foreign[0])
    assert (303, "/") == (right[0], right[1]["Location"])
    cookie = right[1]["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert (await visitor.until_shown())["events"]
    assert 200 == (await visitor.get("/"))[0]


async def test_token_also_works_as_a_bearer(visit: Any, token_file: str) -> None:
    """For programs that only look."""
    visitor = await visit(token_file=token_file)
    good = await visitor.get("/", Authorization=f"Bearer {TOKEN}")
    bad = await visitor.get("/", Authorization="Bearer é")

    assert (200, 303) == (good[0], bad[0])


@pytest.mark.parametrize("cookie", ["9999999999.00", "9999999999", "x.y", "1.", "é.é"])
async def test_forged_session_is_refused(visit: Any, token_file: str, cookie: str) -> None:
    """Only a signature of this process opens the door."""
    visitor = await visit(token_file=token_file)

    assert 303 == (await visitor.get("/", Cookie=f"sebridge_session={cookie}"))[0]


async def test_session_ends(visit: Any, token_file: str) -> None:
    """After session_s the token is asked for again."""
    visitor = await visit(token_file=token_file, session_s=0.4)
    await visitor.post("/login", {"token": TOKEN})
    async with asyncio.timeout(10):
        while (await visitor.get("/"))[0] == 200:
            await asyncio.sleep(0.05)

    assert 401 == (await visitor.get("/api/stream"))[0]


async def test_user_of_the_proxy_becomes_the_commands_source(
    visit: Any, publisher: Publisher, command_log: CommandLog
) -> None:
    """Who approves is in the agent's audit trail; without the header nobody gets in."""
    visitor = await visit(user_header="X-Forwarded-User")
    assert 401 == (await visitor.get("/"))[0]
    visitor.session.headers["X-Forwarded-User"] = "ada lovelace@ops"
    snapshot = await visitor.until_shown()
    assert "ada lovelace@ops" == snapshot["user"]
    assert 202 == (await visitor.approve(snapshot))[0]
    stolen = await visitor.approve(snapshot, headers={"X-Forwarded-User": "eve"}, key="key-00009")

    [command] = await command_log.wait(1)
    assert "/sebridge/console/ada%20lovelace@ops" == command["source"]
    assert 403 == stolen[0]


async def test_pages_are_limited(visit: Any, publisher: Publisher) -> None:
    """One page more than clients_max is told so."""
    visitor = await visit(clients_max=1)
    async with visitor.session.get(visitor.url + "/api/stream") as first:
        await first.content.readline()
        status, _, text = await visitor.get("/api/stream")

    assert 503 == status
    assert "console.clients_max" in text


def test_listen_for_others_needs_a_login() -> None:
    """An open port without a login is refused before anything starts."""
    for listen in ("0.0.0.0:8470", "[::]:8470", ":8470", "10.0.0.4:8470", "ops.example:8470"):
        with pytest.raises(ValueError) as caught:
            Console(listen=listen)
        assert "set token_file or user_header" in str(caught.value)
    for listen in ("127.0.0.1:8470", "[::1]:8470", "localhost:8470", "127.8.8.8:1"):
        assert Console(listen=listen).address()
    assert Console(listen="0.0.0.0:1", token_file="token").address() == ("0.0.0.0", 1)


def test_short_token_is_refused(tmp_path: Path) -> None:
    """A token that can be guessed is worse than none."""
    path = tmp_path / "token"
    path.write_text("hunter2")

    with pytest.raises(ConfigError) as caught:
        Gate(Console(token_file=str(path)))
    assert "too short" in str(caught.value)
    assert "hunter2" not in str(caught.value)
