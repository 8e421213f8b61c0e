"""The publisher on a real outbox: order, partial batches, refusals, draining."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from bridge.core.cloudevents import CloudEvent
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.publisher import Publisher
from bridge.store import Draft, Store
from bridge.transports import Outgoing
from tests.fakes import FakeClock, MemorySink


def fill(store: Store, clock: FakeClock, count: int) -> None:
    event = CloudEvent(
        specversion="1.0",
        source="/vm",
        type="t",
        time="2026-11-18T06:00:00Z",
        datacontenttype="application/json",
        data=msgspec.Raw(b"{}"),
    )
    drafts = [Draft(cloudevent=event, event_id=f"event-{number}") for number in range(count)]
    store.record(b"{}", drafts, [], clock.now())


def names(rows: Sequence[Outgoing]) -> list[str]:
    return [row.event_id for row in rows]


async def test_publisher_sends_all_in_order(store: Store, clock: FakeClock) -> None:
    """More rows than one batch holds arrive in order and leave the outbox."""
    sink = MemorySink()
    publisher = Publisher(sink, store, clock)
    fill(store, clock, 250)
    while store.depth("memory"):
        assert await publisher.step() == 0.0

    assert names(sink.rows) == [f"event-{number}" for number in range(250)]
    assert publisher.published == 250


async def test_publisher_marks_only_what_arrived(store: Store, clock: FakeClock) -> None:
    """After a break the next attempt begins with the first row that is not safe."""
    attempts: list[list[str]] = []

    def refuse(batch: Sequence[Outgoing]) -> None:
        attempts.append(names(batch))
        if len(attempts) == 1:
            raise SinkUnavailable("broken", delivered=2)

    publisher = Publisher(MemorySink(refuse), store, clock)
    fill(store, clock, 4)

    assert await publisher.step() > 0
    assert publisher.problem == "broken"
    assert await publisher.step() == 0.0
    assert attempts == [names_from(0, 4), names_from(2, 4)]
    assert publisher.problem == ""


def names_from(start: int, end: int) -> list[str]:
    return [f"event-{number}" for number in range(start, end)]


@pytest.mark.parametrize(
    ("permanent", "left"), [(False, ["event-1", "event-2"]), (True, ["event-2"])]
)
async def test_publisher_refused_row_stays_or_is_parked(
    store: Store, clock: FakeClock, permanent: bool, left: list[str]
) -> None:
    """What may pass later holds its place; what never can is kept aside for the operator."""

    def refuse(_: Sequence[Outgoing]) -> None:
        raise SinkRejected("no", delivered=1, permanent=permanent)

    publisher = Publisher(MemorySink(refuse), store, clock)
    fill(store, clock, 3)
    await publisher.step()

    assert names(store.batch("memory", 10)) == left
    assert [row.reason for row in store.parked()] == (["no"] if permanent else [])
    assert ("refused and stays: no" in publisher.problem) is not permanent


async def test_publisher_drained_waits_for_the_last_row(store: Store, clock: FakeClock) -> None:
    """The approver's flush returns once everything is acknowledged."""
    sink = MemorySink()
    publisher = Publisher(sink, store, clock)
    fill(store, clock, 3)
    task = asyncio.create_task(publisher.run())
    async with asyncio.timeout(5):
        await publisher.drained()
        await publisher.drained()  # nothing left: at once
    task.cancel()

    assert len(sink.rows) == 3


async def test_publisher_a_dead_sink_holds_back_no_other(store: Store, clock: FakeClock) -> None:
    """Each sink has a cursor of its own; a row goes when both have it."""

    def dead(_: Sequence[Outgoing]) -> None:
        raise SinkUnavailable("dead")

    store.set_sinks(("memory", "other"))
    fill(store, clock, 2)
    alive, broken = MemorySink(), MemorySink(dead)
    broken.name = "other"
    await Publisher(broken, store, clock).step()
    await Publisher(alive, store, clock).step()

    assert names(alive.rows) == ["event-0", "event-1"]
    assert (store.depth("memory"), store.depth("other")) == (0, 2)
