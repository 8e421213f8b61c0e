"""An intake on a real ledger, for tests that hand it commands."""

from typing import Any

import msgspec

from bridge.core.approvals import Rules
from bridge.core.cloudevents import Vm, decode
from bridge.core.commands import Wire
from bridge.core.document import Document
from bridge.intake import Intake, Verify
from bridge.store import Store
from bridge.transports import Incoming
from tests.builders import VM_NAME, document, scheduled_event
from tests.fakes import FakeClock, ListSource


class Desk:
    """An intake with a document to decide on, and what it told the others."""

    def __init__(
        self,
        store: Store,
        clock: FakeClock,
        *,
        verify: Verify | None = None,
        per_s_max: float = 20.0,
        **rules: Any,
    ) -> None:
        self.store = store
        self.document: Document | None = document(scheduled_event())
        self.accepted = 0
        self.source = ListSource()
        self.intake = Intake(
            store,
            clock,
            Rules(vm_name=VM_NAME, **rules),
            vm=Vm(name=VM_NAME),
            payload_bytes_max=65_536,
            per_s_max=per_s_max,
            verify=verify,
            document=lambda: self.document,
            on_accept=self._accept,
            on_answer=lambda: None,
        )

    def _accept(self) -> None:
        self.accepted += 1

    async def take(
        self, payload: bytes, *, retained: bool = False, position: tuple[str, str] | None = None
    ) -> None:
        incoming = self.source.incoming(payload, retained=retained)
        await self.intake.step(msgspec.structs.replace(incoming, position=position))

    async def take_wire(self, wire: Wire) -> None:
        await self.intake.step(Incoming(wire=wire, ack=lambda: None))

    def answers(self) -> list[dict[str, Any]]:
        rows = self.store.batch("memory", 100)
        return [msgspec.json.decode(decode(row.cloudevent).data) for row in rows]

    def reasons(self) -> list[str]:
        return [answer["reason"] for answer in self.answers()]
