"""`watch` and `approve` over Event Hubs, and over two transports at once."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge import consumer, feed_choice
from bridge.config import Commands, Config, Events
from bridge.errors import BridgeError
from bridge.feeds.eventhubs import EventHubsFeed
from bridge.feeds.mixed import MixedFeed
from tests.support.transport_harness import COMMANDS_HUB, EVENTS_HUB, VM, EventHubsHarness
from tests.support.waiting import until

EVENT_ID = "602D9444-D2CD-49C7-8624-8643E7171297"

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


def config(hubs: EventHubsHarness, **options: Any) -> Config:
    return Config(
        events=Events(sinks=("eventhubs",)),
        commands=Commands(source="eventhubs"),
        eventhubs=hubs.config(**options),
    )


def publish(hubs: EventHubsHarness, kind: str, data: dict[str, Any], **attributes: Any) -> None:
    event = {
        "specversion": "1.0",
        "id": kind,
        "source": "/vms/web_3",
        "type": f"io.sebridge.{kind}.v1",
        "time": "2026-11-18T06:00:00Z",
        "partitionkey": VM,
        "data": data,
        **attributes,
    }
    hubs.server.hub(EVENTS_HUB).put(msgspec.json.encode(event), partition_key=VM)


def scheduled(hubs: EventHubsHarness) -> None:
    data = {
        "transition": "scheduled",
        "event": {"EventId": EVENT_ID, "EventType": "Reboot", "Resources": [VM]},
        "vm": {"name": VM},
        "leader": True,
        "approval": {"topic": COMMANDS_HUB, "token": "t-1", "state": "none"},
    }
    publish(hubs, "event.scheduled", data, subject=EVENT_ID)


async def test_approve_finds_the_event_in_the_log_and_waits_for_the_outcome(
    hubs: EventHubsHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """The event is read back, the command goes to its VM's partition, the answer is shown."""
    scheduled(hubs)
    request = consumer.ApprovalRequest(event_id=EVENT_ID, reason="drained")
    approving = asyncio.create_task(consumer.approve(feed_choice.make_feed(config(hubs)), request))
    (command,) = await hubs.server.hub(COMMANDS_HUB).wait_for(1, 20)
    sent = msgspec.json.decode(command.body)
    data = {"status": "approved", "idempotencyKey": sent["idempotencykey"]}
    publish(hubs, "approval.approved", data, subject=EVENT_ID, causationid=sent["id"])

    assert await approving == consumer.APPROVED
    assert (sent["data"]["eventId"], sent["data"]["token"]) == (EVENT_ID, "t-1")
    assert command.partition_key == VM
    assert "approved" in capsys.readouterr().out


async def test_watch_prints_what_is_new(
    hubs: EventHubsHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status of now and events from now on; what is past is past."""
    publish(hubs, "approval.rejected", {"status": "rejected", "reason": "expired"})
    publish(hubs, "agent.status", {"status": "online", "vm": {"name": VM}})
    watching = asyncio.create_task(
        consumer.watch(feed_choice.make_feed(config(hubs)), as_json=False)
    )
    printed = ""

    def has(word: str) -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return word in printed

    await until(lambda: has("online"))
    scheduled(hubs)
    await until(lambda: has(EVENT_ID))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)

    assert "expired" not in printed


async def test_approve_without_the_hub_says_what_is_wrong(
    hubs: EventHubsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that cannot read gets the reason and the remedy."""
    monkeypatch.setattr(EventHubsFeed, "settle_s", 3.0)
    feed = feed_choice.make_feed(config(hubs, events_hub="nowhere"))

    with pytest.raises(BridgeError, match="knows no hub nowhere"):
        await consumer.approve(feed, consumer.ApprovalRequest(event_id=EVENT_ID))


@pytest.mark.parametrize(
    ("sinks", "source", "expected"),
    [
        (("eventhubs",), "eventhubs", "EventHubsFeed"),
        (("eventhubs",), "none", "EventHubsFeed"),
        (("eventhubs",), "mqtt", "MixedFeed EventHubsFeed MqttFeed"),
        (("mqtt",), "eventhubs", "MixedFeed MqttFeed EventHubsSender"),
        (("mqtt", "eventhubs"), "eventhubs", "EventHubsFeed"),
        (("mqtt", "eventhubs"), "mqtt", "MqttFeed"),
        (("mqtt", "eventhubs"), "none", "MqttFeed"),
        (("stdout",), "eventhubs", "EventHubsFeed"),
    ],
)
async def test_make_feed_reads_where_events_go_and_sends_where_commands_come_from(
    hubs: EventHubsHarness, sinks: Any, source: Any, expected: str
) -> None:
    """One connection where one is enough; two where the ways differ."""
    feed: Any = feed_choice.make_feed(
        Config(
            events=Events(sinks=sinks), commands=Commands(source=source), eventhubs=hubs.config()
        )
    )
    parts = [feed, feed._reader, feed._sender] if isinstance(feed, MixedFeed) else [feed]

    assert " ".join(type(part).__name__ for part in parts) == expected
