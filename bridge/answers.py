"""The answer to a command that is refused at once: durable with the command's row, then repeated.

Nothing is decided here, and nothing is acknowledged. One command has one answer under one id,
however often it comes again.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from bridge.clock import Clock
from bridge.core import cloudevents
from bridge.core.approvals import Reject
from bridge.core.cloudevents import OutcomeData, Vm
from bridge.core.commands import Command, Malformed, reused_key
from bridge.measures import Measures
from bridge.store import Store
from bridge.transports import Incoming

logger = logging.getLogger("sebridge.intake")


class Answers:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        vm: Vm,
        measures: Measures,
        on_answer: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._vm = vm
        self._measures = measures
        self._on_answer = on_answer

    def replay(self, incoming: Incoming, key: str) -> None:
        self._store.replay(
            key,
            reply_topic=incoming.reply_topic,
            correlation=incoming.correlation,
            position=incoming.position,
            now=self._clock.now(),
        )
        self._measures.replayed()
        self._on_answer()

    def reject(
        self, incoming: Incoming, command: Command, reject: Reject, received_at: datetime
    ) -> None:
        key = command.key
        if reject.reason == "key-reused":
            # The row under the key itself is the first command's.
            key = reused_key(command)
            if self._store.command(key):
                self.replay(incoming, key)
                return
        outcome = OutcomeData(
            status="rejected",
            reason=reject.reason,
            detail=reject.detail,
            rule=reject.rule,
            event_id=command.event_id,
            command_id=command.id,
            idempotency_key=command.key,
            requested_by=command.source,
        )
        self._publish(incoming, key, outcome, command.fingerprint, received_at, why=command.reason)

    def reject_unread(self, incoming: Incoming, unread: Malformed, reject: Reject) -> None:
        if self._store.command(unread.key):
            self.replay(incoming, unread.key)
            return
        outcome = OutcomeData(
            status="rejected",
            reason=reject.reason,
            detail=reject.detail,
            command_id=unread.id,
            idempotency_key=unread.key,
            requested_by=unread.source,
        )
        self._publish(incoming, unread.key, outcome, unread.key, self._clock.now())

    def _publish(
        self,
        incoming: Incoming,
        key: str,
        outcome: OutcomeData,
        fingerprint: str,
        received_at: datetime,
        *,
        why: str = "",
    ) -> None:
        now = self._clock.now()
        self._store.answer(
            key=key,
            fingerprint=fingerprint,
            command_id=outcome.command_id,
            source=outcome.requested_by,
            event_id=outcome.event_id,
            why=why,
            status=outcome.status,
            reason=outcome.reason,
            rule=outcome.rule,
            cloudevent=cloudevents.from_outcome(outcome, vm=self._vm, now=now),
            received_at=received_at,
            answered_at=now,
            reply_topic=incoming.reply_topic,
            correlation=incoming.correlation,
            position=incoming.position,
        )
        logger.info(
            "rejected",
            extra={
                "reason": outcome.reason,
                "event_id": outcome.event_id,
                "key": outcome.idempotency_key,
                "by": outcome.requested_by,
            },
        )
        self._measures.answered(outcome.status, outcome.reason, received_at, now)
        self._on_answer()
