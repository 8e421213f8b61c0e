"""The store as a whole: whether it is durable, what becomes of it when the disk is not, its end."""

from bridge.errors import StoreError
from bridge.store.connection import Database
from bridge.store.figures import WithFigures
from bridge.store.meta import get_meta, set_meta
from bridge.store.opening import new_ledger_id


class Lifecycle(WithFigures):
    """Base of `Outbox`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.reading() as raw:
            self.ledger_id = (get_meta(raw, "ledger_id") or b"").decode()
            self._sequence = int(get_meta(raw, "sequence") or 0)
            self.ledger_lost = get_meta(raw, "ledger_lost") == b"1"

    @property
    def durable(self) -> bool:
        return self._database.durable

    @property
    def problem(self) -> str:
        return self._database.problem

    @property
    def commits(self) -> int:
        """How many there were: what was read before the last of them may have changed."""
        return self._database.commits

    def make_room(self) -> None:
        """At a quiet moment: the next commits will be quicker."""
        self._database.make_room()

    def degrade(self, problem: str) -> None:
        """The disk takes no more: go on in memory, under a new id, without approvals."""
        was_durable = self.durable
        self._database.degrade(problem)
        if was_durable:
            with self._database.transaction() as raw:
                self.ledger_id = new_ledger_id()
                set_meta(raw, "ledger_id", self.ledger_id.encode())

    def condemn(self, why: str) -> StoreError:
        """For the reader of what is kept here: it cannot be understood, so it is damaged."""
        return self._database.condemn(f"the ledger {self._database.path} is damaged: {why}")

    def close(self) -> None:
        self._database.close()
