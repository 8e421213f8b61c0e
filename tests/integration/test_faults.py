"""Cases of the fault catalogue (docs/reliability.md) that no other test has reason to look at."""

import asyncio
import gzip
import resource
from pathlib import Path

import msgspec
import pytest

from bridge.app import Agent
from bridge.clock import SystemClock
from bridge.config import Config, Imds
from bridge.core import cloudevents
from bridge.core.approvals import Reject, Rules, Situation
from bridge.core.cloudevents import Vm
from bridge.core.decide import decide
from bridge.errors import ImdsUnavailable, StoreError
from bridge.imds import ImdsClient
from bridge.poller import Poller
from bridge.start_request import connect
from bridge.store import Store
from tests.builders import EVENT_ID, NOW, VM_NAME, command, document, scheduled_event
from tests.fakes import FakeClock, FakeImds
from tests.support.scripted_imds import ScriptedImds, answer

VM = Vm(name=VM_NAME, vm_id="id-3", resource_id="/subscriptions/s/vm")
DOCUMENT = b'{"DocumentIncarnation":1,"Events":[]}'
EVENTS_MANY = 10_000


def poller(store: Store, clock: FakeClock, imds: FakeImds) -> Poller:
    return Poller(
        Imds(),
        imds,
        store,
        clock,
        vm=VM,
        commands_topic="",
        own_events_only=True,
        on_news=lambda: None,
        on_change=lambda: None,
    )


async def test_compressed_answer_is_not_unpacked(store: Store, clock: FakeClock) -> None:
    """A gzip bomb stays small: nothing is unpacked, and what is left is no document."""
    bomb = gzip.compress(DOCUMENT + b" " * 50_000_000)
    reply = answer(200, bomb, Content_Encoding="gzip")
    async with ScriptedImds(lambda _: reply) as imds:
        client = ImdsClient(Imds(endpoint=imds.endpoint), SystemClock())
        body = await client.get_document()
        await client.close()
    assert body == bomb

    polling = poller(store, clock, FakeImds(body))
    await polling.step()
    assert polling.last_document is None
    assert "not a document" in polling.problem


async def test_slow_polls_never_overlap(store: Store, clock: FakeClock) -> None:
    """IMDS takes longer than the interval: the next poll follows, no two are under way."""
    under_way, most, polls = 0, 0, 0

    class SlowImds(FakeImds):
        async def get_document(self) -> bytes:
            nonlocal under_way, most, polls
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1
            polls += 1
            return DOCUMENT

    polling = Poller(
        Imds(poll_interval_s=0.001),
        SlowImds(),
        store,
        SystemClock(),
        vm=VM,
        commands_topic="",
        own_events_only=True,
        on_news=lambda: None,
        on_change=lambda: None,
    )
    task = asyncio.create_task(polling.run())
    async with asyncio.timeout(20):
        while polls < 10:
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert most == 1


async def test_ten_thousand_events_are_all_told(store: Store, clock: FakeClock) -> None:
    """A document far beyond any real one is recorded whole, in one transaction, in order."""
    entries = [
        {
            "EventId": f"event-{number}",
            "EventType": "Reboot",
            "Resources": [VM_NAME],
            "EventStatus": "Scheduled",
        }
        for number in range(EVENTS_MANY)
    ]
    raw = msgspec.json.encode({"DocumentIncarnation": 1, "Events": entries})
    await poller(store, clock, FakeImds(raw)).step()
    rows = store.batch("memory", EVENTS_MANY + 1)

    assert [row.event_id for row in rows] == [f"event-{n}" for n in range(EVENTS_MANY)]


async def test_scheduled_started_and_gone_between_two_polls(store: Store, clock: FakeClock) -> None:
    """What happened unseen is told as one end, and as inferred."""
    entry = {
        "EventId": EVENT_ID,
        "EventType": "Reboot",
        "Resources": [VM_NAME],
        "EventStatus": "Scheduled",
        "NotBefore": "Wed, 18 Nov 2026 06:15:00 GMT",
    }
    imds = FakeImds(msgspec.json.encode({"DocumentIncarnation": 1, "Events": [entry]}))
    polling = poller(store, clock, imds)
    await polling.step()
    clock.pass_s(3600)
    imds.answer = b'{"DocumentIncarnation":9,"Events":[]}'
    await polling.step()

    told = [
        msgspec.json.decode(cloudevents.decode(row.cloudevent).data)
        for row in store.batch("memory", 9)
    ]
    assert [data["transition"] for data in told] == ["scheduled", "ended"]
    assert told[1]["ended"]["certainty"] == "inferred"


async def test_replay_after_the_ledger_was_deleted_is_refused(tmp_path: Path) -> None:
    """The token died with the ledger: an old command does not open a new one."""
    tokens = []
    for _ in range(2):
        store = Store.open(tmp_path / "state.db", now=NOW)
        entry = {"EventId": EVENT_ID, "EventStatus": "Scheduled", "Resources": [VM_NAME]}
        raw = msgspec.json.encode({"DocumentIncarnation": 1, "Events": [entry]})
        await poller(store, FakeClock(), FakeImds(raw)).step()
        tokens.append(store.tokens()[EVENT_ID.casefold()])
        store.close()
        (tmp_path / "state.db").unlink()
    replayed = command(token=tokens[0])
    situation = Situation(now=NOW, document=document(scheduled_event()), token=tokens[1])

    decision = decide(replayed, situation, Rules(vm_name=VM_NAME, require_token=True))
    assert isinstance(decision, Reject)
    assert decision.reason == "wrong-token"


async def test_without_descriptors_nothing_was_sent() -> None:
    """EMFILE is a failure to connect: the approval stays accepted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ImdsUnavailable, match="nothing was sent"):
            await connect("http://127.0.0.1:9", "2020-07-01", 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_damaged_identity_is_met_once(tmp_path: Path) -> None:
    """An identity that cannot be read stops one start, not all of them."""
    config = msgspec.convert(
        {"store": {"path": str(tmp_path / "state.db")}, "http": {"listen": ""}}, Config
    )
    store = Store.open(tmp_path / "state.db", now=NOW)
    store.set_identity(b'{"vm": ', "id-3")
    store.close()
    agent = Agent(config)
    with pytest.raises(StoreError, match="identity"):
        agent._recover()
    agent._store.close()

    again = Agent(config)
    again._recover()
    assert again._store.ledger_lost
    again._store.close()
