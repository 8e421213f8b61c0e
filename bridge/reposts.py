"""`in_doubt = "repost"`: may a doubt be posted again, and when?

Azure calls a repeated POST harmless; the default does not rely on it. It is the operator's will,
but it keeps what the sender and Azure were promised: only while the command has not expired, and
never past NotBefore. Nothing is posted from here, and no answer is given: the command has had its
one, `in-doubt`.
"""

from collections.abc import Sequence
from datetime import datetime

from bridge.clock import Clock
from bridge.config import Approvals
from bridge.core.approvals import Reject
from bridge.core.document import Document
from bridge.store import AcceptedRow, Store

# How long after each POST in doubt the next may go. An answer that was lost once comes the second
# time; an IMDS that is being updated is away for minutes.
_AFTER_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
# How often a doubt that is due looks for a fresh document.
_LOOK_AGAIN_S = 1.0


def is_repost(row: AcceptedRow) -> bool:
    """Its command has an answer already: what is posted now is the operator's word alone."""
    return row.command.answer is not None


def check_repost(
    row: AcceptedRow, document: Document, config: Approvals, now: datetime
) -> Reject | None:
    """What is asked of a repost beyond what is asked of every POST."""
    if config.in_doubt != "repost":
        return Reject("in-doubt", "it is only watched: approvals.in_doubt is not repost")
    if row.command.status != "in-doubt":
        # A command that overrode the doubt held the event last, and its sender was told "rejected".
        return Reject("in-doubt", f"its last command was answered {row.command.status}")
    scheduled_event = document.find(row.event_id)
    not_before = scheduled_event.not_before if scheduled_event else None
    if not_before and now >= not_before:
        return Reject("in-doubt", "Azure goes ahead without an approval: NotBefore has passed")
    return None


class Reposts:
    """When each doubt is due. After a restart every one waits its first time again."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # By the key of the command that holds the doubt: another command starts anew.
        self._begun: dict[str, int] = {}
        self._due_at_s: dict[str, float] = {}

    def begin(self, doubts: Sequence[AcceptedRow]) -> None:
        """Give what is due back to the approver."""
        for row in doubts:
            due_at_s = self._due_at_s.get(row.key)
            if due_at_s is not None and due_at_s <= self._clock.elapsed_s():
                self._store.begin_repost(row.event_id, self._clock.now())
                self._begun[row.key] = self._begun.get(row.key, 0) + 1
                del self._due_at_s[row.key]

    def delay_s(self, doubts: Sequence[AcceptedRow]) -> float | None:
        """How long until the first of them is due."""
        now_s = self._clock.elapsed_s()
        for row in doubts:
            pause_s = _AFTER_S[min(self._begun.get(row.key, 0), len(_AFTER_S) - 1)]
            self._due_at_s.setdefault(row.key, now_s + pause_s)
        wait_s = min((self._due_at_s[row.key] - now_s for row in doubts), default=None)
        return _LOOK_AGAIN_S if wait_s is not None and wait_s <= 0 else wait_s
