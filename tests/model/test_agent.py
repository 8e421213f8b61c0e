"""Hypothesis drives the whole agent: events, polls, commands, POSTs, outages, clocks, kills."""

import shutil
import tempfile
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.builders import VM_NAME, command_fields
from tests.model.agent import REFUSED, Agent, Killed, World, run

EVENTS = ("A-1", "b-2")
KEYS = ("k1", "k2", "k3")
FINAL = {"approved", "rejected", "in-doubt"}


class AgentMachine(RuleBasedStateMachine):
    in_doubt = "watch"

    def __init__(self) -> None:
        super().__init__()
        ram = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = tempfile.mkdtemp(dir=ram)
        self.world = World()
        self.overrides: dict[str, int] = {}
        self.lives = 0
        self.agent: Agent | None = None

    @initialize()
    def start(self) -> None:
        self.live()

    # What Azure does

    @rule(event=st.sampled_from(EVENTS), status=st.sampled_from(("Scheduled", "Started")))
    def show(self, event: str, status: str) -> None:
        self.world.incarnation += 1
        self.world.entries[event] = {
            "EventId": event,
            "EventType": "Reboot",
            "Resources": [VM_NAME],
            "EventStatus": status,
            "NotBefore": "Wed, 18 Nov 2026 09:00:00 GMT" if status == "Scheduled" else "",
        }

    @rule(event=st.sampled_from(EVENTS))
    def change_type(self, event: str) -> None:
        if event in self.world.entries:
            self.world.incarnation += 1
            self.world.entries[event]["EventType"] = "Redeploy"

    @rule(event=st.sampled_from(EVENTS))
    def end(self, event: str) -> None:
        if self.world.entries.pop(event, None):
            self.world.incarnation += 1

    # What people do

    @rule(
        key=st.sampled_from(KEYS),
        event=st.sampled_from((*EVENTS, "B-2", "nope")),
        override=st.booleans(),
        token=st.booleans(),
        life_s=st.sampled_from((None, 30, 600)),
    )
    def send(self, key: str, event: str, override: bool, token: bool, life_s: int | None) -> None:
        data: dict[str, Any] = {"eventId": event, "override": ["in-doubt"] if override else []}
        if token and self.agent:
            data["token"] = self.agent.store.tokens().get(event.casefold(), "guess")
        expiry = {}
        if life_s is not None:
            expires = self.world.clock.now() + timedelta(seconds=life_s)
            expiry["expirytime"] = expires.isoformat()
        fields = command_fields(data, id=f"id-{key}", idempotencykey=key, **expiry)
        self.world.queue.append(msgspec.json.encode(fields))

    @rule(payload=st.sampled_from((b"{", b"", b'{"specversion":"1.0"}')))
    def send_rubbish(self, payload: bytes) -> None:
        self.world.queue.append(payload)

    # What the agent does

    @rule(answer=st.sampled_from((b"", b"", b"", None, b"{", b"<html>")))
    def poll(self, answer: bytes | None) -> None:
        self.world.get = answer
        self.step(lambda agent: agent.poller.step())

    @rule()
    def take(self) -> None:
        self.step(lambda agent: agent.take_command())

    @rule(post=st.sampled_from((200, 400, 429, 500, 307, None, "refused")))
    def approve(self, post: int | str | None) -> None:
        self.world.post = post
        self.step(lambda agent: agent.approver.step())

    @rule(deliver=st.sampled_from((0, 1, 10**9)))
    def publish(self, deliver: int) -> None:
        self.world.deliver = deliver
        self.step(lambda agent: agent.publisher.step())

    # Whole stories, so that chance need not put them together

    @rule(event=st.sampled_from(EVENTS), key=st.sampled_from(KEYS))
    def announce_and_ask(self, event: str, key: str) -> None:
        self.show(event, "Scheduled")
        self.poll(b"")
        self.send(key, event, override=False, token=False, life_s=None)
        for _ in range(len(self.world.queue)):
            self.take()

    @rule(
        steps=st.integers(1, 8),
        what=st.sampled_from(("poll", "take", "approve", "publish")),
        post=st.sampled_from((200, 429, None)),
    )
    def die_during(self, steps: int, what: str, post: int | None) -> None:
        self.world.steps_to_live = steps
        match what:
            case "poll":
                self.poll(b"")
            case "take":
                self.take()
            case "approve":
                self.approve(post)
            case _:
                self.publish(10**9)

    # What the world does to it

    @rule(seconds=st.sampled_from((1.0, 20.0, 400.0)))
    def wait(self, seconds: float) -> None:
        self.world.clock.pass_s(seconds)

    @rule(hours=st.sampled_from((-87_600, -1, 1, 87_600)))
    def set_clock(self, hours: int) -> None:
        """Within what a datetime can hold."""
        wall = self.world.clock.wall + timedelta(hours=hours)
        if 2000 < wall.year < 2100:
            self.world.clock.wall = wall

    @rule(steps=st.integers(1, 12))
    def kill_soon(self, steps: int) -> None:
        self.world.steps_to_live = steps

    @rule()
    def kill(self) -> None:
        assert self.agent
        self.agent.die()
        self.live()

    def live(self) -> None:
        self.lives += 1
        while True:
            try:
                self.agent = Agent(
                    Path(self.folder, "state.db"), self.world, in_doubt=self.in_doubt
                )
            except Killed:
                self.world.steps_to_live = 10**9
            else:
                return

    def step(self, step: Callable[[Agent], Coroutine[Any, Any, object]]) -> None:
        agent = self.agent
        assert agent
        try:
            run(lambda: step(agent))
        except Killed:
            agent.die()
            self.world.steps_to_live = 10**9
            self.live()

    # What must hold

    def published(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(row.cloudevent) for row in self.world.received]

    @invariant()
    def no_second_post(self) -> None:
        assert self.agent
        overridden = {
            line["event_id"].casefold() for line in self.agent.store.audit() if line["waived"]
        }
        for event in EVENTS:
            counted = [s for e, s in self.world.posts if e == event and s not in REFUSED]
            if event.casefold() not in overridden:
                assert len(counted) <= 1, (event, self.world.posts)

    @invariant()
    def one_answer_a_command(self) -> None:
        answers: dict[str, set[str]] = {}
        for event in self.published():
            data = event["data"]
            if data.get("status") in FINAL and data.get("reason") != "key-reused":
                answers.setdefault(data["idempotencyKey"], set()).add(event["id"])
        assert all(len(ids) == 1 for ids in answers.values()), answers

    @invariant()
    def ids_are_stable_and_in_order(self) -> None:
        known: dict[str, bytes] = {}
        newest = ""
        for row in self.world.received:
            event = msgspec.json.decode(row.cloudevent)
            if event["data"].get("replay"):
                continue
            same = known.setdefault(event["id"], row.cloudevent)
            assert same == row.cloudevent
            if same is row.cloudevent:
                assert event["sequence"] > newest
                newest = event["sequence"]

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            if self.agent:
                self.agent.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def settle(self) -> None:
        """Without faults everything comes to its end: no command without an answer."""
        if self.agent is None:
            return
        self.world.steps_to_live = 10**9
        for _ in range(4):
            self.poll(b"")
            for _ in range(len(self.world.queue)):
                self.take()
            self.approve(200)
            self.publish(10**9)
        self.wait(400.0)
        self.poll(b"")
        self.approve(200)
        self.publish(10**9)

        assert self.world.queue == []
        assert self.agent.store.accepted() == []
        assert self.agent.store.depth("memory") == 0
        self.no_second_post()
        self.one_answer_a_command()
        self.ids_are_stable_and_in_order()
        self.every_command_was_answered()
        self.every_event_is_where_it_was_published_to_be()

    def every_command_was_answered(self) -> None:
        answered = {e["data"].get("idempotencyKey") for e in self.published()}
        for payload in self.world.acked:
            if payload.startswith(b'{"specversion":"1.0","id"'):
                assert msgspec.json.decode(payload)["idempotencykey"] in answered

    def every_event_is_where_it_was_published_to_be(self) -> None:
        """The last transition of every event says what the document says."""
        ends = {"completed", "canceled", "ended"}
        last: dict[str, str] = {}
        for event in self.published():
            if "transition" in event["data"]:
                last[event["subject"]] = event["data"]["transition"]
        for event_id, transition in last.items():
            assert (transition in ends) == (event_id not in self.world.entries)
        for event_id in self.world.entries:
            assert event_id in last


class RepostingMachine(AgentMachine):
    """`in_doubt = "repost"`: every POST after the first was waived by the operator's word."""

    in_doubt = "repost"


# The same lives every time, so that a red run is about the change; the long run draws new ones,
# and looks for the shortest that fails.
QUICK = settings(
    max_examples=80,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(
    QUICK, max_examples=4000, stateful_step_count=60, derandomize=False, phases=tuple(Phase)
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("machine", [AgentMachine, RepostingMachine])
def test_agent_keeps_its_promises_whatever_happens(machine: type[AgentMachine]) -> None:
    """Random lives with faults, then a quiet end: never twice, one answer, nothing lost."""
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [AgentMachine, RepostingMachine])
def test_agent_keeps_its_promises_for_long(machine: type[AgentMachine]) -> None:
    """The same, for thousands of lives."""
    run_state_machine_as_test(machine, settings=LONG)
