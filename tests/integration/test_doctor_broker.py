"""The doctor and the broker: name, port, login and topics, against real brokers."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from paho.mqtt import publish
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.doctoring import IDENTITY, ROOT, WAY, examine_broker, results
from tests.support.mosquitto import Mosquitto

ANONYMOUS = "allow_anonymous true"
TOPICS = ("topic events", "topic outcomes", "topic status", "topic commands", "topic pending")
PLUGIN = Path("/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so")


@contextmanager
def observing(port: int) -> Iterator[list[MQTTMessage]]:
    """What a consumer of everything receives meanwhile."""
    seen: list[MQTTMessage] = []
    subscribed: list[int] = []
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_message = lambda _c, _d, message: seen.append(message)
    client.on_subscribe = lambda _c, _d, mid, _codes, _p: subscribed.append(mid)
    client.connect("127.0.0.1", port)
    client.subscribe("#", qos=1)
    client.loop_start()
    deadline = time.monotonic() + 10
    while not subscribed and time.monotonic() < deadline:
        time.sleep(0.02)
    yield seen
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("protocol", ["5", "auto"])
async def test_good_broker_is_good_in_every_layer(tmp_path: Path, protocol: str) -> None:
    """MQTT 5 proves each permission by a reason code."""
    with Mosquitto(tmp_path) as server:
        found = await examine_broker(server.port, protocol=protocol)

    assert results(found) == {**WAY, "broker login": "ok", **dict.fromkeys(TOPICS, "ok")}
    assert found["broker login"].text == "MQTT 5, auth password"


async def test_probes_are_harmless(tmp_path: Path) -> None:
    """Consumers see a type they do not handle; nothing is retained."""
    with Mosquitto(tmp_path) as server, observing(server.port) as seen:
        await examine_broker(server.port)
        async with asyncio.timeout(10):
            while len(seen) < 4:
                await asyncio.sleep(0.02)
        with observing(server.port) as later:
            publish.single("marker", "end", port=server.port)
            async with asyncio.timeout(10):
                while "marker" not in [message.topic for message in later]:
                    await asyncio.sleep(0.02)

    probes = [message for message in seen if message.payload and message.topic != "marker"]
    assert sorted(message.topic for message in probes) == [
        f"{ROOT}/{channel}" for channel in ("events", "outcomes", "status")
    ]
    for message in probes:
        fields = msgspec.json.decode(message.payload)
        assert fields["type"] == "io.sebridge.agent.probe.v1"
        assert fields["source"]
    assert [m.topic for m in seen if not m.payload] == [f"{ROOT}/pending/sebridge-doctor"]
    assert [message.topic for message in later] == ["marker"]
    assert "sebridge-v-1-doctor" in (tmp_path / "mosquitto.log").read_text()


async def test_running_agent_is_not_thrown_out(tmp_path: Path) -> None:
    """The doctor has its own client id, so the agent's connection lives on."""
    with Mosquitto(tmp_path) as server:
        lost: list[object] = []
        agent = Client(CallbackAPIVersion.VERSION2, client_id="my-agent")
        agent.on_disconnect = lambda *arguments: lost.append(arguments)
        agent.connect("127.0.0.1", server.port)
        agent.loop_start()

        found = await examine_broker(server.port, client_id="my-agent")

        still_there = not lost and agent.is_connected()
        agent.disconnect()
        agent.loop_stop()
    assert still_there
    assert found["broker login"].result == "ok"


async def test_acl_refusal_names_the_topic(tmp_path: Path) -> None:
    """Each topic is judged by itself."""
    acl = tmp_path / "acl"
    acl.write_text(f"topic readwrite {ROOT}/events\ntopic write {ROOT}/status\n")
    with Mosquitto(tmp_path, [ANONYMOUS, f"acl_file {acl}"]) as server:
        found = await examine_broker(server.port, take_commands=False)

    assert {name: found[name].result for name in found if name.startswith("topic")} == {
        "topic events": "ok",
        "topic outcomes": "failed",
        "topic status": "ok",
        "topic pending": "failed",
    }
    assert found["topic outcomes"].text == f"{ROOT}/outcomes refused with code 135"
    assert f"let the agent publish to {ROOT}/outcomes" in found["topic outcomes"].remedy


@pytest.mark.parametrize(("protocol", "code"), [("5", 135), ("3.1.1", 128)])
async def test_refused_subscription_is_told(tmp_path: Path, protocol: str, code: int) -> None:
    """Both versions can say no to a subscription."""
    rules = {
        "defaultACLAccess": {
            "publishClientSend": True,
            "publishClientReceive": True,
            "subscribe": False,
            "unsubscribe": True,
        },
        "clients": [],
        "groups": [{"groupname": "all", "roles": []}],
        "roles": [],
        "anonymousGroup": "all",
    }
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    lines = [ANONYMOUS, f"plugin {PLUGIN}", f"plugin_opt_config_file {tmp_path}/rules.json"]
    with Mosquitto(tmp_path, lines) as server:
        found = await examine_broker(server.port, protocol=protocol)

    assert found["topic commands"].result == "failed"
    assert found["topic commands"].text == f"{ROOT}/commands refused with code {code}"
    assert found["topic commands"].remedy == f"let the agent subscribe to {ROOT}/commands"


async def test_mqtt_311_admits_that_it_proves_nothing(tmp_path: Path) -> None:
    """A 3.1.1 broker acknowledges what it throws away."""
    acl = tmp_path / "acl"
    acl.write_text("topic read nothing\n")
    with Mosquitto(tmp_path, [ANONYMOUS, f"acl_file {acl}"]) as server:
        found = await examine_broker(server.port, protocol="3.1.1")

    assert found["topic events"].result == "warning"
    assert "proves nothing" in found["topic events"].text
    assert found["topic commands"].result == "ok"


async def test_broker_without_retained_messages_is_told(tmp_path: Path) -> None:
    """Late subscribers would not see what is pending; nothing retained is tried."""
    with Mosquitto(tmp_path, [ANONYMOUS, "retain_available false"]) as server:
        found = await examine_broker(server.port)

    assert results(found)["topic events"] == results(found)["topic commands"] == "ok"
    assert found["topic pending"].result == "warning"
    assert "late subscribers" in found["topic pending"].text


async def test_broker_that_hangs_up_ends_the_list(tmp_path: Path) -> None:
    """A packet it does not take ends the connection, and with it what can be known."""
    with Mosquitto(tmp_path, [ANONYMOUS, "max_packet_size 120"]) as server:
        found = await examine_broker(server.port)

    assert found["broker login"].result == "ok"
    assert [name for name in found if name.startswith("topic")] == ["topic events"]
    assert found["topic events"].result == "failed"


def add_user(file: Path, name: str, password: str) -> None:
    subprocess.run(["mosquitto_passwd", "-b", "-c", file, name, password], check=True)


async def test_login_refused_says_what_to_check(tmp_path: Path) -> None:
    """A wrong password is a refused login, in either version; a right one is none."""
    users, right, wrong = tmp_path / "users", tmp_path / "right", tmp_path / "wrong"
    add_user(users, "agent", "secret")
    right.write_text("secret\n")
    wrong.write_text("guess\n")
    with Mosquitto(tmp_path, ["allow_anonymous false", f"password_file {users}"]) as server:
        good = await examine_broker(server.port, username="agent", password_file=str(right))
        bad = await examine_broker(server.port, username="agent", password_file=str(wrong))
        old = await examine_broker(
            server.port, username="agent", password_file=str(wrong), protocol="3.1.1"
        )

    assert good["broker login"].text == "MQTT 5, user agent"
    assert results(bad) == results(old) == {**WAY, "broker login": "failed"}
    assert "refused: Not authorized (MQTT 5)" in bad["broker login"].text
    assert "guess" not in str(bad) + str(old)


async def test_password_file_that_cannot_be_read_comes_first(tmp_path: Path) -> None:
    """The agent could not even try."""
    found = await examine_broker(1, username="agent", password_file=str(tmp_path / "absent"))

    assert results(found) == {"broker password": "failed"}
    assert "absent" in found["broker password"].text


async def test_name_and_port_are_told_apart() -> None:
    """A name that does not exist is not a port that is closed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]

    unknown = await examine_broker(free, host="no-such-host.invalid")
    closed = await examine_broker(free)

    assert results(unknown) == {"broker name": "failed"}
    assert results(closed) == {"broker name": "ok", "broker port": "failed"}
    assert "Connection refused" in closed["broker port"].text


async def test_silent_peer_is_no_broker() -> None:
    """Something listens, takes CONNECT and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = await examine_broker(silent.getsockname()[1], protocol="3.1.1")

    assert results(found) == {**WAY, "broker login": "failed"}
    assert "does not answer after CONNECT" in found["broker login"].text


async def test_unknown_vm_leaves_the_topics_unchecked(tmp_path: Path) -> None:
    """Without IMDS the topics have no name; the login can still be tried."""
    with Mosquitto(tmp_path) as server:
        found = await examine_broker(server.port, None)

    assert results(found) == {**WAY, "broker login": "ok", "topics": "warning"}


async def test_name_that_cannot_stand_in_a_topic_is_a_failure(tmp_path: Path) -> None:
    """The agent would not start."""
    nameless = msgspec.structs.replace(IDENTITY, resource_group="")
    with Mosquitto(tmp_path) as server:
        found = await examine_broker(server.port, nameless)

    assert found["topics"].result == "failed"
    assert "resource_group" in found["topics"].text


AMQTT = """
import asyncio, sys
from amqtt.broker import Broker
async def main():
    bind = {"type": "tcp", "bind": f"127.0.0.1:{sys.argv[1]}"}
    broker = Broker({"listeners": {"default": bind}, "auth": {"allow-anonymous": True}})
    await broker.start()
    print("up", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_broker_without_mqtt_5_is_used_with_311() -> None:
    """As the agent does; binary mode is then a warning."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AMQTT, str(port), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"up\n"
        found = await examine_broker(port)
        binary = await examine_broker(port, content_mode="binary")
    finally:
        process.kill()
        await process.wait()

    assert found["broker login"].text.startswith("MQTT 3.1.1")
    assert binary["broker login"].result == "warning"
    assert "binary needs MQTT 5" in binary["broker login"].text
