"""Whole stories, told by real processes; asserted is only what a consumer or IMDS could see."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import EVENT_ID, azure_entry, command_fields
from tests.support.scripted_imds import DROP, answer


def command(key: str = "chg-1", **data: Any) -> dict[str, Any]:
    return command_fields(data, id=f"id-{key}", idempotencykey=key)


def outcomes(observer: Any) -> list[tuple[str, str]]:
    return [(o["data"]["status"], o["data"].get("reason", "")) for o in observer.of("outcomes")]


async def test_event_is_followed_from_scheduled_to_completed_and_approved(
    agent: Any, imds: Any, observer: Any, until: Callable[..., Any]
) -> None:
    """A consumer sees each transition, approves once, and sees the approval confirmed."""
    agent.start()
    imds.show(azure_entry())
    await until(lambda: observer.of("events"))
    observer.send(command())
    await until(lambda: ("approved", "") in outcomes(observer))
    imds.show(azure_entry(EventStatus="Started", NotBefore=""))
    await until(lambda: ("confirmed", "") in outcomes(observer))
    imds.show()
    await until(lambda: len(observer.of("events")) == 3)

    kinds = [event["data"]["transition"] for event in observer.of("events")]
    assert ["scheduled", "started", "completed"] == kinds
    assert [EVENT_ID] == imds.posts
    pending = [
        payload for topic, payload, _ in observer.seen if topic.endswith(f"pending/{EVENT_ID}")
    ]
    assert pending[-1] == b""
    assert agent.stop() == 0
    await until(lambda: observer.of("status")[-1]["data"]["status"] == "offline")


async def test_same_command_many_times_across_kills_leaves_one_post(
    agent: Any, imds: Any, observer: Any, broker: Any, until: Callable[..., Any]
) -> None:
    """Five sends, two keys, two SIGKILLs and a broker restart: exactly one POST."""
    imds.show(azure_entry())
    agent.start()
    await until(lambda: observer.of("events"))
    for _ in range(3):
        observer.send(command("a"))
    observer.send(command("b"))
    await until(lambda: ("rejected", "already-approved") in outcomes(observer))
    await until(lambda: imds.posts)  # killed a moment before, it would be in doubt, and never sent
    agent.kill()
    before = len(outcomes(observer))
    observer.send(command("a"))
    agent.start()
    await until(lambda: any(o["data"].get("replay") for o in observer.of("outcomes")[before:]))
    agent.kill()
    broker.restart()
    agent.start()
    # This broker forgets its sessions: nobody may send before the agent has subscribed again.
    await until(observer.client.is_connected)
    await until(lambda: agent.log.count("taking commands") == 3)
    observer.send(command("c"))
    await until(lambda: outcomes(observer).count(("rejected", "already-approved")) >= 2)

    assert [EVENT_ID] == imds.posts
    answers = {o["id"] for o in observer.of("outcomes") if o["data"]["idempotencyKey"] == "a"}
    assert len(answers) == 1


@pytest.mark.parametrize(
    "fault",
    [answer(500), DROP, answer(307, Location="/metadata/scheduledevents?api-version=2020-07-01")],
    ids=["500", "dropped", "307"],
)
async def test_lost_answer_leaves_one_post_in_doubt(
    agent: Any, imds: Any, observer: Any, until: Callable[..., Any], fault: Any
) -> None:
    """What may have counted is never posted again, not even after a kill; starting resolves it."""
    imds.on_post = lambda: fault
    imds.show(azure_entry())
    agent.start()
    await until(lambda: observer.of("events"))
    observer.send(command())
    await until(lambda: ("in-doubt", "in-doubt") in outcomes(observer))
    agent.kill()
    agent.start()
    observer.send(command("other"))
    await until(lambda: ("rejected", "in-doubt") in outcomes(observer))
    imds.show(azure_entry(EventStatus="Started", NotBefore=""))
    await until(lambda: ("confirmed", "") in outcomes(observer))

    assert [EVENT_ID] == imds.posts


async def test_twenty_events_during_an_outage_all_arrive_in_order(
    agent: Any, imds: Any, observer: Any, broker: Any, until: Callable[..., Any]
) -> None:
    """The outbox keeps order and ids through a broker outage with a SIGKILL in the middle."""
    agent.start()
    await until(lambda: observer.of("status"))
    broker.stop()
    entries: list[dict[str, Any]] = []
    for number in range(20):
        entries.append(azure_entry(f"event-{number:02}"))
        imds.show(*entries)
        await until(imds.was_polled_twice())
        if number == 10:
            agent.kill()
            agent.start()
            await until(imds.was_polled_twice())
    # This broker forgets its sessions: the agent must not speak before somebody listens again.
    agent.signal(signal.SIGSTOP)
    observer.listening.clear()
    broker.start()
    await until(observer.listening.is_set)
    agent.signal(signal.SIGCONT)
    await until(lambda: len({e["id"] for e in observer.of("events")}) >= 20, 30)

    unique = {event["id"]: event for event in observer.of("events")}
    assert [f"event-{number:02}" for number in range(20)] == [e["subject"] for e in unique.values()]
    sequences = [event["sequence"] for event in unique.values()]
    assert sorted(sequences) == sequences


async def test_bad_commands_get_their_reasons(
    agent: Any, imds: Any, observer: Any, until: Callable[..., Any]
) -> None:
    """Rubbish, strangers and changed events are refused with a reason from the closed list."""
    imds.show(azure_entry())
    agent.start()
    await until(lambda: observer.of("events"))
    cases: list[tuple[dict[str, Any] | bytes, str]] = [
        (b"{", "malformed"),
        (command("k1", eventId="nope"), "unknown-event"),
        (command("k2", vm="web_4"), "wrong-vm"),
        (command("k3", expect={"eventType": "Freeze"}), "type-changed"),
        (command("k4", expect={"resources": ["web_3", "web_4"]}), "resources-changed"),
        (command("k5", token="guess"), "wrong-token"),
        ({**command("k6"), "expirytime": "2020-01-01T00:00:00Z"}, "expired"),
        ({**command("k7"), "time": "2020-01-01T00:00:00Z"}, "too-old"),
        (command("k1", eventId="other"), "key-reused"),
    ]
    for payload, _ in cases:
        observer.send(payload)
    await until(lambda: len(outcomes(observer)) == len(cases))

    assert [("rejected", reason) for _, reason in cases] == outcomes(observer)
    assert imds.posts == []


async def test_operator_commands_work_beside_the_agent(
    agent: Any, imds: Any, observer: Any, until: Callable[..., Any]
) -> None:
    """`approve` finds the event by itself and exits 0; `status` and `audit` tell of it."""
    imds.show(azure_entry())
    agent.start()
    await until(lambda: observer.of("events"))
    approved = await asyncio.to_thread(
        agent.cli, "approve", EVENT_ID, "--reason", "drained", "--timeout", "10"
    )
    status = await asyncio.to_thread(agent.cli, "status")
    audit = await asyncio.to_thread(agent.cli, "audit")
    again = await asyncio.to_thread(agent.cli, "approve", EVENT_ID, "--timeout", "10")

    assert (0, 3) == (approved.returncode, again.returncode), approved.stderr + again.stderr
    assert "already-approved" in again.stdout
    assert EVENT_ID in status.stdout
    assert "/sebridge/cli" in audit.stdout
    assert [EVENT_ID] == imds.posts
