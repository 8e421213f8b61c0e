"""Every message of a real agent on a real broker follows its published schema."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from jsonschema import Draft7Validator, ValidationError

from bridge.simulator.server import Simulator, start
from bridge.simulator.settings import Settings
from tests.e2e.conftest import AgentProcess, Observer

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
ROOT = "sebridge/v1/simulated/web_3"
CHANNELS = {
    f"{ROOT}/events": "event.v1.json",
    f"{ROOT}/outcomes": "outcome.v1.json",
    f"{ROOT}/status": "status.v1.json",
    f"{ROOT}/commands": "command.v1.json",
}


class Azure:
    """The simulator's control API, from a test's point of view."""

    def __init__(self, simulator: Simulator, session: aiohttp.ClientSession) -> None:
        self._simulator = simulator
        self._session = session

    @property
    def imds(self) -> str:
        return f"{self._simulator.url}/vm/web_3"

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        url = f"{self._simulator.url}/control/{path}"
        async with self._session.request(method, url, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def plan(self, type_: str = "Reboot") -> str:
        body = {"type": type_, "resources": ["web_3"], "source": "Platform", "notBeforeS": 900}
        event_id: str = (await self.call("POST", "events", body))["eventId"]
        return event_id

    async def pass_time(self, seconds: float) -> None:
        await self.call("POST", "clock", {"advanceS": seconds})


class Wire:
    """What the observer saw, by topic."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def data(self, channel: str) -> list[dict[str, Any]]:
        topic = f"{ROOT}/{channel}"
        return [
            msgspec.json.decode(payload)["data"]
            for name, payload, _ in self._observer.seen
            if name == topic
        ]

    def transitions(self, event_id: str) -> list[str]:
        events = self.data("events")
        return [e["transition"] for e in events if e["event"]["EventId"] == event_id]

    def outcomes(self, key: str) -> list[tuple[str, str]]:
        outcomes = self.data("outcomes")
        return [
            (o["status"], o.get("reason", "")) for o in outcomes if o.get("idempotencyKey") == key
        ]

    def send(self, key: str, event_id: str, **data: Any) -> None:
        command = {
            "specversion": "1.0",
            "id": f"id-{key}",
            "source": "/ops/oncall",
            "type": "io.sebridge.approve.v1",
            "idempotencykey": key,
            "data": {"eventId": event_id, **data},
        }
        self.raw(msgspec.json.encode(command))

    def raw(self, payload: bytes) -> None:
        self._observer.client.publish(f"{ROOT}/commands", payload, qos=1)


@pytest.fixture
async def azure() -> AsyncIterator[Azure]:
    simulator = await start(Settings(requests_per_s_max=0))
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Azure(simulator, session)
    await simulator.stop()


@pytest.fixture
def agent(tmp_path: Path, azure: Azure, broker: Any, free_port: int) -> Iterator[AgentProcess]:
    config = tmp_path / "agent.toml"
    config.write_text(f"""
imds = {{endpoint = "{azure.imds}", poll_interval_s = 0.2, timeout_s = 1.0, stale_after_s = 1.0}}
store = {{path = "{tmp_path}/state/state.db"}}
mqtt = {{port = {broker.port}, reconnect_s_max = 1.0}}
http = {{listen = "127.0.0.1:{free_port}"}}
[approvals]
answer_timeout_s = 1.0
[[approvals.rules]]
name = "freezes are nobody's business"
event_types = ["Freeze"]
action = "deny"
""")
    process = AgentProcess(config)
    yield process
    if process.is_running:
        process.kill()


def check(seen: list[tuple[str, bytes, bool]]) -> dict[str, int]:
    """Validate every message against the schema of its topic; tells how many there were."""
    validators = {
        name: Draft7Validator(msgspec.json.decode((SCHEMAS / name).read_bytes()))
        for name in CHANNELS.values()
    }
    counts = dict.fromkeys(["pending", "cleared", *CHANNELS.values()], 0)
    for topic, payload, _ in seen:
        if topic.startswith(f"{ROOT}/pending/"):
            counts["pending" if payload else "cleared"] += 1
            if payload:
                message = msgspec.json.decode(payload)
                validators["event.v1.json"].validate(message)
                assert f"{ROOT}/pending/{quote(message['subject'], safe='')}" == topic
        else:
            validators[CHANNELS[topic]].validate(msgspec.json.decode(payload))
            counts[CHANNELS[topic]] += 1
    return counts


async def test_every_message_on_the_wire_follows_its_schema(
    agent: AgentProcess, azure: Azure, observer: Observer, until: Callable[..., Any]
) -> None:
    """Approved, denied, in doubt, cancelled, blind and offline: all of it is as documented."""
    wire = Wire(observer)
    agent.start()
    await until(lambda: wire.data("status"))

    reboot = await azure.plan()
    await until(lambda: wire.transitions(reboot) == ["scheduled"])
    wire.send("good", reboot, vm="web_3", reason="drained", expect={"resources": ["web_3"]})
    await until(lambda: ("approved", "") in wire.outcomes("good"))
    await until(lambda: wire.transitions(reboot)[-1] == "started")
    await until(lambda: ("confirmed", "") in wire.outcomes("good"))
    await azure.pass_time(3600)
    await until(lambda: wire.transitions(reboot)[-1] == "completed")
    wire.send("good", reboot, vm="web_3", reason="drained", expect={"resources": ["web_3"]})
    await until(lambda: any(o.get("replay") for o in wire.data("outcomes")))

    canceled = await azure.plan("Freeze")
    await until(lambda: wire.transitions(canceled) == ["scheduled"])
    wire.send("denied", canceled)
    await until(lambda: ("rejected", "policy-denied") in wire.outcomes("denied"))
    wire.send("unknown", "no-such-event")
    await until(lambda: ("rejected", "unknown-event") in wire.outcomes("unknown"))
    await azure.call("DELETE", f"events/{canceled}")
    await until(lambda: wire.transitions(canceled) == ["scheduled", "canceled"])

    doubtful = await azure.plan("Redeploy")
    await until(lambda: wire.transitions(doubtful) == ["scheduled"])
    await azure.call("POST", "faults", {"vm": None, "method": "POST", "kind": "drop", "count": 1})
    wire.send("doubt", doubtful)
    await until(lambda: ("in-doubt", "in-doubt") in wire.outcomes("doubt"))

    await azure.call(
        "POST", "faults", {"vm": None, "method": "GET", "kind": "garbage", "count": 99}
    )
    await until(lambda: wire.data("status")[-1]["status"] == "blind", 30)
    assert agent.stop() == 0
    await until(lambda: wire.data("status")[-1]["status"] == "offline")

    counts = check(observer.seen)
    assert all(counts.values()), counts
    assert counts["command.v1.json"] == 5


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b'{"specversion": "1.0", "id": "x", "source": "/a", "data": {"eventId": "e"}}',
        b'{"specversion": "1.0", "id": "x", "source": "/a", "type": "io.sebridge.approve.v1", "data": {"eventId": "e", "expcet": {}}}',
    ],
    ids=["no json", "no type", "misspelt"],
)
async def test_what_the_schema_refuses_the_agent_refuses(
    agent: AgentProcess, observer: Observer, until: Callable[..., Any], payload: bytes
) -> None:
    """A command that is not valid gets an answer that is, over a real broker."""
    wire = Wire(observer)
    agent.start()
    await until(lambda: wire.data("status"))
    wire.raw(payload)
    await until(lambda: wire.data("outcomes"))

    assert wire.data("outcomes")[0]["reason"] == "malformed"
    assert check([m for m in observer.seen if m[0] != f"{ROOT}/commands"])["outcome.v1.json"] == 1
    with pytest.raises((ValidationError, msgspec.DecodeError)):
        check([(f"{ROOT}/commands", payload, False)])
