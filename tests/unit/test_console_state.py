"""The console's fold: from messages of many agents to one picture of the fleet."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config import Console
from bridge.console.rows import Request
from bridge.console.state import FleetState
from bridge.core.cloudevents import Vm
from bridge.core.diff import Ending
from bridge.feeds import FeedChannel, Received
from tests.support.fleet_messages import NOW, event, outcome, root_of, status, vm

WEB_3, WEB_4 = vm("web_3"), vm("web_4", zone="2")
EVENT = "602D9444-D2CD-49C7-8624-8643E7171297"
KEY = EVENT.lower()


class Fleet:
    """A state, and agents that talk to it."""

    def __init__(self, **options: Any) -> None:
        self.state = FleetState(Console(**options))
        self.now = NOW

    def say(self, machine: Vm, channel: FeedChannel, payload: bytes, event_id: str = "") -> None:
        received = Received(
            channel=channel, agent=root_of(machine.name), payload=payload, event_id=event_id
        )
        self.state.apply(received, self.now)

    def status(self, machine: Vm, word: str = "online", **fields: Any) -> None:
        self.say(machine, "status", status(machine, word, now=self.now, **fields))

    def event(self, machine: Vm, **fields: Any) -> None:
        self.say(machine, "events", event(machine, EVENT, now=self.now, **fields))

    def outcome(self, machine: Vm, **fields: Any) -> None:
        self.say(machine, "outcomes", outcome(machine, now=self.now, **fields))

    def wait(self, **duration: float) -> None:
        self.now += timedelta(**duration)
        self.state.tick(self.now)

    @property
    def shown(self) -> dict[str, Any]:
        [only] = self.state.everything(self.now).events
        return only

    @property
    def vms(self) -> dict[str, str]:
        return {row["name"]: row["status"] for row in self.state.everything(self.now).vms}

    @property
    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.state.everything(self.now).history]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_status_shows_a_vm_and_its_changes(fleet: Fleet) -> None:
    """Online, blind, offline as the agent says; only changes are history."""
    fleet.status(WEB_3)
    fleet.status(WEB_4, "blind")
    fleet.status(WEB_3, "offline")

    assert {"web_3": "offline", "web_4": "blind"} == fleet.vms
    assert ["status"] == fleet.kinds


def test_status_repeated_is_no_change_for_pages(fleet: Fleet) -> None:
    """Heartbeats of a thousand VMs cost the pages nothing."""
    fleet.status(WEB_3)
    fleet.state.take_changes(fleet.now)
    fleet.wait(seconds=30)
    fleet.status(WEB_3)

    assert not fleet.state.take_changes(fleet.now)


def test_status_cleared_forgets_the_vm(fleet: Fleet) -> None:
    """Who takes the retained status away takes the VM off the page."""
    fleet.status(WEB_3)
    fleet.state.take_changes(fleet.now)
    fleet.say(WEB_3, "status", b"")

    assert [root_of("web_3")] == fleet.state.take_changes(fleet.now).removed_vms


def test_vm_that_says_nothing_becomes_silent_and_comes_back(fleet: Fleet) -> None:
    """Where there is no last will, silence is the only sign."""
    fleet.status(WEB_3)
    fleet.wait(seconds=121)
    silent = fleet.vms
    fleet.status(WEB_3)

    assert ({"web_3": "silent"}, {"web_3": "online"}) == (silent, fleet.vms)


def test_vm_offline_for_a_day_is_forgotten(fleet: Fleet) -> None:
    """Scale sets come and go; their names do not pile up."""
    fleet.status(WEB_3)
    fleet.status(WEB_3, "offline")
    fleet.wait(hours=23)
    before = fleet.vms
    fleet.wait(hours=2)

    assert ({"web_3": "offline"}, {}) == (before, fleet.vms)


def test_event_is_shown_with_what_an_approver_needs(fleet: Fleet) -> None:
    """Type, VMs, time left, scale set, and that it can be approved."""
    fleet.status(WEB_3)
    fleet.event(WEB_3, Description="maintenance")

    shown = fleet.shown
    assert ("Reboot", "scheduled", "none") == (shown["type"], shown["status"], shown["approval"])
    assert (("web_3",), "web", "1") == (shown["resources"], shown["scaleSet"], shown["zone"])
    assert "2026-11-18T06:15:00.000Z" == shown["notBefore"]
    assert "" == shown["obstacle"]
    assert f"sebridge approve {EVENT} --vm web_3" == shown["command"]
    assert ["scheduled"] == fleet.kinds


def test_event_on_two_channels_is_one(fleet: Fleet) -> None:
    """The same CloudEvent comes live and as retained state."""
    payload = event(WEB_3, EVENT)
    fleet.say(WEB_3, "events", payload)
    fleet.say(WEB_3, "pending", payload, EVENT)

    assert ["scheduled"] == fleet.kinds
    assert 1 == len(fleet.state.everything(fleet.now).events)


def test_event_of_several_vms_is_one_and_its_leader_counts(fleet: Fleet) -> None:
    """Whoever speaks last, the leader's message is what an approval answers."""
    both = ("web_3", "web_4")
    fleet.event(WEB_3, resources=both)
    fleet.wait(seconds=1)
    fleet.event(WEB_4, resources=both)

    assert ("web_3", True) == (fleet.shown["vm"], fleet.shown["leader"])
    assert [root_of("web_3"), root_of("web_4")] == fleet.shown["agents"]


def test_event_older_than_known_changes_nothing(fleet: Fleet) -> None:
    """A late duplicate must not turn Started back into Scheduled."""
    fleet.event(WEB_3, transition="started", sequence=5)
    fleet.event(WEB_3, sequence=4)

    assert "started" == fleet.shown["status"]


def test_event_that_ends_is_over_with_its_reason(fleet: Fleet) -> None:
    """The end's own word stands, and the cleared retained message adds nothing."""
    fleet.event(WEB_3)
    ending = Ending(because="gone after it had started", certainty="observed")
    fleet.event(WEB_3, transition="completed", sequence=2, ending=ending)
    fleet.say(WEB_3, "pending", b"", EVENT)

    assert "completed" == fleet.shown["status"]
    assert "gone after it had started" == fleet.shown["ended"]["because"]
    assert ["scheduled", "completed"] == fleet.kinds


def test_event_cleared_without_a_word_has_ended(fleet: Fleet) -> None:
    """After an outage only its absence tells that it is over."""
    fleet.event(WEB_3)
    fleet.say(WEB_3, "pending", b"", EVENT)

    assert "ended" == fleet.shown["status"]
    assert "it is ended" == fleet.shown["obstacle"]


def test_event_of_a_vm_gone_for_good_is_lost(fleet: Fleet) -> None:
    """A deleted VM never ends its own event; a rebooting one comes back in time."""
    fleet.status(WEB_3)
    fleet.event(WEB_3, transition="started")
    fleet.status(WEB_3, "offline")
    fleet.wait(minutes=14)
    rebooting = fleet.shown["status"]
    fleet.state.take_changes(fleet.now)
    fleet.wait(minutes=2)

    assert ("started", "lost") == (rebooting, fleet.shown["status"])
    assert [KEY] == [shown["key"] for shown in fleet.state.take_changes(fleet.now).events]


def test_event_that_is_over_is_forgotten_after_a_while(fleet: Fleet) -> None:
    """Recent means recent."""
    fleet.event(WEB_3, transition="completed")
    fleet.wait(seconds=1)
    fleet.state.take_changes(fleet.now)
    fleet.wait(hours=25)

    assert [KEY] == fleet.state.take_changes(fleet.now).removed_events


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"topic": "sebridge/v1/web-rg/web_4/commands"}, "another machine"),
        ({"topic": ""}, "names no command topic"),
        ({"state": "approved"}, "its approval is approved"),
        ({"state": "in-doubt"}, "in doubt"),
        ({"transition": "started"}, "it is started"),
    ],
)
def test_event_that_cannot_be_approved_says_why(
    fleet: Fleet, fields: dict[str, Any], expected: str
) -> None:
    """Every obstacle has words."""
    fleet.event(WEB_3, **fields)

    assert expected in fleet.shown["obstacle"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"commands": "none"}, "takes no commands"),
        ({"commands": "signed"}, "signed commands only"),
        ({"approvals": "refused"}, "cannot write its ledger"),
    ],
)
def test_agent_that_cannot_approve_says_why(
    fleet: Fleet, fields: dict[str, Any], expected: str
) -> None:
    """What the agent says of itself is known before anybody clicks."""
    fleet.status(WEB_3, **fields)
    fleet.event(WEB_3)

    assert expected in fleet.shown["obstacle"]


def test_signed_agent_can_be_approved_with_a_key() -> None:
    """A console that signs offers the approval; its command line names a key, too."""
    fleet = Fleet(key_file="console.key.pem")
    fleet.status(WEB_3, commands="signed")
    fleet.event(WEB_3)

    assert "" == fleet.shown["obstacle"]
    assert f"sebridge approve {EVENT} --vm web_3 --key-file KEY.pem" == fleet.shown["command"]


def test_event_with_two_leaders_cannot_be_approved(fleet: Fleet) -> None:
    """A machine that forges another's event gets nobody's approval."""
    fleet.event(WEB_3)
    fleet.event(WEB_4, resources=("web_4",), leader=True)

    assert "two machines claim to lead it" in fleet.shown["obstacle"]


def test_outcomes_move_the_approval_and_never_weaken_it(fleet: Fleet) -> None:
    """A refused second command does not undo the first."""
    fleet.event(WEB_3)
    fleet.outcome(WEB_3, status="approved", http_status=200, waiting_on=("other",))
    waiting = fleet.shown["waitingOn"]
    fleet.outcome(WEB_3, status="rejected", reason="already-approved", sequence=3)
    after_refusal = fleet.shown["approval"]
    fleet.outcome(WEB_3, status="confirmed", sequence=4)

    assert (("other",), "approved") == (waiting, after_refusal)
    assert ("confirmed", ()) == (fleet.shown["approval"], fleet.shown["waitingOn"])
    assert ["approved", "rejected", "confirmed"] == [o["status"] for o in fleet.shown["outcomes"]]


def test_outcome_of_another_agent_changes_nothing(fleet: Fleet) -> None:
    """Nobody answers for another: it is in the history, and only there."""
    fleet.event(WEB_3)
    fleet.outcome(WEB_4, status="approved")

    assert "none" == fleet.shown["approval"]
    assert ["scheduled", "approved"] == fleet.kinds


def test_request_shows_as_sent_until_it_is_answered(fleet: Fleet) -> None:
    """Between the click and the outcome the page says that it waits."""
    fleet.event(WEB_3)
    request = Request(by="ada", at=fleet.now, key="k1", command_id="c1", reason="drained")
    fleet.state.record_request(KEY, request, fleet.now)
    sent = fleet.shown["approval"]
    fleet.outcome(WEB_3, status="rejected", reason="not-leader", idempotency_key="k1")

    assert ("sent", "rejected") == (sent, fleet.shown["approval"])
    assert "ada" == fleet.shown["request"]["by"]
    assert "" == fleet.shown["obstacle"]


@pytest.mark.parametrize("name", ["a'; rm -rf ~", "--config=/etc/passwd", "a\x1b[2J", "$(id)"])
def test_command_to_copy_is_safe_to_paste(fleet: Fleet, name: str) -> None:
    """Names from the wire are quoted for a shell, or not offered at all."""
    fleet.say(WEB_3, "events", event(WEB_3, name))

    command = fleet.shown["command"]
    assert command == "" or name.replace("'", "'\"'\"'") in command.split(" --vm ")[0]
    assert command == "" or command.startswith("sebridge approve '")
    assert command.isprintable()


def test_limits_hold() -> None:
    """Too many VMs, events and rows are refused; a pending event never makes room."""
    fleet = Fleet(vms_max=2, events_max=2, history_rows_max=3)
    for number in range(4):
        machine = vm(f"web_{number}")
        fleet.status(machine)
        fleet.say(machine, "events", event(machine, f"E{number}"))
    everything = fleet.state.everything(fleet.now)

    assert (2, 2) == (len(everything.vms), len(everything.events))
    assert 4 == fleet.state.refused
    ended = event(vm("web_0"), "E0", transition="completed", sequence=9)
    fleet.say(vm("web_0"), "events", ended)
    fleet.say(WEB_3, "events", event(WEB_3, "E9"))
    everything = fleet.state.everything(fleet.now)
    assert {"E1", "E9"} == {shown["id"] for shown in everything.events}
    assert 3 == len(everything.history)


@given(st.sampled_from(["events", "pending", "outcomes", "status"]), st.binary(max_size=200))
def test_apply_never_raises(channel: FeedChannel, payload: bytes) -> None:
    """Whatever arrives, the picture stays whole."""
    fleet = Fleet()
    fleet.event(WEB_3)
    fleet.say(WEB_3, channel, payload, EVENT)

    assert msgspec.json.encode(fleet.shown)
