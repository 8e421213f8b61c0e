"""Signed commands and limits on a real ledger: nobody spends what is not his."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bridge.core.commands import Wire
from bridge.core.policy import Rule
from bridge.signatures import Verifier, key_id, sign
from bridge.store import Store
from tests.builders import EVENT_ID, NOW, VM_NAME, command_bytes, command_fields, document
from tests.builders import scheduled_event as event
from tests.desk import Desk
from tests.fakes import FakeClock, ListSource

KEY = Ed25519PrivateKey.generate()
STRANGER = Ed25519PrivateKey.generate()


def fields(data: dict[str, Any] | None = None, **attributes: Any) -> dict[str, Any]:
    """A good command for this VM, good for ten minutes, under a change number."""
    times = {"time": NOW.isoformat(), "expirytime": (NOW + timedelta(minutes=10)).isoformat()}
    return command_fields(
        {"vm": VM_NAME} | (data or {}), **({"idempotencykey": "chg-1"} | times | attributes)
    )


def signed(command: dict[str, Any], *keys: Ed25519PrivateKey) -> bytes:
    return sign(msgspec.json.encode(command), *keys)


@pytest.fixture
def verifier() -> Verifier:
    return Verifier({key_id(KEY.public_key()): KEY.public_key()})


@pytest.fixture
def desk(store: Store, clock: FakeClock, verifier: Verifier) -> Desk:
    return Desk(store, clock, verify=verifier.verify)


async def test_signed_command_is_accepted(desk: Desk) -> None:
    """A trusted key's word counts."""
    await desk.take(signed(fields(), KEY))

    assert desk.answers() == []
    (row,) = desk.store.accepted()
    assert (row.azure_event_id, row.key) == (EVENT_ID, "chg-1")
    assert row.expires_at == NOW + timedelta(minutes=10)


@pytest.mark.parametrize(
    "payload",
    [
        msgspec.json.encode(fields()),
        signed(fields(), STRANGER),
        signed(fields(), KEY).replace(b"chg-1", b"chg-2"),
        signed(fields({"reason": "drained"}), KEY).replace(b"drained", b"ignored"),
    ],
    ids=["unsigned", "stranger", "other key", "other data"],
)
async def test_bad_signature_changes_nothing_and_uses_up_no_key(desk: Desk, payload: bytes) -> None:
    """Refused, answered with the sender's id, and the good command still goes through."""
    await desk.take(payload)
    await desk.take(signed(fields(idempotencykey="chg-2"), KEY))

    (answer,) = desk.answers()
    assert (answer["reason"], answer["commandId"]) == ("bad-signature", "c-1")
    assert answer["idempotencyKey"].startswith("bad-signature:")
    assert [row.key for row in desk.store.accepted()] == ["chg-2"]


async def test_same_bad_signature_gets_the_same_answer(desk: Desk) -> None:
    """Repeating it adds no row to the ledger."""
    for _ in range(3):
        await desk.take(signed(fields(), STRANGER))

    assert [answer.get("replay", False) for answer in desk.answers()] == [False, True, True]
    assert len(desk.store.audit()) == 1


async def test_rubbish_is_malformed_before_anybody_looks_for_a_signature(desk: Desk) -> None:
    """Size and JSON come first: they are cheaper."""
    await desk.take(b'{"id":"a","id":"b"}')
    await desk.take(signed(fields(), KEY), retained=True)

    assert desk.reasons() == ["malformed", "retained-command"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [({"vm": "web_4"}, "wrong-vm"), ({"vm": None}, "malformed"), ({"vm": ""}, "malformed")],
)
async def test_command_signed_for_another_vm_uses_up_no_key(
    desk: Desk, data: dict[str, Any], reason: str
) -> None:
    """One change number for the whole fleet: replaying a sibling's command spends nothing here."""
    await desk.take(signed(fields(data), KEY))
    await desk.take(signed(fields(), KEY))

    assert desk.reasons() == [reason]
    assert [row.key for row in desk.store.accepted()] == ["chg-1"]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"time": None}, "malformed"),
        ({"expirytime": (NOW + timedelta(minutes=16)).isoformat()}, "malformed"),
        ({"expirytime": (NOW - timedelta(seconds=1)).isoformat()}, "expired"),
        ({"time": (NOW + timedelta(minutes=6)).isoformat()}, "malformed"),
    ],
    ids=["no time", "lives too long", "expired", "from the future"],
)
async def test_signed_command_has_a_short_life(
    desk: Desk, attributes: dict[str, Any], reason: str
) -> None:
    """A signature is not good for ever."""
    sent = {name: value for name, value in fields(**attributes).items() if value is not None}
    await desk.take(signed(sent, KEY))

    assert desk.reasons() == [reason]


async def test_signed_command_without_expiry_is_refused(desk: Desk) -> None:
    """Whoever keeps the message must not be able to use it later."""
    sent = fields()
    del sent["expirytime"]
    await desk.take(signed(sent, KEY))

    (answer,) = desk.answers()
    assert answer["detail"] == "a signed command must have time and expirytime"


async def test_replayed_signed_command_is_answered_from_the_ledger(desk: Desk) -> None:
    """The same signed bytes again do nothing, now or an hour later."""
    payload = signed(fields(), KEY)
    await desk.take(payload)
    await desk.take(payload)

    assert len(desk.store.accepted()) == 1
    assert len(desk.store.audit()) == 1


async def test_binary_mode_key_from_outside_the_signature_is_refused(desk: Desk) -> None:
    """A key that was not signed could be anybody's."""
    sent = fields()
    del sent["idempotencykey"]
    raw = msgspec.json.decode(signed(sent, KEY), type=dict[str, msgspec.Raw])
    data = bytes(raw.pop("data"))
    properties = [(name, msgspec.json.decode(value)) for name, value in raw.items()]
    await desk.take_wire(Wire(payload=data, attributes=(*properties, ("idempotencykey", "x"))))
    await desk.take_wire(Wire(payload=data, attributes=tuple(properties)))

    (answer,) = desk.answers()
    assert answer["detail"] == "dssematerial: idempotencykey is not signed"
    assert [row.key for row in desk.store.accepted()] == ["/ops/oncall#c-1"]


async def test_unsigned_mode_takes_a_signed_command_as_it_is(
    store: Store, clock: FakeClock
) -> None:
    """Without trusted keys a signature is one more attribute that nobody reads."""
    desk = Desk(store, clock)
    await desk.take(signed(fields(), STRANGER))

    assert len(store.accepted()) == 1


def many_events(count: int) -> dict[str, Any]:
    return {f"e-{number}": event(event_id=f"e-{number}") for number in range(count)}


async def test_rate_limit_survives_a_restart_and_ends_after_a_minute(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The ledger remembers how many approvals there were."""
    path, events = tmp_path / "state.db", many_events(5)

    async def ask(event_id: str) -> list[str]:
        opened = Store.open(path, now=clock.now())
        opened.set_sinks(("memory",))
        desk = Desk(opened, clock, per_minute_max=2)
        desk.document = document(*events.values())
        await desk.take(command_bytes({"eventId": event_id}, id=event_id))
        reasons = desk.reasons()
        opened.close()
        return reasons

    assert await ask("e-0") == []
    assert await ask("nobody") == ["unknown-event"]
    assert await ask("e-1") == ["unknown-event"]
    assert await ask("e-2") == ["unknown-event", "rate-limited"]
    clock.pass_s(59)
    assert await ask("e-3") == ["unknown-event", "rate-limited", "rate-limited"]
    clock.pass_s(2)
    assert (await ask("e-4"))[3:] == []


async def test_rules_are_exempt_from_the_rate_limit(store: Store, clock: FakeClock) -> None:
    """What a rule approves by itself was decided by the operator, not by a sender."""
    desk = Desk(store, clock, per_minute_max=1, policy=(Rule(name="all", action="auto"),))
    desk.document = document(*many_events(4).values())
    desk.intake.approve_by_rule()

    assert len(store.accepted()) == 4


async def test_flood_leaves_the_other_loops_their_turn(store: Store, clock: FakeClock) -> None:
    """Between any two commands everybody else runs, however many are waiting."""
    desk = Desk(store, clock, per_s_max=1e6)
    desk.source = ListSource(*(b"rubbish %d" % number for number in range(50)))
    flood = asyncio.create_task(desk.intake.run(desk.source))
    seen = []
    while not flood.done():
        await asyncio.sleep(0)
        seen.append(len(desk.source.acked))

    assert len(desk.source.acked) == 50
    assert max(after - before for before, after in pairwise(seen)) == 1


async def test_flood_waits_unacknowledged_beyond_the_rate(store: Store, clock: FakeClock) -> None:
    """A burst passes; the rest is not even looked at until its time has come."""
    desk = Desk(store, clock, per_s_max=2.0)
    desk.source = ListSource(*(b"rubbish %d" % number for number in range(50)))
    flood = asyncio.create_task(desk.intake.run(desk.source))
    for _ in range(20):
        await asyncio.sleep(0)
    flood.cancel()
    await asyncio.gather(flood, return_exceptions=True)

    assert len(desk.source.acked) == 2
