"""The first rule that matches speaks; nobody speaks for a type that is not known."""

import pytest

from bridge.core.policy import REMOTE_BY_DEFAULT, UNKNOWN_TYPE, Rule, Verdict, evaluate
from tests.builders import scheduled_event

AUTO_ALL = Rule(name="all", action="auto")
DENY_REBOOT = Rule(name="no reboots", action="deny", event_types=("reboot",))
AUTO_USER = Rule(name="users", action="auto", event_sources=("user",))
DENY_PLATFORM = Rule(name="no platform", action="deny", event_sources=("Platform",))
AUTO_NEW = Rule(name="new", action="auto", event_types=("Hibernate",))


@pytest.mark.parametrize(
    ("rules", "event_type", "event_source", "expected"),
    [
        ((), "Reboot", "Platform", REMOTE_BY_DEFAULT),
        ((), "Hibernate", "Platform", UNKNOWN_TYPE),
        ((), "", "", UNKNOWN_TYPE),
        ((AUTO_ALL,), "Reboot", "Platform", Verdict("auto", "all")),
        ((AUTO_ALL,), "Hibernate", "Platform", UNKNOWN_TYPE),
        ((AUTO_ALL, AUTO_NEW), "Hibernate", "User", Verdict("auto", "new")),
        ((DENY_REBOOT, AUTO_ALL), "Reboot", "Platform", Verdict("deny", "no reboots")),
        ((DENY_REBOOT, AUTO_ALL), "Freeze", "Platform", Verdict("auto", "all")),
        ((AUTO_ALL, DENY_REBOOT), "Reboot", "Platform", Verdict("auto", "all")),
        ((AUTO_USER,), "Reboot", "User", Verdict("auto", "users")),
        ((AUTO_USER,), "Reboot", "Platform", REMOTE_BY_DEFAULT),
        ((AUTO_USER,), "Reboot", "", REMOTE_BY_DEFAULT),
        ((DENY_PLATFORM, AUTO_ALL), "Reboot", "Platform", Verdict("deny", "no platform")),
        ((DENY_PLATFORM, AUTO_ALL), "Reboot", "User", Verdict("auto", "all")),
        ((DENY_PLATFORM, AUTO_ALL), "Reboot", "", Verdict("deny", "no platform")),
    ],
)
def test_evaluate_first_match_wins(
    rules: tuple[Rule, ...], event_type: str, event_source: str, expected: Verdict
) -> None:
    """Rules match in any case and in order, and unknown types only by name."""
    event = scheduled_event(event_type=event_type, event_source=event_source)

    assert evaluate(rules, event) == expected
