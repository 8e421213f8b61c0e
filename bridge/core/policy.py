"""Which rule speaks for an event. First match wins; without a match a person decides."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from bridge.core.document import KNOWN_TYPES, ScheduledEvent, folded

Action = Literal["auto", "remote", "deny"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[approvals.rules]]` table. An empty list matches everything.

    Older api-versions do not say who is behind an event. Such an event may be anybody's, so a rule
    that denies some sources denies it, too, and one that allows some does not speak for it.
    """

    name: str
    action: Action
    event_types: tuple[str, ...] = ()
    event_sources: tuple[str, ...] = ()

    def matches(self, scheduled_event: ScheduledEvent) -> bool:
        source = scheduled_event.event_source
        is_source_matched = _listed(source, self.event_sources) or (
            self.action == "deny" and not source
        )
        return _listed(scheduled_event.event_type, self.event_types) and is_source_matched


class Verdict(msgspec.Struct, frozen=True):
    action: Action
    rule: str  # the rule's name, published with every outcome


REMOTE_BY_DEFAULT = Verdict(action="remote", rule="default")
UNKNOWN_TYPE = Verdict(action="deny", rule="unknown event type")


def evaluate(rules: Sequence[Rule], scheduled_event: ScheduledEvent) -> Verdict:
    """The verdict for one event.

    An event type that this version does not know is approved by nobody, unless a rule names it:
    what it does to the machine is not known either.
    """
    for rule in rules:
        if rule.matches(scheduled_event) and _may_speak(rule, scheduled_event):
            return Verdict(action=rule.action, rule=rule.name)
    if scheduled_event.event_type not in KNOWN_TYPES:
        return UNKNOWN_TYPE
    return REMOTE_BY_DEFAULT


def _may_speak(rule: Rule, scheduled_event: ScheduledEvent) -> bool:
    return bool(rule.event_types) or scheduled_event.event_type in KNOWN_TYPES


def _listed(value: str, allowed: tuple[str, ...]) -> bool:
    return not allowed or value.casefold() in folded(allowed)
