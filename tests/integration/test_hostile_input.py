"""What an attacker would send, each by its name: it is refused or it stays data, and life goes on."""

import asyncio
import json
import logging
from typing import Any

import aiohttp
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.config import Http
from bridge.core import document, topics
from bridge.core.document import MalformedDocument
from bridge.http import HttpServer
from bridge.log import JsonFormatter, TextFormatter
from bridge.store import Store
from bridge.transports import Incoming
from bridge.transports.mqtt import MqttTransport
from tests.builders import EVENT_ID, command_bytes
from tests.desk import Desk
from tests.fakes import FakeClock
from tests.integration.test_mqtt import ROOT, running, until
from tests.support.mosquitto import Mosquitto, free_port

SCRIPT = "<script>alert(1)</script>"
DEEP = b'{"a":' + b"[   " * 400 + b"]" * 400 + b"}"
HOSTILE: dict[str, tuple[bytes, str]] = {
    "oversize": (command_bytes({"reason": "x" * 65_536}), "more than the 65536 allowed"),
    "deep nesting": (DEEP, "nested deeper than 64"),
    "nesting without end": (b'{"a":' * 1_900, "recursion"),
    "bad UTF-8": (command_bytes().replace(b"/ops", b"/\xffps"), "utf-8"),
    "surrogate in UTF-8": (command_bytes().replace(b"/ops", b"/\xed\xa0\x80"), "utf-8"),
    "half a surrogate pair": (command_bytes().replace(b"/ops", b"/\\ud800"), "surrogates"),
    "UTF-16": (command_bytes().decode().encode("utf-16"), "utf-8"),
    "byte order mark": (b"\xef\xbb\xbf" + command_bytes(), "BOM"),
    "duplicate id": (command_bytes().replace(b"{", b'{"id":"x",', 1), "duplicate key 'id'"),
    "duplicate eventId": (
        command_bytes().replace(b'"eventId"', b'"eventId":"x","event\\u0049d"'),
        "duplicate key 'eventId'",
    ),
    "huge integer": (command_bytes({"token": 10**400}), "out of range"),
    "integer without end": (command_bytes().replace(b'"c-1"', b"9" * 5000), "out of range"),
    "huge exponent": (command_bytes().replace(b'"c-1"', b"1e999"), "out of range"),
    "NaN": (command_bytes().replace(b'"c-1"', b"NaN"), "NaN"),
    "too many values": (command_bytes({"expect": {"resources": ["x"] * 2_000}}), "too dense"),
    "NUL in a name": (command_bytes({"eventId": f"{EVENT_ID}\0"}), "not a plain string"),
    "newline in a name": (command_bytes(source="/ops\nforged"), "not a plain string"),
    "terminal escape in a name": (command_bytes(id="\x1b[2J"), "not a plain string"),
    "right-to-left mark in a name": (command_bytes(source="/ops\u202e"), "not a plain string"),
    "list of events": (command_bytes({"eventId": [EVENT_ID]}), "not a plain string"),
    "second document": (command_bytes() * 2, "Extra data"),
    "nothing": (b"", "Expecting value"),
}


@pytest.fixture
def desk(store: Store, clock: FakeClock) -> Desk:
    return Desk(store, clock)


@pytest.mark.parametrize(("payload", "why"), HOSTILE.values(), ids=HOSTILE)
async def test_hostile_command_is_malformed_and_the_next_one_counts(
    desk: Desk, payload: bytes, why: str
) -> None:
    """One answer with the reason, nothing accepted, and a good command right after it is taken."""
    await desk.take(payload)

    (answer,) = desk.answers()
    assert (answer["reason"], desk.accepted) == ("malformed", 0)
    assert why in answer["detail"]
    assert answer["detail"].isprintable()
    await desk.take(command_bytes())
    assert desk.accepted == 1


@pytest.mark.parametrize(
    "raw",
    [
        DEEP,
        b'{"DocumentIncarnation":1,"Events":[],"Events":[]}',
        b'{"DocumentIncarnation":1e999,"Events":[]}',
        b'{"DocumentIncarnation":99999999999999999999,"Events":[]}',
        b'{"DocumentIncarnation":1,"Events":[{"EventId":"\xff"}]}',
        b'{"DocumentIncarnation":1,"Events":[{"EventId":"a\\u0000"}]}',
        b'{"DocumentIncarnation":1,"Events":[' + b"0," * 20_000 + b"0]}",
        b'{"a":"' + b"x" * 4 * 1024 * 1024 + b'"}',
    ],
)
def test_hostile_document_ends_no_event(raw: bytes) -> None:
    """It is refused as a whole, so nothing looks as if it had ended."""
    with pytest.raises(MalformedDocument):
        document.decode(raw)


def test_topic_injection_by_an_event_id_adds_no_level() -> None:
    """Slashes and wildcards of an EventId are escaped in topics."""
    for event_id in ("a/../commands", "+", "#", "a/#", "%2F", "a\u2028b"):
        topic = topics.pending(ROOT, event_id)

        assert topic.removeprefix(f"{ROOT}/pending/").isascii()
        assert set("+#/").isdisjoint(topic.removeprefix(f"{ROOT}/pending/"))


@pytest.mark.parametrize("name", ["a/b", "+", "#", "", "a\nb", "a\0"])
def test_topic_injection_by_a_vm_name_is_refused(name: str) -> None:
    """A name that would change the topic makes none."""
    with pytest.raises(topics.BadTopic):
        topics.fill_root("sebridge/v1/{resource_group}/{vm_name}", resource_group="g", vm_name=name)


@pytest.mark.parametrize(
    "text", ["x\nforged", "x\r\nforged", "\x1b[2J", "a\u2028b", "\x85", "\ud800"]
)
def test_log_injection_stays_in_its_line(text: str) -> None:
    """A value can neither begin a line of its own nor speak to the terminal."""
    record = logging.LogRecord("sebridge.x", logging.INFO, "f", 1, "got %s", (text,), None)
    record.detail = text
    shown = JsonFormatter().format(record)

    assert json.loads(shown)["detail"] == text
    for line in (shown, TextFormatter().format(record)):
        assert len(line.splitlines()) == 1
        assert line.isprintable()


async def test_markup_in_a_description_stays_data() -> None:
    """/status is JSON, says so, and forbids a browser to guess otherwise; errors echo nothing."""
    port = free_port()
    server = HttpServer(
        Http(listen=f"127.0.0.1:{port}"),
        healthy=lambda: "",
        ready=lambda: SCRIPT,
        metrics=lambda: b"",
        status=lambda: {"pending": [{"Description": SCRIPT}]},
        audit=list,
    )
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            answers = {}
            for path in ("/status", "/readyz", f"/{SCRIPT}"):
                async with session.get(path) as answer:
                    answers[path] = (answer.content_type, answer.headers, await answer.text())
    finally:
        await server.close()

    assert answers["/status"][0] == "application/json"
    assert json.loads(answers["/status"][2])["pending"][0]["Description"] == SCRIPT
    assert answers["/readyz"][0] == "text/plain"
    assert SCRIPT not in answers[f"/{SCRIPT}"][2]
    assert {headers["X-Content-Type-Options"] for _, headers, _ in answers.values()} == {"nosniff"}


def publish(port: int, *messages: tuple[bytes, list[tuple[str, str]]], qos: int = 1) -> None:
    """As a client that subscribes to nothing: what it sends does not come back to it."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for payload, pairs in messages:
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = pairs
        client.publish(f"{ROOT}/commands", payload, qos, properties=properties).wait_for_publish(5)
    client.disconnect()
    client.loop_stop()


async def subscribed(broker: Mosquitto, transport: MqttTransport) -> None:
    """Commands arrive: what is sent before the SUBACK reaches nobody."""
    async with asyncio.timeout(10):
        while transport._queue.empty():
            publish(broker.port, (b"ready", []))
            await asyncio.sleep(0.02)
    while not transport._queue.empty():
        transport._queue.get_nowait().ack()


def arrived(transport: MqttTransport) -> list[Incoming]:
    return [i for i in transport._queue._queue if i.wire.payload != b"ready"]  # type: ignore[attr-defined]


async def test_message_that_the_client_library_cannot_read_throws_nobody_out(
    broker: Mosquitto,
) -> None:
    """MQTT allows U+FEFF in text and paho does not: the command is unreadable, the connection stays."""
    async with running(broker) as transport:
        await subscribed(broker, transport)
        publish(broker.port, (b"{}", [("id", "a\ufeffb")]), (b"second", [("x", "y")]))
        await until(lambda: len(arrived(transport)) == 2)
        first, second = arrived(transport)

        assert (transport.generation, transport.connected) == (1, True)
        assert first.wire.payload.startswith(b"\0")
        assert second.wire.payload == b"second"
        first.ack()
        second.ack()


async def test_flood_of_qos_0_is_dropped_and_the_next_command_arrives(broker: Mosquitto) -> None:
    """More than is taken without a promise: the connection stays, and what has one comes through."""
    async with running(broker) as transport:
        await subscribed(broker, transport)
        publish(broker.port, *((b"flood", []) for _ in range(1_200)), qos=0)
        await until(lambda: transport._queue.qsize() == 100)
        publish(broker.port, (b"flood", []), qos=0)
        for _ in range(90):
            transport._queue.get_nowait().ack()
        publish(broker.port, (b"good", []))
        await until(lambda: arrived(transport)[-1].wire.payload == b"good")

        assert (transport.generation, transport.connected) == (1, True)
