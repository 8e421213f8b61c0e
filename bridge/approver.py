"""The approver: what was accepted is posted, at most once, and the result is durable.

The order is the promise: connect, make `sending` durable, then write the first byte. Tried again
is only what provably did not count: no connection was made, or a 429 came back.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from bridge.clock import Clock
from bridge.config import Approvals
from bridge.core import approvals, cloudevents
from bridge.core.approvals import Reject, Rules
from bridge.core.backoff import full_jitter
from bridge.core.cloudevents import CloudEvent, OutcomeData, OutcomeStatus, Vm
from bridge.core.decide import recheck
from bridge.core.document import Document, ScheduledEvent
from bridge.errors import ImdsUnavailable
from bridge.health import Pulse
from bridge.measures import Measures
from bridge.reposts import Reposts, check_repost, is_repost
from bridge.store import AcceptedRow, CommandRow, Store

logger = logging.getLogger("sebridge.approver")

# From the last look at the event to the first byte: if it took this long, we were frozen.
_FROZEN_S = 5.0
# IMDS answers 429 above five requests a second; one second is polite.
_RETRY_S_MIN = 1.0

_REASONS = {"approved": "", "rejected": "imds-rejected", "in-doubt": "in-doubt"}


class PostResult(Protocol):
    @property
    def status(self) -> int | None: ...
    @property
    def detail(self) -> str: ...


class Connection(Protocol):
    async def post(self, event_id: str, timeout_s: float) -> PostResult: ...
    def close(self) -> None: ...


class Approver:
    def __init__(
        self,
        config: Approvals,
        store: Store,
        clock: Clock,
        rules: Rules,
        *,
        vm: Vm,
        document: Callable[[], Document | None],
        connect: Callable[[], Awaitable[Connection]],
        flush: Callable[[float], Awaitable[None]],
        on_answer: Callable[[], None],
        measures: Measures | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._rules = rules
        self._vm = vm
        self._document = document
        self._connect = connect
        self._flush = flush
        self._on_answer = on_answer
        self._wake = asyncio.Event()
        self._failures = 0
        self._reposts = Reposts(store, clock)
        self._measures = measures or Measures()
        self.pulse = Pulse(clock)
        self.posting = asyncio.Lock()  # held from connect to result: shutdown waits for it

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            delay_s = await self.step()
            if delay_s is None:
                self.pulse.rest()
            else:
                self.pulse.beat(delay_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()

    async def step(self) -> float | None:
        """Try what is accepted, oldest first; return how long to wait, None for a wake."""
        # What the file says is accepted is the next start's to answer: an answer from memory
        # would be forgotten there, and another given.
        if not self._store.durable:
            return None
        if self._document() is not None:
            self._reposts.begin(self._doubts())
        delay_s = None
        for row in self._store.accepted():
            if not await self._try(row):
                self._failures += 1
                delay_s = max(_RETRY_S_MIN, full_jitter(self._failures, random.random(), cap_s=10))
            else:
                self._failures = 0
        # Nobody wakes the loop for a doubt: polls that bring nothing new are silent.
        repost_s = self._reposts.delay_s(self._doubts())
        return min((each for each in (delay_s, repost_s) if each is not None), default=None)

    async def _try(self, row: AcceptedRow) -> bool:
        """Whether the row is settled."""
        config = self._config
        self.pulse.beat(config.flush_s + config.connect_timeout_s + config.answer_timeout_s)
        refusal = self._refusal(row)
        if refusal:
            self._reject(row, refusal)
            return True
        document = self._document()
        if document is None:
            return False
        await self._flush(self._flush_time_s(row, document))
        async with self.posting:
            return await self._connect_and_post(row)

    async def _connect_and_post(self, row: AcceptedRow) -> bool:
        try:
            connection = await self._connect()
        except ImdsUnavailable as error:
            logger.warning("not sent", extra={"event_id": row.azure_event_id, "why": str(error)})
            return False
        try:
            # Connecting took time: look once more at what is about to be approved.
            looked_at_s = self._clock.elapsed_s()
            refusal = self._refusal(row)
            if refusal:
                self._reject(row, refusal)
                return True
            if self._document() is None:
                return False
            return await self._post(row, connection, looked_at_s)
        finally:
            connection.close()

    async def _post(self, row: AcceptedRow, connection: Connection, looked_at_s: float) -> bool:
        # A log that nobody reads can block as long as a frozen VM, so it comes first, and counts.
        logger.info("posting", extra={"event_id": row.azure_event_id, "key": row.key})
        number = self._store.begin_post(row.event_id, self._clock.now())
        began_s = self._clock.elapsed_s()
        if began_s - looked_at_s > _FROZEN_S:
            return self._finish(number, row, None, "stood still before the first byte; not sent")
        result = await connection.post(row.azure_event_id, self._config.answer_timeout_s)
        self._measures.posted(result.status, self._clock.elapsed_s() - began_s)
        return self._finish(number, row, result.status, result.detail)

    def _finish(self, number: int, row: AcceptedRow, status: int | None, detail: str) -> bool:
        if not self._store.durable:  # the disk filled up during the POST
            # The file says `sending`: the next start tells of a doubt. This would be a second word.
            logger.warning(
                "no answer: the next start tells of a doubt",
                extra={"event_id": row.azure_event_id, "key": row.key, "http_status": status},
            )
            return True
        now = self._clock.now()
        if status == 429 and now < row.expires_at:
            self._store.finish_post(
                number, state="accepted", http_status=429, result=detail, outcome=None, now=now
            )
            return False
        state = approvals.post_result(status)
        reason = _REASONS[state]
        outcome = _outcome(
            row.command,
            self._vm,
            now,
            status=state,
            reason=reason,
            detail=detail,
            http_status=status,
            waiting_on=() if state == "rejected" else self._waiting_on(row),
        )
        self._store.finish_post(
            number,
            state=state,
            http_status=status,
            result=detail,
            outcome=outcome,
            reason=reason,
            now=now,
        )
        logger.info(
            state, extra={"event_id": row.azure_event_id, "key": row.key, "http_status": status}
        )
        self._answered(row, state, reason)
        return True

    def _refusal(self, row: AcceptedRow) -> Reject | None:
        now = self._clock.now()
        document = self._document()
        if now >= row.expires_at:
            if document is None or self._failures:
                return Reject("imds-unreachable", "IMDS could not be reached in time")
            return Reject("expired", "it expired before it could be sent")
        if document is None:
            return None
        decided = ScheduledEvent(
            event_id=row.azure_event_id, event_type=row.event_type, resources=row.resources
        )
        changed = recheck(decided, document, self._rules, durable=self._store.durable)
        if changed or not is_repost(row):
            return changed
        return check_repost(row, document, self._config, now)

    def _reject(self, row: AcceptedRow, reject: Reject) -> None:
        if not self._store.durable:  # the disk filled up meanwhile: as in step()
            return
        now = self._clock.now()
        outcome = _outcome(
            row.command,
            self._vm,
            now,
            status="rejected",
            reason=reject.reason,
            detail=reject.detail,
        )
        self._store.reject_accepted(row.event_id, reason=reject.reason, outcome=outcome, now=now)
        what = "not posted again" if is_repost(row) else "rejected"
        logger.info(what, extra={"event_id": row.azure_event_id, "reason": reject.reason})
        self._answered(row, "rejected", reject.reason)

    def _answered(self, row: AcceptedRow, outcome: str, reason: str) -> None:
        if not is_repost(row):
            received_at = row.command.received_at
            self._measures.answered(outcome, reason, received_at, self._clock.now())
        self._on_answer()

    def _flush_time_s(self, row: AcceptedRow, document: Document) -> float:
        """What is announced first may take this long: never past the command's or event's time."""
        scheduled_event = document.find(row.event_id)
        limits: list[datetime] = [row.expires_at]
        if scheduled_event and scheduled_event.not_before:
            limits.append(scheduled_event.not_before)
        left_s = (min(limits) - self._clock.now()).total_seconds()
        return max(0.0, min(self._config.flush_s, left_s / 2))

    def _waiting_on(self, row: AcceptedRow) -> tuple[str, ...]:
        document = self._document()
        scheduled_event = document.find(row.event_id) if document else None
        if document is None or scheduled_event is None:
            return ()
        entries = self._store.entries()
        posted = {key for key, entry in entries.items() if entry.state in approvals.POSTED}
        return approvals.waiting_on(scheduled_event, document, posted)

    def _doubts(self) -> list[AcceptedRow]:
        """Those that may be posted again, once each is due and the document is fresh."""
        if self._config.in_doubt != "repost":
            return []
        return [row for row in self._store.doubts() if self._refusal(row) is None]


def cut_short(command: CommandRow, vm: Vm, now: datetime) -> CloudEvent:
    """The answer to a command whose POST a crash interrupted; for recovery at start."""
    detail = "the agent stopped while the POST was on its way"
    return _outcome(command, vm, now, status="in-doubt", reason="in-doubt", detail=detail)


def _outcome(
    command: CommandRow,
    vm: Vm,
    now: datetime,
    *,
    status: OutcomeStatus,
    reason: str,
    detail: str,
    http_status: int | None = None,
    waiting_on: tuple[str, ...] = (),
) -> CloudEvent:
    outcome = OutcomeData(
        status=status,
        reason=reason,
        detail=detail,
        rule=command.rule,
        event_id=command.event_id,
        command_id=command.command_id,
        idempotency_key=command.key,
        requested_by=command.source,
        http_status=http_status,
        waiting_on=waiting_on,
    )
    return cloudevents.from_outcome(outcome, vm=vm, now=now)
