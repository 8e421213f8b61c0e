"""`watch` and `approve` on a real broker, with a scripted agent that answers commands."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from bridge import consumer, feed_choice
from bridge.config import Commands, Config, Events, Mqtt
from bridge.consumer import ApprovalRequest
from bridge.core.cloudevents import Vm
from bridge.errors import BridgeError, ConfigError
from bridge.feeds import Received
from tests.support.fleet_messages import Publisher, outcome, root_of, vm
from tests.support.mosquitto import Mosquitto

WEB_3, WEB_4 = vm("web_3"), vm("web_4")
EVENT = "602D9444-D2CD-49C7-8624-8643E7171297"
Script = Callable[[dict[str, Any]], list[dict[str, Any]]]


class Agent:
    """Takes commands of one VM and answers each as the script says."""

    def __init__(self, port: int, machine: Vm, script: Script) -> None:
        self.commands: list[dict[str, Any]] = []
        self._machine, self._script = machine, script
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = self._subscribe
        self._client.on_message = self._answer
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _subscribe(self, *_: Any) -> None:
        self._client.subscribe(f"{root_of(self._machine.name)}/commands", 1)

    def _answer(self, _client: Any, _data: Any, message: MQTTMessage) -> None:
        command = msgspec.json.decode(message.payload)
        self.commands.append(command)
        for fields in self._script(command):
            names = {"command_id": command["id"], "idempotency_key": command["idempotencykey"]}
            payload = outcome(self._machine, **{"event_id": EVENT, **names, **fields})
            self._client.publish(f"{root_of(self._machine.name)}/outcomes", payload, 1)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def publisher(broker: Mosquitto) -> Iterator[Publisher]:
    speaking = Publisher(broker.port)
    yield speaking
    speaking.stop()


@pytest.fixture
def agent(broker: Mosquitto) -> Iterator[Callable[..., Agent]]:
    running: list[Agent] = []

    def start(machine: Vm, *answers: dict[str, Any], script: Script | None = None) -> Agent:
        running.append(Agent(broker.port, machine, script or (lambda _: list(answers))))
        return running[-1]

    yield start
    for one in running:
        one.stop()


async def approve(broker: Mosquitto, **fields: Any) -> int:
    config = Config(mqtt=Mqtt(host="127.0.0.1", port=broker.port))
    request = ApprovalRequest(**{"event_id": EVENT, "timeout_s": 5.0, **fields})
    return await consumer.approve(feed_choice.make_feed(config), request)


@pytest.mark.parametrize(
    "case",
    [
        ([{"status": "approved", "http_status": 200}], 0, "approved  Reboot of web_3"),
        (
            [{"status": "rejected", "reason": "policy-denied", "detail": "no"}],
            3,
            "(policy-denied: no)",
        ),
        ([{"status": "in-doubt"}, {"status": "confirmed"}], 0, "confirmed"),
        ([{"status": "approved", "waiting_on": ("E2",)}], 0, "waits for the approval of E2"),
    ],
)
async def test_approve_exits_with_the_outcome(
    broker: Mosquitto,
    publisher: Publisher,
    agent: Callable[..., Agent],
    capsys: pytest.CaptureFixture[str],
    case: tuple[list[dict[str, Any]], int, str],
) -> None:
    """0 approved or confirmed, 3 rejected; a doubt is waited out; one line says it."""
    answers, code, text = case
    agent(WEB_3, *answers)
    publisher.event(WEB_3, EVENT)
    publisher.flush()

    assert code == await approve(broker, reason="drained")
    assert text in capsys.readouterr().out


async def test_approve_without_an_answer_exits_with_4(
    broker: Mosquitto, publisher: Publisher, agent: Callable[..., Agent]
) -> None:
    """An answer of another agent is none."""

    def another_answers(command: dict[str, Any]) -> list[dict[str, Any]]:
        publisher.outcome(WEB_4, command_id=command["id"])
        return []

    listening = agent(WEB_3, script=another_answers)
    publisher.event(WEB_3, EVENT)
    publisher.flush()

    assert 4 == await approve(broker, timeout_s=0.2)
    assert 1 == len(listening.commands)


async def test_approve_picks_the_leader_and_expects_what_it_saw(
    broker: Mosquitto, publisher: Publisher, agent: Callable[..., Agent]
) -> None:
    """Of two VMs that tell of the event, the leader gets the command, with guard and token."""
    other, leader = agent(WEB_4), agent(WEB_3, {"status": "approved"})
    for machine in (WEB_4, WEB_3):
        publisher.event(machine, EVENT, resources=("web_3", "web_4"))
    publisher.flush()

    assert 0 == await approve(broker, event_id=EVENT.lower(), key="chg-1", reason="drained")
    [command] = leader.commands
    assert other.commands == []
    assert ("chg-1", "/sebridge/cli") == (command["idempotencykey"], command["source"])
    assert command["data"] == {
        "eventId": EVENT,
        "vm": "web_3",
        "expect": {"eventType": "Reboot", "resources": ["web_3", "web_4"]},
        "token": "t0ken",
        "reason": "drained",
    }


async def test_approve_recognises_a_repeated_answer_by_its_key(
    broker: Mosquitto,
    publisher: Publisher,
    agent: Callable[..., Agent],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A replay carries the id of the first command, which this process never knew."""
    agent(WEB_3, {"status": "approved", "command_id": "the-first", "replay": True})
    publisher.event(WEB_3, EVENT)
    publisher.flush()

    assert 0 == await approve(broker, key="chg-1")
    assert "an earlier answer, repeated" in capsys.readouterr().out


async def test_approve_does_not_follow_a_foreign_topic(
    broker: Mosquitto, publisher: Publisher, agent: Callable[..., Agent]
) -> None:
    """An event that names another machine's command topic is not answered at all."""
    victim = agent(WEB_4)
    publisher.event(WEB_3, EVENT, topic=f"{root_of('web_4')}/commands")
    publisher.flush()

    with pytest.raises(BridgeError) as caught:
        await approve(broker)
    assert f"no pending event {EVENT}" in str(caught.value)
    assert victim.commands == []


async def test_approve_without_a_broker_says_so(broker: Mosquitto) -> None:
    """The error names the broker and the reason."""
    await asyncio.to_thread(broker.stop)

    with pytest.raises(BridgeError) as caught:
        await approve(broker)
    assert f"127.0.0.1:{broker.port}" in str(caught.value)


async def test_watch_prints_lines_that_a_terminal_cannot_be_fooled_with(
    broker: Mosquitto, publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events, outcomes and status in one line each; escape sequences are escaped."""
    publisher.status(WEB_3)
    publisher.flush()
    feed = feed_choice.make_feed(Config(mqtt=Mqtt(host="127.0.0.1", port=broker.port)))
    watching = asyncio.create_task(consumer.watch(feed, as_json=False))
    printed = ""
    try:
        async with asyncio.timeout(10):
            while "online" not in printed:
                await asyncio.sleep(0.02)
                printed += capsys.readouterr().out
            publisher.event(WEB_3, EVENT, event_type="\x1b[2JReboot")
            publisher.outcome(WEB_3, status="rejected", reason="not-leader")
            while "not-leader" not in printed:
                await asyncio.sleep(0.02)
                printed += capsys.readouterr().out
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    lines = printed.splitlines()
    assert ["agent.status", "event.scheduled", "approval.rejected"] == [w.split()[2] for w in lines]
    assert "web_3" in lines[2]
    assert "\x1b" not in printed


async def test_watch_tells_changes_and_leaves_heartbeats_out(
    broker: Mosquitto, publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    """A status that repeats the last one is not printed for people; another one is."""
    publisher.status(WEB_3)
    publisher.flush()
    feed = feed_choice.make_feed(Config(mqtt=Mqtt(host="127.0.0.1", port=broker.port)))
    watching = asyncio.create_task(consumer.watch(feed, as_json=False))
    printed = ""
    try:
        async with asyncio.timeout(10):
            while "online" not in printed:
                await asyncio.sleep(0.02)
                printed += capsys.readouterr().out
            publisher.status(WEB_3)
            publisher.status(WEB_3)
            publisher.status(WEB_3, "blind")
            while "blind" not in printed:
                await asyncio.sleep(0.02)
                printed += capsys.readouterr().out
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    assert ["online", "blind"] == [words.split()[-1] for words in printed.splitlines()]


def test_line_of_an_unknown_type_is_short() -> None:
    """A probe of the doctor, or what a newer agent says, is named and not dumped."""
    probe = {
        "specversion": "1.0",
        "id": "doctor.1",
        "source": "/subscriptions/0000",
        "type": "io.sebridge.agent.probe.v1",
        "time": "2026-11-18T06:00:00.000Z",
        "partitionkey": "web_3",
        "data": {"sentBy": "sebridge doctor"},
    }
    received = Received(
        channel="events", agent=root_of("web_3"), payload=msgspec.json.encode(probe)
    )

    assert "2026-11-18T06:00:00.000Z  web_3            agent.probe" == consumer.line(received)


def test_make_feed_without_a_broker_is_a_config_error() -> None:
    """A configuration that publishes nowhere has nothing to read."""
    config = Config(events=Events(sinks=("stdout",)), commands=Commands(source="none"))

    with pytest.raises(ConfigError) as caught:
        feed_choice.make_feed(config)
    assert "there is no broker to read" in str(caught.value)
