"""The access list in docs/security.md, as it stands there, on a real mosquitto."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.config import Mqtt
from bridge.transports.mqtt import MqttTransport
from tests.integration.test_mqtt import cloudevent, row, until
from tests.support.mosquitto import Mosquitto

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
USERS = ("web_3", "web_4", "dashboard", "approver")
PASSWORD = "secret"
NOT_AUTHORIZED = 135


def root(vm: str) -> str:
    return f"sebridge/v1/rg/{vm}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    match = re.search(r"```acl\n(.*?)```", SECURITY.read_text(encoding="utf-8"), re.DOTALL)
    assert match
    (tmp_path / "acl").write_text(match[1])
    (tmp_path / "password").write_text(PASSWORD)
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    for user in USERS:
        command = ["mosquitto_passwd", "-b", str(passwords), user, PASSWORD]
        subprocess.run(command, check=True, capture_output=True)
    lines = [
        "allow_anonymous false",
        f"password_file {passwords}",
        f"acl_file {tmp_path / 'acl'}",
    ]
    with Mosquitto(tmp_path, lines) as started:
        yield started


class Person:
    """A client that tries things and remembers what the broker said."""

    def __init__(self, broker: Mosquitto, user: str) -> None:
        self.codes: list[int] = []
        self.granted: list[int] = []
        self.seen: list[str] = []
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.username_pw_set(user, PASSWORD)
        self.client.on_publish = lambda _c, _d, _m, code, _p: self.codes.append(code.value)
        self.client.on_subscribe = lambda _c, _d, _m, codes, _p: self.granted.extend(
            code.value for code in codes
        )
        self.client.on_message = lambda _c, _d, message: self.seen.append(message.topic)
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()

    async def publish(self, topic: str) -> int:
        known = len(self.codes)
        self.client.publish(topic, b"{}", qos=1)
        await until(lambda: len(self.codes) > known)
        return self.codes[-1]

    async def subscribe(self, topic: str) -> None:
        known = len(self.granted)
        self.client.subscribe(topic, qos=1)
        await until(lambda: len(self.granted) > known)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def people(broker: Mosquitto) -> Iterator[dict[str, Person]]:
    everybody = {user: Person(broker, user) for user in USERS}
    yield everybody
    for person in everybody.values():
        person.close()


def agent(broker: Mosquitto, tmp_path: Path, vm: str) -> MqttTransport:
    config = Mqtt(
        host="127.0.0.1",
        port=broker.port,
        username=vm,
        password_file=str(tmp_path / "password"),
        response_topic_prefix="sebridge/replies/",
    )
    return MqttTransport(
        config, root=root(vm), client_id=f"agent-{vm}", will=lambda: b"{}", pending=lambda: ()
    )


@asynccontextmanager
async def connected(transport: MqttTransport) -> AsyncIterator[None]:
    task = asyncio.create_task(transport.run())
    try:
        await until(lambda: transport.connected)
        yield
    finally:
        await transport.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_agent_works_under_the_access_list(
    broker: Mosquitto, people: dict[str, Person], tmp_path: Path
) -> None:
    """A VM publishes all it has to, takes its commands and replies; a dashboard sees it."""
    await people["dashboard"].subscribe("sebridge/v1/#")
    await people["approver"].subscribe("sebridge/replies/#")
    transport = agent(broker, tmp_path, "web_3")
    async with connected(transport):
        await transport.publish(
            [row(1), row(2, channel="outcomes", reply_topic="sebridge/replies/a")]
        )
        await transport.publish_status(cloudevent("status"))
        assert await people["approver"].publish(f"{root('web_3')}/commands") == 0
        incoming = await anext(transport.commands())
        incoming.ack()

        assert (incoming.wire.payload, transport.problem) == (b"{}", "")
        await until(lambda: len(people["dashboard"].seen) >= 5)
        await until(lambda: people["approver"].seen == ["sebridge/replies/a"])
    channels = {topic.removeprefix(root("web_3")) for topic in people["dashboard"].seen}
    assert {"/events", "/outcomes", "/status", "/pending/id1", "/commands"} <= channels


@pytest.mark.parametrize(
    ("user", "topic"),
    [
        ("web_4", "web_3/commands"),
        ("web_4", "web_3/events"),
        ("web_4", "web_3/status"),
        ("web_4", "web_3/pending/x"),
        ("web_3", "web_3/commands"),
        ("dashboard", "web_3/commands"),
        ("dashboard", "web_3/events"),
        ("approver", "web_3/events"),
        ("approver", "web_3/outcomes"),
    ],
)
async def test_nobody_writes_where_he_has_no_business(
    people: dict[str, Person], user: str, topic: str
) -> None:
    """A VM cannot speak for or command another, and only the approver sends commands."""
    assert await people[user].publish(f"sebridge/v1/rg/{topic}") == NOT_AUTHORIZED


async def test_vm_hears_only_its_own_commands(people: dict[str, Person]) -> None:
    """A subscription to everybody's commands brings a VM nothing but its own."""
    await people["web_4"].subscribe("sebridge/v1/+/+/commands")
    await people["web_4"].subscribe(f"{root('web_4')}/commands")
    await people["approver"].publish(f"{root('web_3')}/commands")
    await people["approver"].publish(f"{root('web_4')}/commands")
    await until(lambda: people["web_4"].seen)

    assert set(people["web_4"].seen) == {f"{root('web_4')}/commands"}
