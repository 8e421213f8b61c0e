"""Presence: what the bus hears of the agent, and when."""

from typing import Any

import msgspec

from bridge.config import Commands, Config, Imds
from bridge.core.cloudevents import Vm
from bridge.poller import Poller
from bridge.presence import Presence
from bridge.store import Store
from tests.fakes import FakeClock, FakeImds, MemorySink


def make(store: Store, clock: FakeClock, **config: Any) -> tuple[Presence, MemorySink, Poller]:
    sink, vm = MemorySink(), Vm(name="web_3", resource_id="/vm")
    poller = Poller(
        Imds(),
        FakeImds(b'{"DocumentIncarnation": 4, "Events": []}'),
        store,
        clock,
        vm=vm,
        commands_topic="",
        own_events_only=True,
        on_news=lambda: None,
        on_change=lambda: None,
    )
    presence = Presence(
        Config(**config), store, clock, vm=vm, poller=poller, sinks={"memory": sink}
    )
    return presence, sink, poller


def said(sink: MemorySink) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(status.data) for status in sink.statuses]


async def test_presence_tells_changes_at_once_and_repeats_at_the_heartbeat(
    store: Store, clock: FakeClock
) -> None:
    """Online, blind, online again; in between nothing until half a minute has passed."""
    presence, sink, poller = make(store, clock)
    await poller.step()
    await presence.step()
    await presence.step()
    assert len(sink.statuses) == 1
    clock.pass_s(30)
    await presence.step()
    clock.pass_s(1)
    await presence.step()
    await poller.step()
    await presence.step()

    assert [data["status"] for data in said(sink)] == ["online", "online", "blind", "online"]
    assert len({status.id for status in sink.statuses}) == 4


async def test_presence_says_what_an_operator_wants_to_know(store: Store, clock: FakeClock) -> None:
    """Last poll, incarnation, depth of the outbox, and whether approvals are possible."""
    presence, sink, poller = make(store, clock)
    await poller.step()
    await presence.say("online")
    store.degrade("disk full")
    await presence.say("online")

    first, second = said(sink)
    assert (first["documentIncarnation"], first["outbox"], first["lastPoll"]) == (
        4,
        0,
        "2026-11-18T06:00:00.000Z",
    )
    assert (first["approvals"], second["approvals"]) == ("enforce", "refused")
    assert first["commands"] == "unsigned"


async def test_presence_tells_that_commands_are_not_taken(store: Store, clock: FakeClock) -> None:
    """An agent that only publishes says so."""
    presence, sink, _ = make(store, clock, commands=Commands(source="none"))
    await presence.say("offline")

    assert said(sink)[0]["commands"] == "none"
