"""An approver on a real ledger, for tests that script what IMDS answers."""

from collections.abc import Callable
from typing import Any

import msgspec

from bridge.approver import Approver
from bridge.config import Approvals
from bridge.core.approvals import Approve, Rules
from bridge.core.cloudevents import Vm, decode
from bridge.core.document import Document, ScheduledEvent
from bridge.start_request import PostResult
from bridge.store import Store
from tests.builders import EVENT_ID, VM_NAME, command, document, scheduled_event
from tests.fakes import FakeClock

VM = Vm(name=VM_NAME)


class Office:
    """An approver, the IMDS it would post to, and the steps it took, in order."""

    def __init__(self, store: Store, clock: FakeClock, **config: Any) -> None:
        self.store, self.clock = store, clock
        self.document: Document | None = document(scheduled_event())
        self.on_post: Callable[[], int | None] = lambda: 200
        self.on_connect: Callable[[], None] = lambda: None
        self.on_flush: Callable[[], None] = lambda: None
        self.steps: list[str] = []
        self.approver = Approver(
            Approvals(**config),
            store,
            clock,
            Rules(vm_name=VM_NAME),
            vm=VM,
            document=lambda: self.document,
            connect=self._connect,
            flush=self._flush,
            on_answer=lambda: None,
        )

    def accept(self, key: str = "k", event: ScheduledEvent | None = None, **fields: Any) -> None:
        found = event or scheduled_event()
        fields = {"key": key, "id": key, "event_id": found.event_id} | fields
        asked = command(**fields)
        expires_at = asked.expires_at or self.clock.now().replace(year=2027)
        doubted = "in-doubt" in asked.override
        self.store.accept(
            asked,
            Approve(found, "default", overrides_doubt=doubted),
            received_at=self.clock.now(),
            expires_at=expires_at,
        )
        self.approver.wake()

    async def _connect(self) -> "Office":
        self.on_connect()
        self.steps.append("connect")
        return self

    async def post(self, event_id: str, timeout_s: float) -> PostResult:
        state = self.store.entry(event_id)
        self.steps.append(f"post {event_id} while {state.state if state else None}")
        return PostResult(self.on_post(), "said IMDS")

    def close(self) -> None:
        self.steps.append("close")

    async def _flush(self, seconds: float) -> None:
        self.on_flush()
        self.steps.append(f"flush {seconds:g}")

    @property
    def posts(self) -> int:
        return sum(step.startswith("post") for step in self.steps)

    def answers(self) -> list[tuple[str, str]]:
        rows = self.store.batch("memory", 100)
        data = [msgspec.json.decode(decode(row.cloudevent).data) for row in rows]
        return [(d["status"], d.get("reason", "")) for d in data]

    def state(self, event_id: str = EVENT_ID) -> str:
        entry = self.store.entry(event_id)
        return entry.state if entry else ""
