"""The demo's story, words and screen, without a process or a port."""

import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bridge.demo.screen import Heading, Style, fold, render
from bridge.demo.stage import ROOT, Stage
from bridge.demo.story import AUDITED, BATCH, SCALE_SETS, STORY, WEB, Announce, Cancel, ScaleIn
from bridge.simulator import fleet as fleets
from bridge.simulator.settings import build_fleet

NOON = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
ZONES = {"web_1": "1", "web_2": "2", "web_3": "3"}
HEADING = Heading(
    lapse="Time lapse",
    places=(("events", "mosquitto_sub -p 1883"), ("watch", "sebridge watch --config /x/y.toml")),
    approve="sebridge approve {event_id} --config /var/folders/sebridge-12345678/operator.toml",
)
SIZES = [(80, 24), (100, 40), (40, 10), (200, 60), (20, 3)]


def visible(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


@pytest.fixture
def stage() -> Stage:
    return Stage(ZONES, lambda: 61.0)


def tell(stage: Stage, vm: str, channel: str, **data: Any) -> None:
    stage.receive(f"{ROOT}{vm}/{channel}", msgspec.json.encode({"data": data}))


def schedule(stage: Stage, vm: str, event_type: str = "Terminate", **more: Any) -> None:
    """The EventId is the VM's name."""
    tell(
        stage,
        vm,
        "events",
        **{
            "transition": "scheduled",
            "event": {"EventId": vm, "EventType": event_type},
            "notBefore": "2099-11-18T12:01:30.000Z",
            "approval": {"state": "none"},
            **more,
        },
    )


def approve(stage: Stage, vm: str, **more: Any) -> None:
    data = {"status": "approved", "eventId": vm, "httpStatus": 200, "requestedBy": "/ops", **more}
    tell(stage, vm, "outcomes", **data)


def test_story_has_five_vms_in_three_zones_and_begins_within_ten_seconds() -> None:
    """What the demo promises before anything else."""
    web = build_fleet(WEB, "seed", NOON)

    assert len(web.vms) >= 5
    assert {"1", "2", "3"} == {vm.zone for vm in web.vms}
    assert STORY[0].at_s < 10
    assert list(STORY) == sorted(STORY, key=lambda beat: beat.at_s)


def test_story_explains_the_choice_that_the_policy_makes() -> None:
    """Zones 1 and 2 are the fullest, and the oldest VMs there are those that go."""
    assert isinstance(STORY[0].action, ScaleIn)
    web, names = fleets.scale_in(build_fleet(WEB, "seed", NOON), STORY[0].action.count, NOON)

    assert names == ("web_1", "web_2")
    assert ["1", "2"] == [vm.zone for vm in web.vms if vm.name in names]
    assert "Zones 1 and 2" in STORY[0].says
    assert WEB.policy in STORY[0].says


def test_story_names_vms_that_are_there_and_not_about_to_go() -> None:
    """No beat speaks of a VM that the scale-in takes away, and cancels come after announcements."""
    staying = {vm.name for s in SCALE_SETS for vm in build_fleet(s, "seed", NOON).vms} - {
        "web_1",
        "web_2",
    }
    announced: list[str] = []
    for beat in STORY[1:]:
        assert not isinstance(beat.action, ScaleIn)
        assert beat.action.vm in staying
        if isinstance(beat.action, Announce):
            announced.append(beat.action.vm)
        if isinstance(beat.action, Cancel):
            assert beat.action.vm in announced

    assert AUDITED in announced
    assert BATCH.spot


def test_stage_approved_terminate_waits_for_the_other(stage: Stage) -> None:
    """The row says for whom; and when both are approved, for nobody."""
    schedule(stage, "web_1")
    schedule(stage, "web_2")
    approve(stage, "web_1", waitingOn=["web_2"])
    halfway = {row.vm: row.note for row in stage.rows(NOON)}
    approve(stage, "web_2", waitingOn=["web_1"])

    assert halfway == {
        "web_1": "approved, waits for web_2",
        "web_2": "waits for an approval",
        "web_3": "",
    }
    assert {"approved", ""} == {row.note for row in stage.rows(NOON)}
    assert [] == stage.awaiting()
    assert "waits" not in stage.lines[-1].text


def test_stage_counts_down_to_not_before_and_not_below_zero(stage: Stage) -> None:
    """Time left is NotBefore minus now."""
    schedule(stage, "web_1")
    not_before = datetime(2099, 11, 18, 12, 1, 30, tzinfo=UTC)
    left = [
        stage.rows(not_before + timedelta(seconds=after))[0].left_s for after in (-90, -1, 0, 5)
    ]

    assert left == [90, 1, 0, 0]


def test_stage_asks_a_person_only_where_no_rule_speaks(stage: Stage) -> None:
    """Freezes go by rule, evictions by themselves; the rest is the viewer's, by name if equal."""
    schedule(stage, "web_3")
    schedule(stage, "web_2", "Freeze")
    schedule(stage, "web_1", "Reboot")

    assert ["web_1", "web_3"] == [pending.vm for pending in stage.awaiting()]


def test_stage_gone_vm_has_nothing_pending(stage: Stage) -> None:
    """A deleted VM's agent cannot publish the end; the stage knows it all the same."""
    schedule(stage, "web_1")
    stage.lose("web_1")
    tell(stage, "web_1", "status", status="offline")

    assert ("gone", "") == (stage.rows(NOON)[0].agent, stage.rows(NOON)[0].event_type)
    assert [] == stage.awaiting()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[]",
        b'{"data": 1}',
        b'{"data": {"transition": "x"}}',
        b'{"data": {"transition": "scheduled", "event": {"EventId": "$(reboot)", "EventType": "X"}}}',
        b"\xff",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("channel", ["events", "outcomes", "status"])
def test_stage_bad_message_is_said_and_changes_nothing(
    stage: Stage, channel: str, payload: bytes
) -> None:
    """Anyone may publish to the demo's broker."""
    before = stage.rows(NOON)
    stage.receive(f"{ROOT}web_1/{channel}", payload)

    assert stage.said == 1
    assert before == stage.rows(NOON)


def test_stage_says_nothing_that_steers_a_terminal(stage: Stage) -> None:
    """An outcome with an escape sequence in it is shown as text."""
    schedule(stage, "web_1")
    approve(stage, "web_1", requestedBy="\x1b[2J/ops")

    assert stage.lines[-1].text.startswith("Approved by \\x1b[2J/ops")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("style", [Style(), Style(colour=False, unicode=False)])
def test_screen_fills_the_terminal_exactly(
    stage: Stage, size: tuple[int, int], style: Style
) -> None:
    """As many lines as there are rows, whatever is pending; the story keeps some of them."""
    for vm in ZONES:
        schedule(stage, vm)
    for number in range(50):
        stage.say("demo", f"line {number}")
    lines = [visible(line) for line in render(HEADING, stage, NOON, style, size)]

    assert len(lines) == size[1]
    if size == (80, 24):
        assert max(map(len, lines)) <= 80
        assert "(3 wait for you)" in "".join(lines)
        assert ["line 47", "line 48", "line 49"] == [line[16:] for line in lines[-3:]]
    if not style.colour:
        assert all(line.isascii() for line in lines)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_screen_command_can_be_pasted_however_it_is_folded(width: int) -> None:
    """Two lines and a backslash are one command for a shell."""
    command = HEADING.approve.format(event_id="602D9444-D2CD-49C7-8624-8643E7171297")
    folded = fold(command, width)

    assert shlex.split(command) == shlex.split("\n".join(folded).replace("\\\n", " "))
    assert (len(folded) == 1) == (len(command) <= width)
