"""What the ledger holds of the events in a document, read before the document comes."""

from typing import NamedTuple

from bridge.core import approvals
from bridge.core.document import Document
from bridge.store import Store


class Known(NamedTuple):
    entries: dict[str, approvals.Entry]
    tokens: dict[str, str]
    fenced: frozenset[str]
    foreign: frozenset[str]


class KnownEvents:
    """Read again only when the ledger was written to, so that asking ahead costs nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: Known | None = None
        self._commits = -1

    def look_up(self, before: Document | None) -> Known:
        """`before` is the newest document that was recorded."""
        commits = self._store.commits
        if self._known is None or self._commits != commits:
            self._known = self._read(before)
            self._commits = commits
        return self._known

    def _read(self, before: Document | None) -> Known:
        store = self._store
        # Only what ran already can have been foreign, and on most days nothing runs.
        runs = before is not None and any(e.is_started for e in before.scheduled_events)
        foreign = store.foreign() if runs else frozenset[str]()
        return Known(store.entries(), store.tokens(), store.fenced(), foreign)
