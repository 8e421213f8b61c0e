"""Whole stories over Event Hubs: a real agent process, a real AMQP socket, an IMDS that counts."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge import configfile
from tests.builders import EVENT_ID, VM_NAME, azure_entry, command_fields
from tests.e2e.test_signed import Keys
from tests.e2e.test_signed import command as signable
from tests.integration.test_console import Visitor, running
from tests.support.eventhubs_server import EventHubsServer

EVENTS_HUB, COMMANDS_HUB = "scheduled-events", "scheduled-events-commands"


def command(key: str = "chg-1", **data: Any) -> dict[str, Any]:
    return command_fields({"vm": VM_NAME, **data}, id=f"id-{key}", idempotencykey=key)


@pytest.fixture
async def hubs() -> AsyncIterator[EventHubsServer]:
    async with EventHubsServer() as server:
        server.add_hub(EVENTS_HUB)
        server.add_hub(COMMANDS_HUB)
        yield server


class Agent:
    """`sebridge run` with Event Hubs, and what a consumer of the hub sees of it."""

    def __init__(self, process: Any, hubs: EventHubsServer, ledger: Path) -> None:
        self.process = process
        self.hubs = hubs
        self.ledger = ledger

    def seen(self, kind: str) -> list[dict[str, Any]]:
        """In order, and each id once: duplicates are allowed."""
        events = [msgspec.json.decode(e.body) for e in self.hubs.hub(EVENTS_HUB).events()]
        once = {event["id"]: event for event in events}
        return [event for event in once.values() if event["type"].startswith(f"io.sebridge.{kind}")]

    def outcomes(self) -> list[tuple[str, str]]:
        return [(o["data"]["status"], o["data"].get("reason", "")) for o in self.seen("approval")]

    def replays(self) -> int:
        bodies = [msgspec.json.decode(e.body) for e in self.hubs.hub(EVENTS_HUB).events()]
        return sum(bool(body["data"].get("replay")) for body in bodies)

    def send(self, sent: dict[str, Any] | bytes, partition_key: str | None = "web_3") -> None:
        body = sent if isinstance(sent, bytes) else msgspec.json.encode(sent)
        self.hubs.hub(COMMANDS_HUB).put(body, partition_key=partition_key)

    def cpu_s(self) -> float:
        """What the process has used of the processor so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


MakeAgent = Callable[..., Agent]


@pytest.fixture
def make_agent(
    tmp_path: Path, imds: Any, hubs: EventHubsServer, free_port: int, agent_class: Any
) -> Iterator[MakeAgent]:
    made: list[Agent] = []

    def make(*, sinks: str = '["eventhubs"]', source: str = "eventhubs", more: str = "") -> Agent:
        secret = tmp_path / "connection-string"
        secret.write_text(hubs.connection_string())
        config = tmp_path / "eventhubs-agent.toml"
        config.write_text(f"""
[imds]
endpoint = "{imds.endpoint}"
poll_interval_s = 0.25
[store]
path = "{tmp_path}/state/state.db"
[events]
sinks = {sinks}
[commands]
source = "{source}"
[eventhubs]
connection_string_file = "{secret}"
reconnect_s_max = 1.0
checkpoint_s = 0.5
[http]
listen = "127.0.0.1:{free_port}"
{more}
""")
        made.append(Agent(agent_class(config), hubs, tmp_path / "state" / "state.db"))
        return made[-1]

    yield make
    for agent in made:
        if agent.process.is_running:
            agent.process.kill()


async def test_event_goes_to_the_hub_and_is_approved_from_one(
    make_agent: MakeAgent, imds: Any, until: Callable[..., Any]
) -> None:
    """A consumer sees each transition, approves once through the hub it is told, and sees the end."""
    agent = make_agent()
    agent.process.start()
    imds.show(azure_entry())
    (scheduled,) = await until(lambda: agent.seen("event"))
    agent.send(command(token=scheduled["data"]["approval"]["token"]))
    await until(lambda: ("approved", "") in agent.outcomes())
    imds.show(azure_entry(EventStatus="Started", NotBefore=""))
    await until(lambda: ("confirmed", "") in agent.outcomes())
    imds.show()
    await until(lambda: len(agent.seen("event")) == 3)

    kinds = [event["data"]["transition"] for event in agent.seen("event")]
    assert ["scheduled", "started", "completed"] == kinds
    assert scheduled["data"]["approval"]["topic"] == COMMANDS_HUB
    assert [EVENT_ID] == imds.posts
    assert {e.partition_key for e in agent.hubs.hub(EVENTS_HUB).events()} == {"web_3"}
    assert await asyncio.to_thread(agent.process.stop) == 0
    assert agent.seen("agent.status")[-1]["data"]["status"] == "offline"


async def test_commands_again_and_again_across_kills_leave_one_post(
    make_agent: MakeAgent, imds: Any, until: Callable[..., Any]
) -> None:
    """Repeated sends, cut connections, SIGKILLs and a rewound offset: exactly one POST."""
    agent = make_agent()
    imds.show(azure_entry())
    agent.process.start()
    await until(lambda: agent.seen("event"))
    for number in range(20):
        agent.send(command(f"other-{number}", vm="web_4"), partition_key="web_4")
    for _ in range(3):
        agent.send(command("a"))
    agent.hubs.kill_connections()
    await until(lambda: ("approved", "") in agent.outcomes(), 30)
    agent.process.kill()
    agent.send(command("b"))
    agent.process.start()
    await until(lambda: ("rejected", "already-approved") in agent.outcomes(), 30)
    agent.process.kill()
    with sqlite3.connect(agent.ledger) as db:
        read_to = dict(db.execute("SELECT source, position FROM offsets"))
        db.execute("UPDATE offsets SET position = '-1'")
    db.close()
    before = agent.replays()
    agent.process.start()
    # Every command of ours comes again: three times "a" and once "b", all of them known.
    await until(lambda: agent.replays() >= before + 4, 30)

    assert [EVENT_ID] == imds.posts
    assert {name.rpartition("/")[2] for name in read_to} == {"0", "1"}
    answers = {o["id"] for o in agent.seen("approval") if o["data"]["idempotencyKey"] == "a"}
    assert len(answers) == 1
    assert await asyncio.to_thread(agent.process.stop) == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seconds", [8, pytest.param(40, marks=pytest.mark.slow)])
async def test_outage_is_survived_in_order_and_costs_little(
    make_agent: MakeAgent, imds: Any, until: Callable[..., Any], seconds: float
) -> None:
    """Events of an outage arrive after it, commands too, and the agent does not spin meanwhile."""
    agent = make_agent()
    agent.process.start()
    imds.show(azure_entry())
    await until(lambda: agent.seen("event"))
    await agent.hubs.stop()
    before_s = agent.cpu_s()
    for number in range(4):
        imds.show(azure_entry(), *(azure_entry(f"E-{each}") for each in range(number + 1)))
        await until(imds.was_polled_twice())
        await asyncio.sleep(seconds / 4)
    used_s = agent.cpu_s() - before_s
    agent.send(command())
    await agent.hubs.start()
    await until(lambda: len(agent.seen("event")) == 5, 30)
    await until(lambda: ("approved", "") in agent.outcomes(), 30)

    subjects = [event["subject"] for event in agent.seen("event")]
    sequences = [event["sequence"] for event in agent.seen("event")]
    assert [EVENT_ID, "E-0", "E-1", "E-2", "E-3"] == subjects
    assert sequences == sorted(sequences)
    # The client library alone would use three quarters of the time.
    assert used_s < 0.375 * seconds
    assert await asyncio.to_thread(agent.process.stop) == 0


async def test_events_by_event_hubs_and_commands_by_mqtt(
    make_agent: MakeAgent, imds: Any, observer: Any, broker: Any, until: Callable[..., Any]
) -> None:
    """Each direction has its transport; the event tells where its command goes."""
    agent = make_agent(source="mqtt", more=f"[mqtt]\nport = {broker.port}")
    agent.process.start()
    imds.show(azure_entry())
    (scheduled,) = await until(lambda: agent.seen("event"))
    observer.send(command())
    await until(lambda: ("approved", "") in agent.outcomes())

    assert scheduled["data"]["approval"]["topic"] == "sebridge/v1/rg/web_3/commands"
    assert not observer.of("events")
    assert [EVENT_ID] == imds.posts
    assert await asyncio.to_thread(agent.process.stop) == 0


async def test_events_by_mqtt_and_commands_by_event_hubs(
    make_agent: MakeAgent, imds: Any, observer: Any, broker: Any, until: Callable[..., Any]
) -> None:
    """The other way round; nothing but commands touches Event Hubs."""
    agent = make_agent(sinks='["mqtt"]', more=f"[mqtt]\nport = {broker.port}")
    agent.process.start()
    imds.show(azure_entry())
    (scheduled,) = await until(lambda: observer.of("events"))
    agent.send(command())
    (outcome,) = await until(lambda: observer.of("outcomes"))

    assert scheduled["data"]["approval"]["topic"] == COMMANDS_HUB
    assert outcome["data"]["status"] == "approved"
    assert not agent.hubs.hub(EVENTS_HUB).events()
    assert await asyncio.to_thread(agent.process.stop) == 0


async def test_console_shows_and_approves_over_event_hubs(
    make_agent: MakeAgent, imds: Any, until: Callable[..., Any], tmp_path: Path
) -> None:
    """The page reads the hub back, and a click becomes a command in the other hub."""
    agent = make_agent(more='[console]\nlisten = "127.0.0.1:0"')
    agent.process.start()
    imds.show(azure_entry())
    await until(lambda: agent.seen("event"))
    async with running(configfile.load(str(tmp_path / "eventhubs-agent.toml"))) as url:
        visitor = Visitor(url)
        snapshot = await visitor.until_shown()
        status, said = await visitor.approve(snapshot)
        await until(lambda: ("approved", "") in agent.outcomes())
        await visitor.session.close()

    assert status == 202, said
    assert [EVENT_ID] == imds.posts


async def test_signed_command_from_a_hub_approves_and_an_unsigned_one_does_not(
    make_agent: MakeAgent, imds: Any, until: Callable[..., Any], tmp_path: Path
) -> None:
    """Trusted keys mean the same on every transport."""
    keys = Keys(tmp_path / "keys")
    agent = make_agent()
    agent.process.start(SEBRIDGE_COMMANDS__TRUSTED_KEYS=f'["{keys.public}"]')
    imds.show(azure_entry())
    await until(lambda: agent.seen("event"))
    agent.send(command("unsigned"))
    await until(lambda: ("rejected", "bad-signature") in agent.outcomes())
    agent.send(keys.sign(signable("signed")))
    await until(lambda: ("approved", "") in agent.outcomes())

    assert [EVENT_ID] == imds.posts


async def test_dead_sink_holds_back_no_other(
    make_agent: MakeAgent, imds: Any, observer: Any, broker: Any, until: Callable[..., Any]
) -> None:
    """With Event Hubs away MQTT gets everything at once; Event Hubs gets it all when it is back."""
    agent = make_agent(
        sinks='["mqtt", "eventhubs"]', source="mqtt", more=f"[mqtt]\nport = {broker.port}"
    )
    await agent.hubs.stop()
    agent.process.start()
    imds.show(azure_entry())
    await until(lambda: len(observer.of("events")) == 1)
    imds.show(azure_entry(), azure_entry("E-2"))
    await until(lambda: len(observer.of("events")) == 2)
    missing = len(agent.seen("event"))
    await agent.hubs.start()
    await until(lambda: len(agent.seen("event")) == 2)

    assert missing == 0
    assert [e["id"] for e in observer.of("events")] == [e["id"] for e in agent.seen("event")]
    assert await asyncio.to_thread(agent.process.stop) == 0
