"""What should go wrong next, as told by a test, and counters of what came in.

A rule applies to the next `times` matching occasions (None: until cleared); older rules go first.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

KillMoment = Literal["before_store", "before_settle", "after_settle"]


@dataclass(frozen=True)
class Refuse:
    """Reject the transfer, link or token with an AMQP error condition."""

    condition: str
    description: str


@dataclass(frozen=True)
class Drop:
    """Take the transfer and never settle it."""

    stored: bool


@dataclass(frozen=True)
class Kill:
    """Close the TCP connection."""

    moment: KillMoment


@dataclass(frozen=True)
class Delay:
    """Store at once, settle later."""

    seconds: float


Fault = Refuse | Drop | Kill | Delay
Occasion = Literal["transfer", "link", "token"]


@dataclass
class _Rule:
    occasion: Occasion
    fault: Fault
    node: str | None
    times: int | None


@dataclass
class Counters:
    connections: int = 0
    put_tokens: int = 0
    put_tokens_refused: int = 0
    #: Every token that came, with its type, in order.
    tokens: list[tuple[str, str]] = field(default_factory=list)
    links: int = 0
    #: By error condition; the client keeps most of these to itself.
    links_refused: Counter[str] = field(default_factory=Counter)
    #: Whole deliveries on hub links, refused, dropped and killed ones included.
    transfers: int = 0
    batches: int = 0
    events: int = 0


class Faults:
    """Nodes are hub names in any case, or `$cbs` and `$management`; None means every hub."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def refuse(
        self,
        condition: str = "com.microsoft:server-busy",
        *,
        description: str = "refused by the test",
        times: int | None = 1,
        hub: str | None = None,
    ) -> None:
        """Reject transfers."""
        self._add("transfer", Refuse(condition, description), hub, times)

    def refuse_link(
        self,
        condition: str = "com.microsoft:server-busy",
        *,
        description: str = "refused by the test",
        times: int | None = 1,
        node: str | None = None,
    ) -> None:
        """Refuse links to a hub; to `$cbs` or `$management` only if named."""
        self._add("link", Refuse(condition, description), node, times)

    def refuse_token(self, *, times: int | None = 1) -> None:
        """Answer put-token with 401 whatever the token."""
        self._add("token", Refuse("amqp:unauthorized-access", "refused by the test"), None, times)

    def drop(self, *, stored: bool = False, times: int | None = 1, hub: str | None = None) -> None:
        """Take transfers, store them or not, and never settle."""
        self._add("transfer", Drop(stored), hub, times)

    def drop_token(self, *, times: int | None = 1) -> None:
        """Never answer put-token."""
        self._add("token", Drop(stored=False), None, times)

    def kill(
        self, moment: KillMoment = "before_settle", *, times: int | None = 1, hub: str | None = None
    ) -> None:
        """Close the TCP connection at a moment of the next transfers."""
        self._add("transfer", Kill(moment), hub, times)

    def delay(self, seconds: float, *, times: int | None = None, hub: str | None = None) -> None:
        """Settle transfers late."""
        self._add("transfer", Delay(seconds), hub, times)

    def clear(self) -> None:
        self._rules.clear()

    def take(self, occasion: Occasion, node: str) -> Fault | None:
        """Return the fault that this occasion shall meet, and use it up."""
        for rule in self._rules:
            if rule.occasion == occasion and _matches(rule, node):
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times == 0:
                        self._rules.remove(rule)
                return rule.fault
        return None

    def _add(self, occasion: Occasion, fault: Fault, node: str | None, times: int | None) -> None:
        self._rules.append(_Rule(occasion, fault, node and node.lower(), times))


def _matches(rule: _Rule, node: str) -> bool:
    if rule.node is None:
        return rule.occasion == "token" or not node.startswith("$")
    return rule.node == node.lower()
