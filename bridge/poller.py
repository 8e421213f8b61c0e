"""The poller: ask IMDS, find what changed, make document and CloudEvents durable together.

Owns the newest document and how fresh it is. It never ends an event on an empty body, a failed
poll or a document that does not parse: those say nothing.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Protocol

from bridge.clock import Clock
from bridge.config import Imds
from bridge.core import approvals, cloudevents, diff
from bridge.core.backoff import imds_delay_s
from bridge.core.cloudevents import ApprovalInfo, OutcomeData, Vm
from bridge.core.document import Document, MalformedDocument, ScheduledEvent, decode
from bridge.errors import ImdsUnavailable
from bridge.health import Pulse
from bridge.known import Known, KnownEvents
from bridge.measures import Measures
from bridge.store import Confirmation, Draft, Store

logger = logging.getLogger("sebridge.poller")

# A pause without a failed poll: a VM that was frozen, a loop that was busy.
_GAP_S_MIN = 5.0
# Every second of notice counts, and Preempt gives thirty.
_BACKOFF_S_MAX = 5.0


class DocumentSource(Protocol):
    async def get_document(self) -> bytes: ...


class Poller:
    def __init__(
        self,
        config: Imds,
        imds: DocumentSource,
        store: Store,
        clock: Clock,
        *,
        vm: Vm,
        commands_topic: str,
        own_events_only: bool,
        on_news: Callable[[], None],
        on_change: Callable[[], None],
        measures: Measures | None = None,
    ) -> None:
        self._config = config
        self._imds = imds
        self._store = store
        self._known = KnownEvents(store)
        self._clock = clock
        self._vm = vm
        self._commands_topic = commands_topic
        self._own_events_only = own_events_only
        self._on_news = on_news
        self._on_change = on_change
        self._raw = store.snapshot()
        self._previous = self._decode_snapshot(self._raw) if self._raw else None
        self._good_at: float | None = None
        self._began_at = clock.elapsed_s()
        self._failures = 0
        self._measures = measures or Measures()
        self.pulse = Pulse(clock)
        self.polls = 0
        self.problem = "no poll yet"
        self.polled = asyncio.Event()

    def _decode_snapshot(self, raw: bytes) -> Document:
        try:
            return decode(raw)
        except MalformedDocument as error:
            raise self._store.condemn(f"its snapshot is no document: {error}") from error

    @property
    def document(self) -> Document | None:
        """The newest document if it is fresh enough to decide on."""
        limit_s = 2 * self._config.poll_interval_s + self._config.timeout_s
        age_s = self.age_s
        return self._previous if age_s is not None and age_s <= limit_s else None

    @property
    def age_s(self) -> float | None:
        return None if self._good_at is None else self._clock.elapsed_s() - self._good_at

    @property
    def _patience_s(self) -> float:
        """A poll may go down the whole ladder of api-versions, and the first takes minutes."""
        return 3 * max(self._config.first_timeout_s, self._config.timeout_s)

    @property
    def is_blind(self) -> bool:
        """No good poll for too long; the first one may take its time."""
        since = self._began_at if self._good_at is None else self._good_at
        return self._clock.elapsed_s() - since > self._config.stale_after_s

    @property
    def is_ready(self) -> bool:
        return self._good_at is not None and not self.is_blind

    @property
    def last_document(self) -> Document | None:
        """The newest document, however old."""
        return self._previous

    async def run(self) -> None:
        while True:
            began = self._clock.elapsed_s()
            self.pulse.beat(self._patience_s)
            delay_s = await self.step()
            self._measures.poll_s.observe(self._clock.elapsed_s() - began)
            self.pulse.beat(delay_s)
            # A fixed cadence; a slow poll is followed at once, never by two.
            await asyncio.sleep(max(0.0, delay_s - (self._clock.elapsed_s() - began)))

    async def step(self) -> float:
        """Poll once; return how long to wait from the beginning of this poll."""
        self._get_ready()
        self.polls += 1
        raw_before, problem = self._raw, self.problem
        try:
            transitions = self._take(await self._imds.get_document())
        except ImdsUnavailable as error:
            return self._failed(str(error), error.status, error.retry_after_s)
        except MalformedDocument as error:
            return self._failed(f"not a document: {error}", None, None)
        if problem:
            logger.info("polling works", extra={"after_failures": self._failures})
        self._failures = 0
        self.problem = ""
        self.polled.set()
        # After a restart or an outage the document may be the old one and still hold work to do.
        if problem or self._raw is not raw_before:
            await self._tell(transitions)
        return self._config.poll_interval_s

    def _get_ready(self) -> None:
        """What a change will need and can be had before it comes. The first poll waits for none."""
        if self.polls:
            self._store.make_room()
            self._known.look_up(self._previous)

    def _take(self, raw: bytes) -> list[diff.Transition]:
        """What changed of ours. An unchanged body is recognised before it is decoded."""
        is_known = raw == self._raw
        transitions = [] if is_known else self._record(raw, decode(raw))
        self._good_at = self._clock.elapsed_s()
        if is_known and self.problem:
            self.confirm_settled()
        return transitions

    async def _tell(self, transitions: list[diff.Transition]) -> None:
        """What is announced leaves before anything is decided, logged or counted."""
        self._on_news()
        await asyncio.sleep(0)
        self._on_change()
        incarnation = self._previous.incarnation if self._previous else None
        for transition in transitions:
            _log(transition, incarnation)
            self._measures.changed(transition.kind, transition.scheduled_event.event_type)

    def _record(self, raw: bytes, document: Document) -> list[diff.Transition]:
        known = self._known.look_up(self._previous)
        posted = {key for key, entry in known.entries.items() if entry.state in approvals.POSTED}
        circumstances = diff.Circumstances(
            now=self._clock.now(), gap=self._is_gap(), posted=frozenset(posted)
        )
        transitions = [
            transition
            for transition in diff.diff(self._previous, document, circumstances)
            if self._concerns_us(transition, known)
        ]
        first = self._raw is None
        drafts = [self._draft(t, document, known, first=first) for t in transitions]
        confirmed = self._confirm(document, known.entries)
        self._store.record(raw, drafts, confirmed, self._clock.now())
        self._raw, self._previous = raw, document
        return transitions

    def _is_gap(self) -> bool:
        limit_s = max(_GAP_S_MIN, 3 * self._config.poll_interval_s)
        age_s = self.age_s
        return self._failures > 0 or age_s is None or age_s > limit_s

    def _concerns_us(self, transition: diff.Transition, known: Known) -> bool:
        """What was published once is told to its end, also if it no longer names this VM."""
        if not self._own_events_only or transition.scheduled_event.key in known.tokens:
            return True
        sights = (transition.scheduled_event, transition.previous)
        return any(sight is not None and sight.names(self._vm.name) for sight in sights)

    def _draft(
        self,
        transition: diff.Transition,
        document: Document,
        known: Known,
        *,
        first: bool,
    ) -> Draft:
        scheduled_event = transition.scheduled_event
        token = known.tokens.get(scheduled_event.key) or secrets.token_urlsafe(16)
        entry = known.entries.get(scheduled_event.key)
        # Once foreign, foreign to its end, unless a command of ours has come to hold it.
        is_foreign = transition.foreign or (entry is None and scheduled_event.key in known.foreign)
        state = "foreign" if is_foreign else (entry.state if entry else "none")
        cloudevent = cloudevents.from_transition(
            transition,
            document,
            vm=self._vm,
            leader=self._is_leader(scheduled_event),
            approval=ApprovalInfo(topic=self._commands_topic, token=token, state=state),
            now=self._clock.now(),
        )
        return Draft(
            cloudevent=cloudevent,
            event_id=scheduled_event.event_id,
            ends=transition.is_end,
            token=token,
            fenced=first or scheduled_event.key in known.fenced,
        )

    def _is_leader(self, scheduled_event: ScheduledEvent) -> bool:
        return approvals.is_leader(scheduled_event, self._vm.name)

    def confirm_settled(self) -> None:
        """What started or ended while its POST was under way: no later poll will show a change."""
        document = self.document
        confirmed = self._confirm(document, self._store.entries()) if document else []
        if confirmed:
            self._store.confirm(confirmed, self._clock.now())

    def _confirm(
        self, document: Document, entries: dict[str, approvals.Entry]
    ) -> list[Confirmation]:
        """What was posted by us and has started, or is gone."""
        return [
            Confirmation(event_id=entry.event_id, cloudevent=self._confirmation(entry, found))
            for entry in entries.values()
            if entry.state in {"approved", "in-doubt"}
            and ((found := document.find(entry.event_id)) is None or found.is_started)
        ]

    def _confirmation(
        self, entry: approvals.Entry, found: ScheduledEvent | None
    ) -> cloudevents.CloudEvent:
        row = self._store.command(entry.key)
        outcome = OutcomeData(
            status="confirmed",
            detail=f"the event is {'started' if found else 'gone'}",
            event_id=entry.event_id,
            idempotency_key=entry.key,
            rule=row.rule if row else "",
            command_id=row.command_id if row else "",
            requested_by=row.source if row else "",
        )
        return cloudevents.from_outcome(outcome, vm=self._vm, now=self._clock.now())

    def _failed(self, why: str, status: int | None, retry_after_s: float | None) -> float:
        if not self.problem or self._failures == 0:
            logger.warning("poll failed", extra={"why": why})
        self.problem = why
        delay_s = imds_delay_s(
            status,
            self._failures,
            interval_s=self._config.poll_interval_s,
            retry_after_s=retry_after_s,
            cap_s=_BACKOFF_S_MAX,
        )
        self._failures += 1
        self._measures.poll_failures += 1
        return delay_s


def _log(transition: diff.Transition, incarnation: int | None) -> None:
    logger.info(
        transition.kind,
        extra={
            "event_id": transition.scheduled_event.event_id,
            "event_type": transition.scheduled_event.event_type,
            "incarnation": incarnation,
        },
    )
