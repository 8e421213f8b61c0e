"""Two ledgers behind one small interface: the table of the core alone, and the real store."""

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from bridge.approver import cut_short
from bridge.core import approvals
from bridge.core.approvals import MOVES, Approve, Entry, State
from bridge.core.cloudevents import CloudEvent, OutcomeData, OutcomeStatus, Vm, from_outcome
from bridge.core.commands import Command
from bridge.store import Confirmation, Store
from bridge.store.connection import Database, connect_memory
from bridge.store.opening import prepare
from tests.builders import EVENT_ID, NOW, VM_NAME

VM = Vm(name=VM_NAME)


class Illegal(Exception):
    """The ledger refused; nothing has changed."""


class Ledger(Protocol):
    """One EventId's part of a ledger. Every method gives a new ledger or raises `Illegal`."""

    def entry(self) -> Entry | None: ...
    def shape(self) -> tuple[State | None, bool, int]: ...
    def accept(self, command: Command, approve: Approve) -> "Ledger": ...
    def begin(self) -> "Ledger": ...
    def finish(self, status: int | None) -> "Ledger": ...
    def recover(self) -> "Ledger": ...
    def reject(self) -> "Ledger": ...
    def confirm(self) -> "Ledger": ...
    def repost(self) -> "Ledger": ...
    def unanswered(self) -> int: ...


class TableLedger(NamedTuple):
    """Nothing but `approvals.MOVES`: what the core says, without SQL."""

    state: State | None = None
    key: str = ""
    override: bool = False
    counted: int = 0  # POSTs that may have counted and were not overridden
    open_commands: int = 0

    def entry(self) -> Entry | None:
        if self.state is None:
            return None
        return Entry(event_id=EVENT_ID, state=self.state, key=self.key)

    def shape(self) -> tuple[State | None, bool, int]:
        return self.state, self.override, self.counted

    def accept(self, command: Command, approve: Approve) -> "TableLedger":
        moved = self._move("accepted")
        waived = approve.overrides_doubt
        if self.state == "in-doubt" and not waived:
            raise Illegal("only an override leads back from in-doubt")
        return moved._replace(
            key=command.key,
            override=waived,
            counted=0 if waived else self.counted,
            open_commands=self.open_commands + 1,
        )

    def begin(self) -> "TableLedger":
        if self.counted:
            raise Illegal("an earlier POST may have counted")
        return self._move("sending")._replace(counted=1)

    def finish(self, status: int | None) -> "TableLedger":
        if status == 429:
            return self._move("accepted")._replace(counted=0)
        end = approvals.post_result(status)
        if end == "rejected":
            return self._move(self._resting())._replace(counted=0, open_commands=0)
        return self._move(end)._replace(open_commands=0)

    def recover(self) -> "TableLedger":
        if self.state != "sending":
            return self
        return self._move("in-doubt")._replace(open_commands=0)

    def reject(self) -> "TableLedger":
        return self._move(self._resting())._replace(open_commands=0)

    def confirm(self) -> "TableLedger":
        return self._move("confirmed") if self.state in {"approved", "in-doubt"} else self

    def repost(self) -> "TableLedger":
        if self.state != "in-doubt":
            raise Illegal("only a doubt is posted again")
        return self._move("accepted")._replace(override=True, counted=0)

    def unanswered(self) -> int:
        return self.open_commands

    def _resting(self) -> State:
        return "in-doubt" if self.override else "rejected"

    def _move(self, new: State) -> "TableLedger":
        if new not in MOVES[self.state]:
            raise Illegal(f"{self.state} to {new}")
        return self._replace(state=new)


class StoreLedger:
    """The real store with its triggers, in memory; copied before each call."""

    def __init__(self, image: bytes | None = None) -> None:
        self._image = image or _empty()

    def entry(self) -> Entry | None:
        with _Opened(self._image) as store:
            return store.entry(EVENT_ID)

    def shape(self) -> tuple[State | None, bool, int]:
        with _Opened(self._image) as store:
            entry = store.entry(EVENT_ID)
            rows = store._all("SELECT override FROM approvals")
            counted = store._all("SELECT 1 FROM posts WHERE counted = 1 AND waived = 0")
        return entry.state if entry else None, bool(rows and rows[0]["override"]), len(counted)

    def accept(self, command: Command, approve: Approve) -> "StoreLedger":
        with _Opened(self._image) as store:
            store.accept(command, approve, received_at=NOW, expires_at=NOW + timedelta(minutes=5))
            return StoreLedger(_image(store))

    def begin(self) -> "StoreLedger":
        with _Opened(self._image) as store:
            store.begin_post(EVENT_ID, NOW)
            return StoreLedger(_image(store))

    def finish(self, status: int | None) -> "StoreLedger":
        with _Opened(self._image) as store:
            number = store._all("SELECT number FROM posts WHERE ended_at IS NULL")[0]["number"]
            state = "accepted" if status == 429 else approvals.post_result(status)
            store.finish_post(
                number,
                state=state,
                http_status=status,
                result="",
                outcome=None if state == "accepted" else _outcome(state),
                now=NOW,
            )
            return StoreLedger(_image(store))

    def recover(self) -> "StoreLedger":
        with _Opened(self._image) as store:
            store.recover(NOW, lambda command: cut_short(command, VM, NOW))
            return StoreLedger(_image(store))

    def reject(self) -> "StoreLedger":
        with _Opened(self._image) as store:
            store.reject_accepted(EVENT_ID, reason="expired", outcome=_outcome("rejected"), now=NOW)
            return StoreLedger(_image(store))

    def confirm(self) -> "StoreLedger":
        confirmation = Confirmation(event_id=EVENT_ID, cloudevent=_outcome("confirmed"))
        with _Opened(self._image) as store:
            store.record(b"seen", [], [confirmation], NOW)
            return StoreLedger(_image(store))

    def repost(self) -> "StoreLedger":
        with _Opened(self._image) as store:
            store.begin_repost(EVENT_ID, NOW)
            return StoreLedger(_image(store))

    def unanswered(self) -> int:
        with _Opened(self._image) as store:
            return len(store._all("SELECT 1 FROM commands WHERE answer IS NULL"))


class _Opened:
    def __init__(self, image: bytes) -> None:
        raw = connect_memory()
        raw.deserialize(image)
        self._database = Database(raw, Path("in memory"))

    def __enter__(self) -> Store:
        return Store(self._database)

    def __exit__(self, *_: object) -> None:
        self._database.raw.close()


def _image(store: Store) -> bytes:
    return store._database.raw.serialize()


def _empty() -> bytes:
    database = Database(connect_memory(), Path("in memory"))
    prepare(database, NOW, "vm", lost=False)
    image = database.raw.serialize()
    database.raw.close()
    return image


def _outcome(status: OutcomeStatus) -> CloudEvent:
    data = OutcomeData(status=status, event_id=EVENT_ID, idempotency_key="k")
    return from_outcome(data, vm=VM, now=NOW)
