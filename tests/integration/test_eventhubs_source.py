"""The Event Hubs command source: where it starts, what it skips, and what it never loses."""

import asyncio
import gc
from collections.abc import AsyncIterator, Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.transports import ConnectedSource, Incoming
from bridge.transports.eventhubs.source import EventHubsSource
from tests.support.eventhubs_server import Hub
from tests.support.eventhubs_server.codec import Array, Symbol, Timestamp, encode
from tests.support.eventhubs_server.messages import Message, Section
from tests.support.transport_harness import COMMANDS_HUB, VM, EventHubsHarness, running
from tests.support.waiting import until

# The client library does not close every connection that was cut off under it.
pytestmark = pytest.mark.filterwarnings("ignore:(?i)unclosed|loop is closed:ResourceWarning")


@pytest.fixture
async def hubs(tmp_path: Path) -> AsyncIterator[EventHubsHarness]:
    async with EventHubsHarness(tmp_path).open() as harness:
        yield harness


@pytest.fixture
def hub(hubs: EventHubsHarness) -> Hub:
    return hubs.server.hub(COMMANDS_HUB)


@pytest.fixture(autouse=True)
def leaks_of_the_client() -> Iterator[None]:
    """Meet the sockets that the client library forgets, while their warnings are still ignored."""
    yield
    gc.collect()


def command(number: int, vm: str | None = VM) -> bytes:
    data: dict[str, Any] = {"eventId": "E-1", "reason": str(number)}
    return msgspec.json.encode({"id": str(number), "data": data | ({"vm": vm} if vm else {})})


async def take(source: ConnectedSource, count: int = 1) -> list[Incoming]:
    async with asyncio.timeout(20):
        return [await anext(source.commands()) for _ in range(count)]


async def payloads(hubs: EventHubsHarness, source: ConnectedSource, count: int = 1) -> list[bytes]:
    taken = []
    for _ in range(count):
        (incoming,) = await take(source)
        hubs.decide(incoming)
        taken.append(incoming.wire.payload)
    return taken


def offsets(hubs: EventHubsHarness) -> dict[str, str]:
    """What is durable, by partition."""
    return {name.rpartition("/")[2]: position for name, position in hubs.offsets.items()}


async def test_first_start_reads_back_as_far_as_commands_are_good(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """Commands sent while the agent was being installed count, those too old do not."""
    now = datetime.now(UTC)
    for number, age_s in enumerate((400, 301, 200, 1)):
        enqueued_at = now - timedelta(seconds=age_s)
        hub.put(command(number), partition="0", enqueued_at=enqueued_at)

    async with hubs.source(now) as source:
        taken = await payloads(hubs, source, 2)

    assert [command(2), command(3)] == taken


async def test_first_start_is_remembered_for_partitions_without_a_command(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """An agent that was away for a day misses nothing, also where it never read a command."""
    long_ago = datetime.now(UTC) - timedelta(days=1)
    async with hubs.source(long_ago):
        pass
    noted = offsets(hubs)
    hub.put(command(1), partition="1", enqueued_at=datetime.now(UTC) - timedelta(hours=2))

    async with hubs.source() as source:
        taken = await payloads(hubs, source)

    assert {"0", "1"} == set(noted)
    assert all(position.startswith("@") for position in noted.values())
    assert [command(1)] == taken


async def test_commands_for_others_are_skipped_without_a_write_each(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """Hundreds of foreign commands advance the position in a handful of transactions."""
    writes: list[Collection[tuple[str, str]]] = []

    def keep(positions: Collection[tuple[str, str]]) -> None:
        writes.append(positions)
        hubs.offsets.update(positions)

    source = EventHubsSource(
        hubs.config(checkpoint_s=0.2),
        vm_name=VM,
        max_age_s=300,
        payload_bytes_max=65_536,
        offset=hubs.offsets.get,
        keep_offsets=keep,
        now=lambda: datetime.now(UTC),
        quiet_s=0.7,
    )
    for number in range(400):
        hub.put(command(number, vm=f"web_{number + 10}"), partition="0")
    async with running(source):
        await until(lambda: offsets(hubs).get("0") == hub.events("0")[-1].offset)

    assert len(writes) < 20
    assert source._queue.empty()


async def test_position_never_passes_an_undecided_command(hubs: EventHubsHarness, hub: Hub) -> None:
    """Foreign commands behind one of ours are not noted as read until ours is decided."""
    before = hub.put(command(0, vm="other"), partition="0")
    hub.put(command(1), partition="0")
    last = hub.put(command(2, vm="other"), partition="0")
    async with hubs.source(checkpoint_s=0.1) as source:
        (ours,) = await take(source)
        await until(lambda: not source.problem)
        await asyncio.sleep(0.3)  # three notes could be taken
        undecided = offsets(hubs)["0"]
        hubs.decide(ours)
        await until(lambda: offsets(hubs)["0"] == last.offset)

    assert undecided.startswith("@") or undecided == before.offset


async def test_rewound_ledger_brings_commands_again(hubs: EventHubsHarness, hub: Hub) -> None:
    """The stored offset alone decides where reading starts."""
    hub.put(command(1), partition="0")
    async with hubs.source() as source:
        await payloads(hubs, source)
    for name in hubs.offsets:
        hubs.offsets[name] = "-1"

    async with hubs.source() as source:
        again = await payloads(hubs, source)

    assert [command(1)] == again


async def test_cut_connections_bring_nothing_twice_and_lose_nothing(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """Three forced reconnects under load: each command once, in order."""
    async with hubs.source() as source:
        taken: list[bytes] = []
        for number in range(90):
            hub.put(command(number), partition="0")
            if number % 30 == 15:
                taken += await payloads(hubs, source, 5)
                hubs.server.kill_connections()
        taken += await payloads(hubs, source, 75)
        hub.put(command(99), partition="0")
        taken += await payloads(hubs, source)

    assert [command(number) for number in (*range(90), 99)] == taken


async def test_slow_intake_holds_the_stream_and_loses_nothing(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """Nobody takes commands for longer than a stall would last: they wait, bounded, in order."""
    for number in range(300):
        hub.put(command(number), partition="0")
    async with hubs.source() as source:
        assert isinstance(source, EventHubsSource)
        await until(source._queue.full)
        connections = hubs.server.counters.connections
        await asyncio.sleep(4 * 0.7 + 1)  # a silent partition is given up after four quiet times
        waiting = source._queue.qsize()
        taken = await payloads(hubs, source, 300)

    assert waiting == 16
    assert connections == hubs.server.counters.connections
    assert [command(number) for number in range(300)] == taken


async def test_reconnect_while_the_queue_is_full_loses_nothing(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """The command that did not fit when the connection went comes again with the next one."""
    for number in range(40):
        hub.put(command(number), partition="0")
    async with hubs.source() as source:
        assert isinstance(source, EventHubsSource)
        await until(source._queue.full)
        hubs.server.kill_connections()
        await until(lambda: bool(source.problem))
        taken = await payloads(hubs, source, 40)

    assert [command(number) for number in range(40)] == taken


async def test_two_agents_of_one_group_both_get_everything(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """Nobody reads with an epoch: agents must not evict each other."""
    one = hubs.make_source()
    other = hubs.make_source()
    async with running(one), running(other):
        hub.put(command(1), partition="0")
        taken = [(await take(source))[0].wire.payload for source in (one, other)]

    assert [command(1), command(1)] == taken
    assert not hubs.server.counters.links_refused


async def test_partition_key_addresses_what_names_no_vm(hubs: EventHubsHarness, hub: Hub) -> None:
    """`data.vm` first, then the key, in any case; a command for nobody is nobody's."""
    hub.put(command(1, vm=None), partition_key="WEB_3")
    hub.put(command(2, vm="web_4"), partition_key=VM)
    hub.put(command(3, vm=None), partition_key="web_4")
    hub.put(command(4, vm=None))
    hub.put(command(5, vm="Web_3"), partition_key="web_4")
    hub.put(b"rubbish", partition_key=VM)
    hub.put(b"rubbish")
    async with hubs.source() as source:
        taken = set(await payloads(hubs, source, 3))
        await until(lambda: not source.problem)
        assert isinstance(source, EventHubsSource)
        nothing_more = source._queue.empty()

    assert {command(1, vm=None), command(5, vm="Web_3"), b"rubbish"} == taken
    assert nothing_more


def section(code: Section, encoded: bytes) -> bytes:
    return b"\x00\x53" + bytes([code]) + encoded


DATA = section(Section.DATA, encode(command(1)))
# A map of one pair, whose value is the AMQP char "A": the client library knows no such type.
CHAR = b"\xc1\x08\x02" + b"\xa1\x00" + b"\x73\x00\x00\x00A"
LIST_AS_KEY = b"\xc1\x03\x02" + b"\x45\x41"
DEEP_LIST = b"\xc0\xff\x01" * 3000 + b"\x40"
# Of four billion values: lists get their room in advance, and a null takes no byte.
HUGE_LIST = b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff"
HUGE_ARRAY = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"


@pytest.mark.parametrize(
    "bare",
    [
        section(Section.DATA, encode(b'{"data":{"vm":"web\xff"}}')),
        section(Section.DATA, encode(7)),
        section(Section.APPLICATION_PROPERTIES, CHAR) + DATA,
        section(Section.VALUE, encode("web_3")),
        section(Section.VALUE, LIST_AS_KEY),
        section(Section.VALUE, DEEP_LIST),
        section(Section.VALUE, HUGE_LIST),
        section(Section.VALUE, HUGE_ARRAY),
        section(Section.SEQUENCE, encode([1, 2])),
        section(Section.PROPERTIES, encode([None] * 20)) + DATA,
        b"",
        b"rubbish",
    ],
)
async def test_event_that_cannot_be_read_stops_nobody(
    hubs: EventHubsHarness, hub: Hub, bare: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told of and passed over for good, on the connection that brought it."""
    hub.partitions["0"].append(Message(bare=bare), datetime.now(UTC))
    hub.put(command(2), partition="0")
    async with hubs.source() as source:
        taken = await payloads(hubs, source)

    assert [command(2)] == taken
    assert hub.events("0")[-1].offset == offsets(hubs)["0"]
    assert "offset 0 cannot be read" in caplog.text
    assert not source.problem


async def test_unreadable_annotation_of_a_sender_hides_no_position(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """What the service wrote on an event is found among what a stranger wrote there."""
    stranger = Message(annotations={Symbol("x-odd"): {(): 1}}, bare=DATA)
    hub.partitions["0"].append(stranger, datetime.now(UTC))
    hub.put(command(2), partition="0")
    async with hubs.source() as source:
        taken = await payloads(hubs, source)

    assert [command(2)] == taken


async def test_odd_properties_and_keys_are_read_as_text(hubs: EventHubsHarness, hub: Hub) -> None:
    """A property of any type becomes some text, and the command arrives."""
    odd = {
        "cloudEvents_a": [[1]],
        "cloudEvents_b": {"x": 1},
        "cloudEvents_c": 2.5,
        "cloudEvents_d": Array(["x", "yz"]),
        "cloudEvents_e": Array([1, 2]),
        "\ufeff": True,
    }
    hub.put(command(1), partition="0", application_properties=odd, content_type=7)
    async with hubs.source() as source:
        (incoming,) = await take(source)

    found = dict(incoming.wire.attributes)
    assert {"a": "", "b": "", "c": "2.5", "d": "", "e": ""} == found
    assert "7" == incoming.wire.content_type


@pytest.mark.parametrize("prefix", ["cloudEvents_", "cloudEvents:"])
async def test_binary_command_keeps_its_attributes(
    hubs: EventHubsHarness, hub: Hub, prefix: str
) -> None:
    """Both prefixes of the binding are read, and native AMQP types become canonical strings."""
    attributes: dict[str, Any] = {
        "specversion": "1.0",
        "id": "c-1",
        "source": "/ops",
        "type": "io.sebridge.approve.v1",
        "expirytime": Timestamp(int(datetime(2026, 11, 18, 6, tzinfo=UTC).timestamp() * 1000)),
        "flag": True,
    }
    properties = {f"{prefix}{name}": value for name, value in attributes.items()}
    hub.put(
        b'{"vm":"web_3","eventId":"E-1"}',
        application_properties={**properties, "unrelated": 7},
        content_type="application/json",
    )
    async with hubs.source() as source:
        (incoming,) = await take(source)

    assert dict(incoming.wire.attributes) == {
        **attributes,
        "expirytime": "2026-11-18T06:00:00.000Z",
        "flag": "true",
    }
    assert incoming.wire.content_type == "application/json"


async def test_hub_that_was_made_anew_is_read_from_a_moment_ago(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """The old hub's offset is refused for ever; the source notices and starts over."""
    name = f"127.0.0.1:{hubs.server.port}/{COMMANDS_HUB}"
    hubs.offsets.update({f"{name}/0": "123456789", f"{name}/1": "@2026-01-01T00:00:00+00:00"})
    hub.put(command(1), partition="0")

    async with hubs.source(quiet_s=1.5) as source:
        taken = await payloads(hubs, source)

    assert [command(1)] == taken
    assert hubs.server.counters.links_refused


async def test_unknown_group_is_explained(hubs: EventHubsHarness) -> None:
    """The library keeps a refused link to itself; the source says what to look at."""
    source = hubs.make_source(quiet_s=1.5, consumer_group="nobody")
    task = asyncio.create_task(source.run())
    await until(lambda: "consumer group nobody" in source.problem)
    problem = source.problem
    await source.close()
    await task

    assert "no more than five readers" in problem
    assert "Azure Event Hubs Data Receiver" in problem


async def test_unknown_hub_is_explained(hubs: EventHubsHarness) -> None:
    """A missing commands hub shows at once."""
    source = hubs.make_source(commands_hub="nowhere")
    task = asyncio.create_task(source.run())
    await until(lambda: "knows no hub nowhere" in source.problem)
    await source.close()

    await task
