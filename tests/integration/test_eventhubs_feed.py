"""The Event Hubs feed and the doctor's questions: what a consumer and an operator get to see."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config import Commands, Config, Events
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.eventhubs.problems import explain
from bridge.feeds import Feed, Received
from bridge.feeds.eventhubs import EventHubsFeed, EventHubsSender
from bridge.feeds.mixed import MixedFeed
from bridge.transports.eventhubs.check import check
from tests.support.eventhubs_server import Hub
from tests.support.transport_harness import (
    COMMANDS_HUB,
    EVENTS_HUB,
    VM,
    EventHubsHarness,
)
from tests.support.waiting import until

# The client library does not close every connection that was cut off under it.
pytestmark = pytest.mark.filterwarnings("ignore:(?i)unclosed|loop is closed:ResourceWarning")


@pytest.fixture
async def hubs(tmp_path: Path) -> AsyncIterator[EventHubsHarness]:
    async with EventHubsHarness(tmp_path).open() as harness:
        yield harness


@pytest.fixture
def hub(hubs: EventHubsHarness) -> Hub:
    return hubs.server.hub(EVENTS_HUB)


@pytest.fixture(autouse=True)
def leaks_of_the_client() -> Iterator[None]:
    """Meet the sockets that the client library forgets, while their warnings are still ignored."""
    yield
    gc.collect()


def put(hub: Hub, kind: str, vm: str = VM, subject: str = "", **how: Any) -> bytes:
    """One CloudEvent of one agent, in its partition."""
    event = {
        "specversion": "1.0",
        "id": f"{vm}-{kind}-{subject}-{len(hub.events())}",
        "source": f"/vms/{vm}",
        "type": f"io.sebridge.{kind}.v1",
        "datacontenttype": "application/json",
        "data": {"kind": kind},
    }
    if subject:
        event["subject"] = subject
    body = msgspec.json.encode(event)
    hub.put(body, partition_key=vm, **how)
    return body


@asynccontextmanager
async def reading(feed: Feed) -> AsyncIterator[Feed]:
    task = asyncio.create_task(feed.run())
    try:
        await until(lambda: not feed.problem)
        yield feed
    finally:
        await feed.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def take(feed: Feed, count: int) -> list[Received]:
    async with asyncio.timeout(20):
        return [await anext(feed.received()) for _ in range(count)]


async def test_what_is_pending_is_folded_before_anything_new(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """Ended events are gone, of the others the newest word counts, and outcomes of old are past."""
    put(hub, "event.scheduled", subject="E-over")
    put(hub, "event.scheduled", subject="E-1")
    put(hub, "agent.status", vm="web_4")
    put(hub, "approval.approved", subject="E-1")
    newest = put(hub, "event.updated", subject="E-1")
    put(hub, "event.completed", subject="E-over")
    status = put(hub, "agent.status")
    other = put(hub, "agent.status", vm="web_4")

    async with reading(EventHubsFeed(hubs.config())) as feed:
        retained = await take(feed, 3)
        live = put(hub, "approval.confirmed", subject="E-1")
        (news,) = await take(feed, 1)

    assert {(each.channel, each.agent, each.payload) for each in retained} == {
        ("status", "/vms/web_3", status),
        ("status", "/vms/web_4", other),
        ("pending", "/vms/web_3", newest),
    }
    assert retained[-1].event_id == "E-1"
    assert news == Received(channel="outcomes", agent="/vms/web_3", payload=live)


async def test_news_of_an_event_is_also_what_is_pending(hubs: EventHubsHarness, hub: Hub) -> None:
    """Consumers get what MQTT would give them: the event, and the retained state that follows."""
    async with reading(EventHubsFeed(hubs.config())) as feed:
        scheduled = put(hub, "event.scheduled", subject="E-1")
        ended = put(hub, "event.ended", subject="E-1")
        received = await take(feed, 4)

    assert [(each.channel, each.payload, each.event_id) for each in received] == [
        ("events", scheduled, ""),
        ("pending", scheduled, "E-1"),
        ("events", ended, ""),
        ("pending", b"", "E-1"),
    ]


async def test_only_the_lookback_is_read(hubs: EventHubsHarness, hub: Hub) -> None:
    """What is older than the option says is not pending for this consumer."""
    old = datetime.now(UTC) - timedelta(hours=2)
    put(hub, "event.scheduled", subject="E-old", enqueued_at=old)
    put(hub, "event.scheduled", vm="web_9", subject="E-old", enqueued_at=old)
    put(hub, "event.scheduled", subject="E-new")

    async with reading(EventHubsFeed(hubs.config(lookback_s=3600))) as feed:
        (only,) = await take(feed, 1)
        rest = feed._queue.qsize()  # type: ignore[attr-defined]

    assert (only.event_id, rest) == ("E-new", 0)


async def test_binary_events_come_structured_and_rubbish_not_at_all(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """A feed speaks one form only, and is not disturbed by other people's messages."""
    hub.put(b"rubbish")
    hub.put(b'{"type": "io.sebridge.event.scheduled.v1", "source": "\xff"}')
    hub.put(b'{"source":1,"type":[]}')
    hub.put(b"[" * 5000)
    hub.put(b'{"source":"/x","type":"com.example.other"}')
    attributes = {"id": "1", "source": "/vms/a", "type": "io.sebridge.agent.status.v1"}
    hub.put(
        b'{"status":"online"}',
        content_type="application/json",
        application_properties={f"cloudEvents_{name}": text for name, text in attributes.items()},
    )

    async with reading(EventHubsFeed(hubs.config())) as feed:
        (only,) = await take(feed, 1)

    assert only.channel == "status"
    assert msgspec.json.decode(only.payload) == {
        **attributes,
        "datacontenttype": "application/json",
        "data": {"status": "online"},
    }


async def test_outage_repeats_and_loses_nothing(hubs: EventHubsHarness, hub: Hub) -> None:
    """After a reconnect reading goes on behind the last message."""
    async with reading(EventHubsFeed(hubs.config())) as feed:
        put(hub, "approval.approved", subject="1")
        first = await take(feed, 1)
        await hubs.server.stop()
        await until(lambda: feed.problem)
        put(hub, "approval.approved", subject="2")
        await hubs.server.start()
        await until(lambda: not feed.problem)
        put(hub, "approval.approved", subject="3")
        rest = await take(feed, 2)

    subjects = [msgspec.json.decode(each.payload)["subject"] for each in (*first, *rest)]
    assert ["1", "2", "3"] == subjects


async def test_send_puts_the_command_into_the_partition_of_its_vm(
    hubs: EventHubsHarness, hub: Hub
) -> None:
    """The VM's name is the key, so that the agent knows it is meant."""
    feed = EventHubsFeed(hubs.config())
    await feed.send(COMMANDS_HUB, VM, b'{"id":"1"}')
    with pytest.raises(SinkRejected, match="is not the commands hub"):
        await feed.send("sebridge/v1/rg/web_3/commands", VM, b"{}")
    await hubs.server.stop()
    with pytest.raises(SinkUnavailable, match="no connection"):
        await feed.send(COMMANDS_HUB, VM, b"{}")
    await feed.close()

    (command,) = hubs.server.hub(COMMANDS_HUB).events()
    assert (command.body, command.partition_key) == (b'{"id":"1"}', VM)
    assert command.content_type == "application/cloudevents+json; charset=utf-8"


async def test_sender_alone_opens_no_reader(hubs: EventHubsHarness) -> None:
    """A consumer that reads MQTT does not take a place in a consumer group."""
    reader, sender = EventHubsFeed(hubs.config()), EventHubsSender(hubs.config())
    async with reading(MixedFeed(reader, sender)) as feed:
        await until(lambda: hubs.server.receivers(EVENTS_HUB) == 2)
        await feed.send(COMMANDS_HUB, VM, b"{}")
        readers = hubs.server.receivers(EVENTS_HUB), hubs.server.receivers(COMMANDS_HUB)

    assert (readers, feed.settle_s) == ((2, 0), 20.0)


async def test_mixed_feed_reads_here_and_sends_there(hubs: EventHubsHarness, hub: Hub) -> None:
    """Two transports at once: the sender's own messages are not the reader's."""
    elsewhere = hubs.server.add_hub("elsewhere")
    reader = EventHubsFeed(hubs.config())
    sender = EventHubsFeed(hubs.config(events_hub="elsewhere", commands_hub=COMMANDS_HUB))
    async with reading(MixedFeed(reader, sender)) as feed:
        put(elsewhere, "agent.status", vm="other")
        wanted = put(hub, "agent.status")
        (received,) = await take(feed, 1)
        await feed.send(COMMANDS_HUB, VM, b"{}")

    assert received.payload == wanted
    assert len(hubs.server.hub(COMMANDS_HUB).events()) == 1


def whole(hubs: EventHubsHarness, **options: Any) -> Config:
    return Config(
        events=Events(sinks=("eventhubs",)),
        commands=Commands(source="eventhubs"),
        eventhubs=hubs.config(**options),
    )


async def test_check_says_what_works(hubs: EventHubsHarness) -> None:
    """Login, sending and reading, without a trace in the hubs."""
    results = await check(whole(hubs))

    assert [(each.name, each.ok, each.remedy) for each in results] == [
        ("eventhubs login", True, ""),
        ("events hub", True, ""),
        ("commands hub", True, ""),
    ]
    assert not hubs.seen()


def test_explain_takes_a_port_for_no_status() -> None:
    """A port such as 40401 in the operating system's words is neither a 401 nor a 404."""
    refused = OSError("Connect call failed ('127.0.0.1', 40401)")
    problem = explain(refused, hub="h", host="n", by_identity=False)

    assert "port 5671" in problem.remedy


async def test_check_names_each_failure_and_its_remedy(
    hubs: EventHubsHarness, tmp_path: Path
) -> None:
    """Unknown hub, unknown group, wrong key, closed port: each has its own words."""
    wrong = tmp_path / "wrong"
    wrong.write_text(hubs.server.connection_string(key="d3Jvbmc="))

    hub_missing, group_missing, key_wrong, file_missing = await asyncio.gather(
        check(whole(hubs, events_hub="nowhere")),
        check(whole(hubs, consumer_group="nobody")),
        check(whole(hubs, connection_string_file=str(wrong))),
        check(whole(hubs, connection_string_file=str(tmp_path / "missing"))),
    )
    await hubs.server.stop()
    port_closed = await check(whole(hubs))

    assert "knows no hub nowhere" in hub_missing[1].text
    assert "Create the hub" in hub_missing[1].remedy
    assert hub_missing[2].ok
    assert "cannot be read in consumer group nobody" in group_missing[2].text
    assert [False, False] == [each.ok for each in key_wrong[1:]]
    assert all("the key is wrong" in each.remedy for each in key_wrong[1:])
    assert "cannot read" in file_missing[0].text
    assert [False, False] == [each.ok for each in port_closed[1:]]
    assert all("port 5671" in each.remedy for each in port_closed[1:])
