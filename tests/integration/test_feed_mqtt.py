"""The consumer's MQTT feed against a real mosquitto, with a second client in the agents' place."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.config import Mqtt, MqttTls
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.feeds import Received
from bridge.feeds.mqtt import MqttFeed
from bridge.feeds.mqtt import feed as feed_module
from tests.support.mosquitto import Mosquitto
from tests.support.waiting import until

ROOT = "sebridge/v1/group/web_3"
STRUCTURED = b'{"specversion":"1.0","id":"1","source":"/vm","type":"t","data":{"a":1}}'


class Agent:
    """Publishes as an agent would, and keeps the commands it gets."""

    def __init__(self, port: int) -> None:
        self.commands: list[MQTTMessage] = []
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_connect = self._subscribe
        self._client.on_message = lambda _c, _d, message: self.commands.append(message)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _subscribe(self, *_: Any) -> None:
        self._client.subscribe(f"{ROOT}/commands", 1)

    def publish(
        self, name: str, payload: bytes, *, root: str = ROOT, retain: bool = False, **values: Any
    ) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for key, value in values.items():
            setattr(properties, key, value)
        info = self._client.publish(f"{root}/{name}", payload, 1, retain, properties)
        info.wait_for_publish(5)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    lines = ["allow_anonymous true", "persistence true", f"persistence_location {tmp_path}/"]
    with Mosquitto(tmp_path, lines) as running_broker:
        yield running_broker


@pytest.fixture
def agent(broker: Mosquitto) -> Iterator[Agent]:
    speaking = Agent(broker.port)
    yield speaking
    speaking.stop()


@asynccontextmanager
async def running(port: int, **options: Any) -> AsyncIterator[MqttFeed]:
    feed = MqttFeed(Mqtt(**{"host": "127.0.0.1", "port": port, "reconnect_s_max": 0.3, **options}))
    task = asyncio.create_task(feed.run())
    try:
        await until(lambda: not feed.problem)
        yield feed
    finally:
        await feed.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def take(feed: MqttFeed, count: int) -> list[Received]:
    async with asyncio.timeout(10):
        return [await anext(feed.received()) for _ in range(count)]


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_feed_hands_over_each_channel_with_its_agent(
    broker: Mosquitto, agent: Agent, protocol: str
) -> None:
    """Events, outcomes, status and pending come as they were sent, in either version."""
    async with running(broker.port, protocol=protocol) as feed:
        for name in ("events", "pending/A%2FB", "outcomes", "status"):
            agent.publish(name, STRUCTURED)
        received = await take(feed, 4)

    assert [r.channel for r in received] == ["events", "pending", "outcomes", "status"]
    assert {r.agent for r in received} == {ROOT}
    assert {r.payload for r in received} == {STRUCTURED}
    assert received[1].event_id == "A/B"


async def test_feed_tells_channels_by_their_depth(broker: Mosquitto, agent: Agent) -> None:
    """A VM may be called like a channel, and commands are not for us."""
    async with running(broker.port) as feed:
        agent.publish("commands", b"{}")
        agent.publish("status", STRUCTURED, root="sebridge/v1/pending/events")
        [received] = await take(feed, 1)

    assert ("status", "sebridge/v1/pending/events") == (received.channel, received.agent)


async def test_feed_starts_with_retained_state(broker: Mosquitto, agent: Agent) -> None:
    """Whoever comes late sees what is pending and who is there."""
    agent.publish("status", STRUCTURED, retain=True)
    agent.publish("pending/e1", STRUCTURED, retain=True)
    async with running(broker.port) as feed:
        received = await take(feed, 2)

    assert {"status", "pending"} == {r.channel for r in received}


async def test_feed_makes_binary_cloudevents_structured(broker: Mosquitto, agent: Agent) -> None:
    """Attributes come from user properties, data from the payload."""
    pairs = [("specversion", "1.0"), ("id", "1"), ("source", "/vm"), ("type", "t")]
    async with running(broker.port) as feed:
        agent.publish("events", b'{"a":1}', ContentType="application/json", UserProperty=pairs)
        agent.publish("events", b'{"a":1', ContentType="application/json", UserProperty=pairs)
        good, bad = await take(feed, 2)

    assert msgspec.json.decode(good.payload) == {
        **dict(pairs),
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }
    assert bad.payload == b'{"a":1'


async def test_feed_comes_back_and_says_what_ended_meanwhile(
    broker: Mosquitto, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pending event that was cleared while the feed was away is reported as gone."""
    monkeypatch.setattr(feed_module, "SETTLE_S", 0.5)
    agent.publish("pending/stays", STRUCTURED, retain=True)
    agent.publish("pending/goes", STRUCTURED, retain=True)
    async with running(broker.port) as feed:
        await take(feed, 2)
        assert feed._session
        feed._session.drop("test")
        agent.publish("pending/goes", b"", retain=True)
        received = await take(feed, 2)

    assert {("stays", STRUCTURED), ("goes", b"")} == {(r.event_id, r.payload) for r in received}


async def test_feed_send_reaches_the_command_topic(broker: Mosquitto, agent: Agent) -> None:
    """A command goes out once, not retained, and only with the broker's word that it has it."""
    async with running(broker.port) as feed:
        await feed.send(f"{ROOT}/commands", "web_3", b"{}")
        await until(lambda: agent.commands)

    assert [(m.payload, m.retain) for m in agent.commands] == [(b"{}", False)]


@pytest.mark.parametrize(
    "topic",
    [
        "sebridge/v1/group/web_4/commands",
        "sebridge/v1/+/web_3/commands",
        "sebridge/v1//web_3/commands",
        "sebridge/v1/group/web_3/status",
        "home/door/open",
        "",
    ],
)
async def test_feed_send_refuses_a_topic_from_the_wire(broker: Mosquitto, topic: str) -> None:
    """`approval.topic` is untrusted: it must be the command topic of the VM it is meant for."""
    async with running(broker.port) as feed:
        with pytest.raises(SinkRejected) as caught:
            await feed.send(topic, "web_3", b"{}")

    assert "is not the command topic of web_3" in str(caught.value)


async def test_feed_send_refused_by_the_broker_says_so(tmp_path: Path) -> None:
    """Without the right to publish there the PUBACK says no, and so does the feed."""
    acl = tmp_path / "acl"
    acl.write_text("topic read sebridge/#\n")
    with Mosquitto(tmp_path, ["allow_anonymous true", f"acl_file {acl}"]) as broker:
        async with running(broker.port) as feed:
            with pytest.raises(SinkRejected) as caught:
                await feed.send(f"{ROOT}/commands", "web_3", b"{}")

    assert "Not authorized" in str(caught.value)


async def test_feed_without_a_broker_says_why(broker: Mosquitto) -> None:
    """A dead broker is a problem with a name, and nothing is sent into the dark."""
    async with running(broker.port) as feed:
        await asyncio.to_thread(broker.stop)
        await until(lambda: "Connection refused" in feed.problem)
        with pytest.raises(SinkUnavailable) as caught:
            await feed.send(f"{ROOT}/commands", "web_3", b"{}")
        await asyncio.to_thread(broker.start)
        await until(lambda: not feed.problem)

    assert str(broker.port) in str(caught.value)


async def test_feed_logs_in_with_a_password_and_tls(tmp_path: Path) -> None:
    """The broker wants a certificate of its authority's and a password; the feed has both."""
    certificates(tmp_path)
    password, users = tmp_path / "password", tmp_path / "users"
    password.write_text("hush\n")
    users.write_text("ops:hush\n")
    hashing = await asyncio.create_subprocess_exec("mosquitto_passwd", "-U", str(users))
    await hashing.wait()
    lines = [
        f"cafile {tmp_path}/ca.pem",
        f"certfile {tmp_path}/server.pem",
        f"keyfile {tmp_path}/server.key",
        "require_certificate true",
        f"password_file {users}",
    ]
    tls = MqttTls(
        enabled=True,
        ca_file=f"{tmp_path}/ca.pem",
        cert_file=f"{tmp_path}/client.pem",
        key_file=f"{tmp_path}/client.key",
    )
    with Mosquitto(tmp_path, lines) as broker:
        async with running(
            broker.port, username="ops", password_file=str(password), tls=tls
        ) as feed:
            assert feed.problem == ""

        stranger = MqttFeed(Mqtt(host="127.0.0.1", port=broker.port, tls=tls))
        task = asyncio.create_task(stranger.run())
        await until(lambda: "Not authorized" in stranger.problem)
        await stranger.close()
        await task


def certificates(folder: Path) -> None:
    """An authority, and a server and a client that it vouches for."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    for name in ("ca", "server", "client"):
        key = authority_key if name == "ca" else ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        now = datetime.now(UTC)
        authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            authority_key.public_key()
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(authority_id, critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
