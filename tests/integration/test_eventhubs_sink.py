"""The Event Hubs sink: the unmodified client library over a socket, with the broker's misdeeds."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.core import cloudevents
from bridge.core.cloudevents import CloudEvent
from bridge.errors import ConfigError, SinkRejected, SinkUnavailable
from bridge.transports import Outgoing
from bridge.transports.eventhubs.sink import EventHubsSink
from tests.support.eventhubs_server import StoredEvent
from tests.support.transport_harness import EVENTS_HUB, VM, EventHubsHarness
from tests.support.waiting import until

# The client library does not close every connection that was cut off under it.
pytestmark = pytest.mark.filterwarnings("ignore:(?i)unclosed|loop is closed:ResourceWarning")


@pytest.fixture
async def hubs(tmp_path: Path) -> AsyncIterator[EventHubsHarness]:
    async with EventHubsHarness(tmp_path).open() as harness:
        yield harness


@pytest.fixture(autouse=True)
def leaks_of_the_client() -> Iterator[None]:
    """Meet the sockets that the client library forgets, while their warnings are still ignored."""
    yield
    gc.collect()


def cloudevent(name: str, data: str = '{"a":1}') -> CloudEvent:
    return CloudEvent(
        specversion="1.0",
        id=name,
        source="/subscriptions/s/vm",
        type="io.sebridge.event.scheduled.v1",
        subject="E-1",
        time="2026-01-01T00:00:00Z",
        sequence="00000000000000000007",
        partitionkey=VM,
        correlationid="E-1",
        datacontenttype="application/json",
        data=msgspec.Raw(data.encode()),
    )


def rows(*numbers: int, data: str = '{"a":1}') -> list[Outgoing]:
    return [
        Outgoing(
            sequence=number,
            channel="events",
            event_id="E-1",
            cloudevent=cloudevents.encode(cloudevent(f"e{number}", data)),
        )
        for number in numbers
    ]


def stored(hubs: EventHubsHarness) -> list[StoredEvent]:
    return hubs.server.hub(EVENTS_HUB).events()


async def settled(sink: EventHubsSink) -> str:
    """The first problem of a sink that was just started."""
    task = asyncio.create_task(sink.run())
    try:
        await until(lambda: sink.problem != "not connected yet")
        return sink.problem
    finally:
        await sink.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_structured_message_carries_the_event_and_its_ids(hubs: EventHubsHarness) -> None:
    """Content type, ids and partition key are where any consumer looks for them."""
    async with hubs.sink() as sink:
        await sink.publish(rows(1))

    (event,) = stored(hubs)
    assert event.content_type == "application/cloudevents+json; charset=utf-8"
    assert event.body == cloudevents.encode(cloudevent("e1"))
    assert (event.message_id, event.correlation_id, event.partition_key) == ("e1", "E-1", VM)


async def test_binary_message_has_attributes_as_properties(hubs: EventHubsHarness) -> None:
    """The AMQP binding's binary mode: data in the body, every attribute a prefixed string."""
    async with hubs.sink(content_mode="binary") as sink:
        await sink.publish(rows(1))

    (event,) = stored(hubs)
    attributes = cloudevents.attributes(cloudevent("e1"))
    assert event.content_type == "application/json"
    assert event.body == b'{"a":1}'
    assert event.application_properties == {f"cloudEvents_{k}": v for k, v in attributes.items()}


async def test_large_outbox_goes_in_as_many_messages_as_it_needs(hubs: EventHubsHarness) -> None:
    """A hundred rows of two kilobytes pass a limit of sixty, in order and in one partition."""
    async with hubs.sink() as sink:
        await sink.publish(rows(*range(100), data=f'"{"x" * 2000}"'))

    assert hubs.server.counters.batches > 3
    assert [f"e{number}" for number in range(100)] == [event.message_id for event in stored(hubs)]
    assert len({event.partition for event in stored(hubs)}) == 1


@pytest.mark.parametrize("moment", ["before_store", "before_settle", "after_settle"])
async def test_connection_killed_around_the_ack_loses_and_reorders_nothing(
    hubs: EventHubsHarness, moment: Any
) -> None:
    """What the service may or may not have stored is sent again, under the same ids."""
    async with hubs.sink() as sink:
        await sink.publish(rows(1))
        hubs.server.faults.kill(moment, times=1)
        remaining = rows(2, 3)
        while remaining:
            try:
                await sink.publish(remaining)
                remaining = []
            except SinkUnavailable as error:
                remaining = remaining[error.delivered :]
                await until(lambda: not sink.problem)
        await sink.publish(rows(4))

    seen = [event.message_id for event in stored(hubs)]
    assert ["e1", "e2", "e3", "e4"] == list(dict.fromkeys(seen))
    assert len(seen) in {4, 6}


async def test_missing_ack_is_given_up_in_time(hubs: EventHubsHarness) -> None:
    """The library would wait for ever; after our limit the connection goes and a new one comes."""
    async with hubs.sink(send_timeout_s=0.5) as sink:
        hubs.server.faults.drop(times=None)
        with pytest.raises(SinkUnavailable, match="no answer in time"):
            async with asyncio.timeout(5):
                await sink.publish(rows(1))
        hubs.server.faults.clear()
        await until(lambda: not sink.problem)
        await sink.publish(rows(1))

    assert ["e1"] == [event.message_id for event in stored(hubs)]


async def test_login_without_an_answer_is_given_up_in_time(hubs: EventHubsHarness) -> None:
    """A token that nobody answers would hang the library; the sink says so and tries again."""
    hubs.server.faults.drop_token(times=1)
    sink = EventHubsSink(hubs.config(connect_timeout_s=0.7), vm_name=VM)
    task = asyncio.create_task(sink.run())
    await until(lambda: sink.problem != "not connected yet")
    first = sink.problem
    await until(lambda: not sink.problem)
    await sink.close()
    await task

    assert "no answer in time" in first


async def test_busy_service_is_asked_again_and_keeps_the_row(hubs: EventHubsHarness) -> None:
    """Throttling is the service's problem, not the message's."""
    async with hubs.sink() as sink:
        hubs.server.faults.refuse("com.microsoft:server-busy", times=2)
        with pytest.raises(SinkUnavailable, match="busy"):
            await sink.publish(rows(1))
        await sink.publish(rows(1))
        problem = sink.problem

    assert problem == ""
    assert ["e1"] == [event.message_id for event in stored(hubs)]


async def test_refused_row_stays_and_is_found_among_others(hubs: EventHubsHarness) -> None:
    """A refusal of many is narrowed down to one; it is not thrown away, so it is not permanent."""
    async with hubs.sink() as sink:
        hubs.server.faults.refuse("com.microsoft:argument-error", times=2)
        with pytest.raises(SinkRejected) as caught:
            await sink.publish(rows(1, 2, 3))
        transfers = hubs.server.counters.transfers
        await sink.publish(rows(1, 2, 3))

    assert (caught.value.delivered, caught.value.permanent) == (0, False)
    assert "refused by the test" in str(caught.value)
    assert hubs.server.counters.transfers == transfers + 2  # one alone, then the rest
    assert ["e1", "e2", "e3"] == [event.message_id for event in stored(hubs)]


async def test_unchanged_status_is_not_repeated_before_its_time(hubs: EventHubsHarness) -> None:
    """A hub keeps everything, so only news and a slow heartbeat go there."""

    def status(number: int, word: str) -> CloudEvent:
        data = {"status": word, "outbox": number}
        raw = msgspec.Raw(msgspec.json.encode(data))
        return msgspec.structs.replace(cloudevent(f"s{number}"), data=raw)

    async with hubs.sink() as sink:
        for number, word in enumerate(("online", "online", "blind", "blind", "online")):
            await sink.publish_status(status(number, word))
    async with hubs.sink(heartbeat_s=0.001) as sink:
        for number in (10, 11):
            await sink.publish_status(status(number, "online"))
            await asyncio.sleep(0.01)

    assert ["s0", "s2", "s4", "s10", "s11"] == [event.message_id for event in stored(hubs)]


async def test_wrong_key_says_so_and_a_corrected_file_is_enough(
    hubs: EventHubsHarness, tmp_path: Path
) -> None:
    """Rotated keys need no restart: the file is read again for each connection."""
    wrong = tmp_path / "wrong"
    wrong.write_text(hubs.server.connection_string(key="d3Jvbmc="))
    sink = EventHubsSink(hubs.config(connection_string_file=str(wrong)), vm_name=VM)
    task = asyncio.create_task(sink.run())
    await until(lambda: "key" in sink.problem)
    problem = sink.problem
    wrong.write_text(hubs.server.connection_string())
    await until(lambda: not sink.problem)
    await sink.publish(rows(1))
    await sink.close()
    await task

    assert "refuses the key for hub scheduled-events" in problem
    assert "Copy the connection string again" in problem
    assert len(stored(hubs)) == 1


async def test_key_without_the_right_names_the_right(
    hubs: EventHubsHarness, tmp_path: Path
) -> None:
    """A listen-only key is told apart from a wrong one."""
    hubs.server.add_key("listener", "bGlzdGVu", rights=("Listen",))
    file = tmp_path / "listener"
    file.write_text(hubs.server.connection_string(key_name="listener"))

    problem = await settled(
        EventHubsSink(hubs.config(connection_string_file=str(file)), vm_name=VM)
    )

    assert "the key may not use hub scheduled-events" in problem
    assert "the right Send" in problem


async def test_unknown_hub_is_named(hubs: EventHubsHarness) -> None:
    """The text says which hub is missing, and where its name is set."""
    problem = await settled(EventHubsSink(hubs.config(events_hub="nowhere"), vm_name=VM))

    assert "knows no hub nowhere" in problem
    assert "eventhubs.events_hub" in problem


async def test_closed_port_points_to_the_network(hubs: EventHubsHarness) -> None:
    """Nobody listens: the text names the host and the way through a firewall."""
    await hubs.server.stop()

    problem = await settled(EventHubsSink(hubs.config(), vm_name=VM))

    assert f"no connection to 127.0.0.1:{hubs.server.port}" in problem
    assert 'eventhubs.transport = "websocket"' in problem


async def test_connection_string_that_is_none_is_explained(
    hubs: EventHubsHarness, tmp_path: Path
) -> None:
    """Rubbish in the file is told apart from a network problem, and is not shown."""
    file = tmp_path / "rubbish"
    file.write_text("Endpoint=sb://h.example/;SharedAccessKeyName=hush")

    problem = await settled(
        EventHubsSink(hubs.config(connection_string_file=str(file)), vm_name=VM)
    )

    assert "the connection string cannot be used" in problem
    assert "hush" not in problem


async def test_missing_connection_string_file_stops_the_start(hubs: EventHubsHarness) -> None:
    """At the start it is a configuration error."""
    with pytest.raises(ConfigError, match=r"eventhubs.connection_string_file: cannot read"):
        EventHubsSink(hubs.config(connection_string_file="/nowhere"), vm_name=VM)


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # the library's
async def test_websocket_carries_the_same_messages(tmp_path: Path) -> None:
    """Where only port 443 is open, AMQP goes through WebSockets."""
    async with EventHubsHarness(tmp_path, websocket=True).open() as hubs:
        endpoint = hubs.server.websocket_endpoint.removeprefix("sb://")
        async with hubs.sink(transport="websocket", endpoint=endpoint) as sink:
            await sink.publish(rows(1))

        assert ["e1"] == [event.message_id for event in stored(hubs)]
