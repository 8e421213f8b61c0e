"""What every transport promises, told once and kept by each: MQTT, Event Hubs and standard output.

The same suite runs against Microsoft's Event Hubs emulator with `make test-emulator`.
"""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.core.cloudevents import CloudEvent, encode
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.transports import ConnectedSource, Incoming, Outgoing
from tests.support.transport_harness import (
    MESSAGE_BYTES_MAX,
    EmulatorHarness,
    EventHubsHarness,
    Harness,
    MqttHarness,
    StdoutHarness,
)
from tests.support.waiting import until

EMULATOR = "SEBRIDGE_TEST_EMULATOR"

# The client library does not close every connection that was cut off under it.
pytestmark = pytest.mark.filterwarnings("ignore:(?i)unclosed|loop is closed:ResourceWarning")


@pytest.fixture(params=["mqtt", "eventhubs", "stdout", "emulator"])
async def harness(
    request: pytest.FixtureRequest, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> AsyncIterator[Harness]:
    made: Any
    match request.param:
        case "mqtt":
            made = MqttHarness(tmp_path)
        case "eventhubs":
            made = EventHubsHarness(tmp_path)
        case "stdout":
            made = StdoutHarness(lambda: capfdbinary.readouterr().out)
        case "emulator":
            if not os.environ.get(EMULATOR):
                pytest.skip("no Event Hubs emulator: `make test-emulator` starts one")
            made = EmulatorHarness(tmp_path, os.environ[EMULATOR])
    async with made.open() as opened:
        yield opened


@pytest.fixture(autouse=True)
def leaks_of_the_client() -> Iterator[None]:
    """Meet the sockets that the client library forgets, while their warnings are still ignored."""
    yield
    gc.collect()


def cloudevent(name: str, data: str = "{}") -> CloudEvent:
    return CloudEvent(
        specversion="1.0",
        id=name,
        source="/vm",
        type="io.sebridge.event.scheduled.v1",
        time="2026-01-01T00:00:00Z",
        datacontenttype="application/json",
        data=msgspec.Raw(data.encode()),
    )


def status(name: str) -> CloudEvent:
    data = b'{"status":"%s"}' % name.encode()
    return msgspec.structs.replace(cloudevent(name), data=msgspec.Raw(data))


def rows(*numbers: int, data: str = "{}") -> list[Outgoing]:
    return [
        Outgoing(
            sequence=number,
            channel="events",
            event_id=f"id{number}",
            cloudevent=encode(cloudevent(f"e{number}", data)),
        )
        for number in numbers
    ]


def ids(harness: Harness) -> list[str]:
    return [event["id"] for event in harness.seen()]


async def take(source: ConnectedSource, count: int) -> list[Incoming]:
    async with asyncio.timeout(20):
        return [await anext(source.commands()) for _ in range(count)]


def needs(condition: bool, why: str) -> None:
    if not condition:
        pytest.skip(why)


async def test_publish_returns_with_every_row_delivered_in_order(harness: Harness) -> None:
    """What publish returned for is there, all of it, in the order of the outbox."""
    async with harness.sink() as sink:
        await sink.publish(rows(*range(1, 101)))
        await sink.publish(rows(101))
        await until(lambda: len(ids(harness)) == 101)

    assert [f"e{number}" for number in range(1, 102)] == ids(harness)


async def test_publish_again_keeps_the_ids(harness: Harness) -> None:
    """A row that is sent twice can be recognised by its id."""
    async with harness.sink() as sink:
        await sink.publish(rows(1, 2))
        await sink.publish(rows(2, 3))
        await until(lambda: len(ids(harness)) == 4)

    assert ["e1", "e2", "e2", "e3"] == ids(harness)


async def test_publish_nothing_is_nothing(harness: Harness) -> None:
    """An empty batch sends no message."""
    async with harness.sink() as sink:
        await sink.publish([])
        await sink.publish(rows(1))
        await until(lambda: ids(harness))

    assert ["e1"] == ids(harness)


async def test_oversize_row_is_refused_for_ever_and_holds_back_none(harness: Harness) -> None:
    """The refusal counts the rows before it, which are safe; those behind go when asked again."""
    needs(harness.has_limit, "no limit to run into")
    huge = rows(3, data=f'{{"x":"{"y" * MESSAGE_BYTES_MAX}"}}')
    batch = [*rows(1, 2), *huge, *rows(4)]

    async with harness.sink() as sink:
        with pytest.raises(SinkRejected) as caught:
            await sink.publish(batch)
        await sink.publish(batch[caught.value.delivered + 1 :])
        await until(lambda: "e4" in ids(harness))

    assert caught.value.permanent
    assert caught.value.delivered == 2
    assert ["e1", "e2", "e4"] == ids(harness)


async def test_broker_away_fails_the_publish_and_it_succeeds_when_it_is_back(
    harness: Harness,
) -> None:
    """An outage is an error with a text, and nothing else: the same sink goes on after it."""
    needs(harness.can_stop, "cannot be away")
    async with harness.sink() as sink:
        await sink.publish(rows(1))
        await harness.stop()
        with pytest.raises(SinkUnavailable) as caught:
            async with asyncio.timeout(20):
                await sink.publish(rows(2))
        problem = sink.problem
        await harness.start()
        await until(lambda: not sink.problem)
        await sink.publish(rows(2))
        await until(lambda: "e2" in ids(harness))

    assert caught.value.delivered == 0
    assert problem
    assert ["e1", "e2"] == list(dict.fromkeys(ids(harness)))


async def test_status_is_published_and_never_raises(harness: Harness) -> None:
    """A status arrives; one that cannot be sent is said on the next connection instead."""
    async with harness.sink() as sink:
        await sink.publish_status(status("online"))
        await until(lambda: "online" in ids(harness))
        if harness.can_stop:
            await harness.stop()
            await sink.publish_status(status("blind"))
            await harness.start()
            await until(lambda: "blind" in ids(harness))

    assert ids(harness)[0] == "online"


async def test_commands_arrive_in_order_with_their_bytes(harness: Harness) -> None:
    """What was sent is what the intake gets."""
    needs(harness.takes_commands, "no commands")
    async with harness.source() as source:
        for number in range(50):
            await harness.send(b'{"number":%d}' % number)
        taken = []
        for _ in range(50):
            (incoming,) = await take(source, 1)
            harness.decide(incoming)
            taken.append(incoming.wire.payload)

    assert [b'{"number":%d}' % number for number in range(50)] == taken


async def test_undecided_command_comes_again_and_a_decided_one_does_not(harness: Harness) -> None:
    """A crash between arrival and decision loses nothing; after the decision nothing returns."""
    needs(harness.takes_commands, "no commands")
    async with harness.source() as source:
        await harness.send(b"decided")
        await harness.send(b"undecided")
        first, _ = await take(source, 2)
        harness.decide(first)
        await asyncio.sleep(0)
    async with harness.source() as source:
        (again,) = await take(source, 1)
        harness.decide(again)
        await harness.send(b"last")
        (last,) = await take(source, 1)

    assert b"undecided" == again.wire.payload
    assert b"last" == last.wire.payload


async def test_command_sent_while_the_agent_is_away_arrives(harness: Harness) -> None:
    """The broker keeps it until the agent comes back."""
    needs(harness.takes_commands, "no commands")
    async with harness.source() as source:
        await harness.send(b"first")
        (first,) = await take(source, 1)
        harness.decide(first)
    await harness.send(b"meanwhile")
    async with harness.source() as source:
        (meanwhile,) = await take(source, 1)

    assert b"meanwhile" == meanwhile.wire.payload


async def test_source_survives_an_outage(harness: Harness) -> None:
    """The same source goes on after the broker was away."""
    needs(harness.takes_commands and harness.can_stop, "cannot be away")
    async with harness.source() as source:
        await harness.send(b"before")
        (before,) = await take(source, 1)
        harness.decide(before)
        await harness.stop()
        await until(lambda: source.problem)
        await harness.start()
        await until(lambda: not source.problem)
        await harness.send(b"after")
        (after,) = await take(source, 1)

    assert b"after" == after.wire.payload
