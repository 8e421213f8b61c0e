"""The approval machine, explored to the end: every state, every input, a crash at every point.

Breadth first, once over the table of the core and once over the real store with its triggers.
The real `decide` and `recheck` say what may happen; a ghost counts the POSTs that left.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from bridge.core.approvals import Approve, Reject, Rules, Situation
from bridge.core.decide import decide, recheck
from bridge.core.document import Document
from bridge.errors import StoreError
from tests.builders import NOW, VM_NAME, command, document, scheduled_event
from tests.model.ledgers import Illegal, Ledger, StoreLedger, TableLedger

RULES = Rules(vm_name=VM_NAME)
STATUSES = (200, 202, 307, 400, 403, 404, 405, 410, 429, 500, 503, None)
REFUSED = {400, 403, 404, 405, 429}
DOCUMENTS: dict[str, Document] = {
    "scheduled": document(scheduled_event()),
    "started": document(scheduled_event(event_status="Started")),
    "changed": document(scheduled_event(event_type="Redeploy")),
    "gone": document(),
}


class Node(NamedTuple):
    ledger: Ledger
    seen: str  # which document the poller saw last
    posts: int  # POSTs that left and may have counted, since a person last overrode

    def shape(self) -> tuple[object, ...]:
        return (*self.ledger.shape(), self.seen, self.posts)


def successors(node: Node) -> Iterator[tuple[str, Node]]:
    yield from _look(node)
    yield from _ask(node)
    yield "restart", node._replace(ledger=node.ledger.recover())
    entry = node.ledger.entry()
    if entry is None:
        return
    if entry.state == "in-doubt" and node.seen == "scheduled":
        yield "configured repost", node._replace(ledger=node.ledger.repost(), posts=0)
    if entry.state == "accepted":
        yield "expires", node._replace(ledger=node.ledger.reject())
        yield from _post(node)


def _look(node: Node) -> Iterator[tuple[str, Node]]:
    """The poller sees another document; what starts or ends is confirmed."""
    for name in DOCUMENTS.keys() - {node.seen}:
        ledger = node.ledger.confirm() if name in {"started", "gone"} else node.ledger
        yield f"sees {name}", node._replace(seen=name, ledger=ledger)


def _ask(node: Node) -> Iterator[tuple[str, Node]]:
    """A new command, with and without the override; refused ones leave no trace here."""
    number = _commands(node) + 1
    for override in (frozenset[str](), frozenset({"in-doubt"})):
        asked = command(key=f"key-{number}", id=f"id-{number}", override=override)
        situation = Situation(now=NOW, document=DOCUMENTS[node.seen], entry=node.ledger.entry())
        decision = decide(asked, situation, RULES)
        if isinstance(decision, Approve):
            posts = 0 if decision.overrides_doubt else node.posts
            ledger = node.ledger.accept(asked, decision)
            yield f"command {sorted(override)}", node._replace(ledger=ledger, posts=posts)


def _post(node: Node) -> Iterator[tuple[str, Node]]:
    """The approver: check again, `sending`, first byte, answer; the process may die between."""
    refusal = recheck(scheduled_event(), DOCUMENTS[node.seen], RULES)
    if isinstance(refusal, Reject):
        yield f"refused: {refusal.reason}", node._replace(ledger=node.ledger.reject())
        return
    sending = node.ledger.begin()
    yield "dies before the first byte", node._replace(ledger=sending.recover())
    yield "frozen before the first byte", node._replace(ledger=sending.finish(None))
    sent = node.posts + 1
    yield "dies after the first byte", node._replace(ledger=sending.recover(), posts=sent)
    for status in STATUSES:
        posts = node.posts if status in REFUSED else sent
        yield f"POST {status}", node._replace(ledger=sending.finish(status), posts=posts)


def _commands(node: Node) -> int:
    entry = node.ledger.entry()
    return int(entry.key.removeprefix("key-")) if entry else 0


def explore(start: Ledger) -> dict[tuple[object, ...], tuple[Node, tuple[str, ...]]]:
    """Every reachable shape, with the shortest way to it."""
    first = Node(start, "scheduled", 0)
    found: dict[tuple[object, ...], tuple[Node, tuple[str, ...]]] = {first.shape(): (first, ())}
    queue: deque[tuple[Node, tuple[str, ...]]] = deque([(first, ())])
    while queue:
        node, way = queue.popleft()
        for name, successor in successors(node):
            check(successor, (*way, name))
            if successor.shape() not in found:
                found[successor.shape()] = (successor, (*way, name))
                queue.append((successor, (*way, name)))
    return found


def check(node: Node, way: tuple[str, ...]) -> None:
    state, _, counted = node.ledger.shape()
    assert node.posts <= 1, f"two POSTs that may have counted: {way}"
    assert node.posts <= counted, f"a POST left and the ledger does not count it: {way}"
    assert state in {"accepted", "sending"} or node.ledger.unanswered() == 0, way


@pytest.mark.parametrize("start", [TableLedger(), StoreLedger()], ids=["table", "store"])
def test_no_way_leads_to_a_second_post(start: Ledger) -> None:
    """From every reachable state, no input and no crash lets a second POST count."""
    found = explore(start)

    states = {shape[0] for shape in found}
    assert states == {None, "accepted", "approved", "in-doubt", "rejected", "confirmed"}
    assert len(found) > 50


def test_table_and_store_reach_the_same_states() -> None:
    """The SQL and the table of the core are the same machine."""
    assert explore(TableLedger()).keys() == explore(StoreLedger()).keys()


def test_every_call_in_every_state_is_legal_in_both_or_in_neither() -> None:
    """Calls that the agent would never make are refused by the store as by the table."""
    table, store = explore(TableLedger()), explore(StoreLedger())
    approve = Approve(scheduled_event(), "rule")
    override = Approve(scheduled_event(), "rule", overrides_doubt=True)
    asked = command(key="key-99", id="id-99")
    for shape in table:
        for name, arguments in [
            ("begin", ()),
            ("reject", ()),
            ("repost", ()),
            ("accept", (asked, approve)),
            ("accept", (asked, override)),
        ]:
            if arguments[1:] == (override,) and shape[0] != "in-doubt":
                continue  # decide() never says so, and the store has no word on it
            one = attempt(table[shape][0].ledger, name, arguments)
            other = attempt(store[shape][0].ledger, name, arguments)

            assert one == other, (shape, name)


def attempt(ledger: Ledger, name: str, arguments: tuple[object, ...]) -> object:
    try:
        return getattr(ledger, name)(*arguments).shape()
    except (Illegal, StoreError):
        return "refused"
