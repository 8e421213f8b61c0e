"""Text for people: aligned, complete, and never a forged line."""

import tomllib
from typing import Any

import msgspec

from bridge import views
from bridge.config import Approvals, Config
from bridge.core.policy import Rule

COMMAND = {
    "key": "chg-1",
    "source": "/ops/oncall",
    "event_id": "602D",
    "why": "drained",
    "rule": "default",
    "status": "approved",
    "reason": "",
    "http_status": 200,
    "received_at": "2026-11-18T06:00:00.123456+00:00",
    "answered_at": None,
    "post_http_status": None,
}


def test_audit_shows_who_asked_what_and_why() -> None:
    """One aligned row a command, with a dash where nothing is known."""
    header, row = views.audit([COMMAND]).splitlines()

    assert row.split() == [
        "2026-11-18T06:00:00Z",
        "-",
        "602D",
        "chg-1",
        "/ops/oncall",
        "approved",
        "-",
        "default",
        "200",
        "drained",
    ]
    assert [header.index("KEY"), header.index("WHY")] == [row.index("chg-1"), row.index("drained")]


def test_audit_text_from_outside_cannot_forge_a_line() -> None:
    """A newline or an escape sequence in a reason is shown, not obeyed."""
    shown = views.audit([COMMAND | {"why": "x\n2026 approved\x1b[2J"}])

    assert len(shown.splitlines()) == 2
    assert "\\n2026 approved\\x1b[2J" in shown


def test_audit_empty_ledger_says_so() -> None:
    """Nothing is an answer, too."""
    assert views.audit([]) == "no command has been received"


def test_configuration_is_the_file_that_would_give_it() -> None:
    """What check-config prints can be used as the file."""
    rule = Rule(name="r", action="auto", event_types=("Reboot",))
    config = Config(approvals=Approvals(rules=(rule,)))

    printed = tomllib.loads(views.configuration(config))

    assert msgspec.convert(printed, Config) == config


def test_status_names_problems_and_pending_events() -> None:
    """The first look of an operator on the VM: what is wrong, and what is coming."""
    status = {
        "vm": {"name": "web_3"},
        "mode": "enforce",
        "commands": "unsigned",
        "durable": False,
        "poll": {"ageS": 1.25, "problem": "HTTP 500"},
        "sinks": {"mqtt": {"problem": "refused", "outbox": 3, "published": 7}},
        "commandSource": {"name": "eventhubs", "problem": "no such hub"},
        "pending": [{"EventId": "602D", "EventType": "Reboot", "Resources": ["web_3", "web_4"]}],
    }

    assert views.status(status).splitlines() == [
        "VM         web_3",
        "last poll  1.2 s ago (HTTP 500)",
        "approvals  enforce, refused: no ledger",
        "commands   unsigned: who may publish one may approve",
        "mqtt       refused; 3 to publish, 7 sent",
        "source     eventhubs: no such hub",
        "",
        "EVENT  TYPE    STATUS  NOT BEFORE  RESOURCES",
        "602D   Reboot  -       -           web_3, web_4",
    ]


def test_status_before_anything_is_known() -> None:
    """A start without IMDS shows as such."""
    status: dict[str, Any] = {
        "vm": None,
        "mode": "shadow",
        "commands": "signed",
        "durable": True,
        "poll": {"ageS": None, "problem": "waiting"},
        "sinks": {},
        "commandSource": {"name": "none", "problem": ""},
        "pending": [],
    }

    assert views.status(status).splitlines() == [
        "VM         not known yet",
        "last poll  never (waiting)",
        "approvals  shadow",
        "commands   signed",
        "",
        "no scheduled event is pending",
    ]
