"""The intake: a command comes in, a decision is made and is durable, the command is acked.

Nothing is sent from here. A command whose decision needs a fresh document waits for one, unacked,
so that a crash brings it back.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from bridge.answers import Answers
from bridge.clock import Clock
from bridge.core.approvals import (
    RATE_WINDOW,
    Approve,
    Reject,
    Replay,
    Rules,
    Situation,
    Wait,
    deadline,
)
from bridge.core.cloudevents import Vm
from bridge.core.commands import Command, Malformed, Parts, Wire, read, split, unread, wire_key
from bridge.core.decide import check_audience, decide
from bridge.core.document import Document, ScheduledEvent
from bridge.core.pace import Pace
from bridge.core.policy import evaluate
from bridge.core.signing import Unverified
from bridge.health import Pulse
from bridge.measures import Measures
from bridge.store import Store
from bridge.transports import CommandSource, Incoming

logger = logging.getLogger("sebridge.intake")

AUTO_SOURCE = "sebridge/rules"
# How often a waiting command looks for a fresh document.
_LOOK_AGAIN_S = 0.2
_UNREACHABLE = Reject("imds-unreachable", "no fresh document to decide on")

Verify = Callable[[Parts], Parts | Unverified]


class Intake:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Rules,
        *,
        vm: Vm,
        payload_bytes_max: int,
        per_s_max: float = 20.0,
        verify: Verify | None = None,
        document: Callable[[], Document | None],
        on_accept: Callable[[], None],
        on_answer: Callable[[], None],
        measures: Measures | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._payload_bytes_max = payload_bytes_max
        self._pace = Pace(per_s_max)
        self._verify = verify
        self._document = document
        self._on_accept = on_accept
        self._answers = Answers(
            store, clock, vm=vm, measures=measures or Measures(), on_answer=on_answer
        )
        self._in_hand: Incoming | None = None
        self.pulse = Pulse(clock)

    async def run(self, source: CommandSource) -> None:
        # A disk that filled up ended the last run with a command in hand: it is answered first.
        if self._in_hand is not None:
            await self.step(self._in_hand)
        async for incoming in source.commands():
            self._in_hand = incoming
            # Even without a wait this yields: a full queue alone never would.
            await asyncio.sleep(self._pace.wait_s(self._clock.elapsed_s()))
            await self.step(incoming)

    async def step(self, incoming: Incoming) -> None:
        """Decide on one command; returns with its row durable and the broker's ack sent."""
        await self._rest_without_disk(incoming)
        command = self._read(incoming.wire)
        if isinstance(command, Command):
            await self._decide(incoming, command)
        else:
            self._answers.reject_unread(incoming, *command)
        incoming.ack()
        self._in_hand = None
        self.pulse.rest()

    def _read(self, wire: Wire) -> Command | tuple[Malformed, Reject]:
        """Cheapest first; what is refused here uses up no idempotency key."""
        if wire.retained:
            detail = "retained commands come back for ever"
            key = wire_key("retained", wire)
            return Malformed(detail=detail, key=key), Reject("retained-command", detail)
        parts = split(wire, bytes_max=self._payload_bytes_max)
        if isinstance(parts, Parts) and self._verify:
            verified = self._verify(parts)
            if isinstance(verified, Unverified):
                refused = unread(verified.detail, "bad-signature", parts, wire)
                return refused, Reject("bad-signature", refused.detail)
            parts = verified
        command = parts if isinstance(parts, Malformed) else read(parts, wire)
        if isinstance(command, Malformed):
            return command, Reject("malformed", command.detail)
        assert isinstance(parts, Parts)
        if elsewhere := check_audience(command, self._rules):
            return unread(elsewhere.detail, "wrong-vm", parts, wire), elsewhere
        return command

    def approve_by_rule(self) -> None:
        """Approve what a rule says goes by itself. Refusals are silent: nobody asked."""
        document = self._document()
        for scheduled_event in document.scheduled_events if document else ():
            verdict = evaluate(self._rules.policy, scheduled_event)
            if verdict.action == "auto" and scheduled_event.is_scheduled:
                self._try_rule(scheduled_event, verdict.rule)

    def _try_rule(self, scheduled_event: ScheduledEvent, rule: str) -> None:
        # What shadow mode says of an event must not use up its approval for when mode is enforce.
        owner = "auto:shadow" if self._rules.mode == "shadow" else "auto"
        command = Command(
            id=f"auto-{scheduled_event.key}",
            source=f"{AUTO_SOURCE}/{rule}",
            key=f"{owner}:{scheduled_event.key}",
            fingerprint=scheduled_event.key,
            event_id=scheduled_event.event_id,
            expires_at=scheduled_event.not_before,
        )
        token = self._store.tokens().get(scheduled_event.key)
        command = msgspec.structs.replace(command, token=token)
        situation = msgspec.structs.replace(self._situation(command), accepted_lately=0)
        decision = decide(command, situation, self._rules)
        quiet = Incoming(wire=None, ack=lambda: None)  # type: ignore[arg-type]
        if isinstance(decision, Approve):
            self._accept(quiet, command, decision, self._clock.now())
        elif isinstance(decision, Reject) and decision.reason == "shadow":
            self._answers.reject(quiet, command, decision, self._clock.now())

    async def _rest_without_disk(self, incoming: Incoming) -> None:
        """What is read by offset comes again at the next start, from where the file says.

        An answer from memory would be unknown there, and the same command might be approved.
        """
        if incoming.position is None or self._store.durable:
            return
        logger.error(
            "commands rest, unanswered: make room for the ledger or make it writable, then "
            "restart; they are read again and decided then",
            extra={"why": self._store.problem},
        )
        self.pulse.rest()
        await asyncio.Event().wait()

    async def _decide(self, incoming: Incoming, command: Command) -> None:
        received_at = self._clock.now()
        until = deadline(command, received_at, self._rules)
        has_waited = False
        while True:
            self.pulse.beat(_LOOK_AGAIN_S)
            decision = decide(command, self._situation(command), self._rules)
            match decision:
                case Wait() if self._clock.now() < until:
                    has_waited = True
                    await asyncio.sleep(_LOOK_AGAIN_S)
                    await self._rest_without_disk(incoming)
                    continue
                case Wait():
                    self._answers.reject(incoming, command, _UNREACHABLE, received_at)
                case Approve():
                    self._accept(incoming, command, decision, received_at)
                case Reject(reason="expired" | "too-old") if has_waited:
                    # It came in time; what made it late was IMDS, and not its sender.
                    self._answers.reject(incoming, command, _UNREACHABLE, received_at)
                case Reject():
                    self._answers.reject(incoming, command, decision, received_at)
                case Replay():
                    self._answers.replay(incoming, command.key)
            return

    def _situation(self, command: Command) -> Situation:
        earlier = self._store.command(command.key)
        event_key = command.event_id.casefold()
        return Situation(
            now=self._clock.now(),
            document=self._document(),
            entry=self._store.entry(event_key),
            key_fingerprint=earlier.fingerprint if earlier else None,
            token=self._store.tokens().get(event_key, ""),
            fenced=event_key in self._store.fenced(),
            ledger_lost=self._store.ledger_lost,
            durable=self._store.durable,
            accepted_lately=self._store.accepted_since(self._clock.now() - RATE_WINDOW),
        )

    def _accept(
        self, incoming: Incoming, command: Command, approve: Approve, received_at: datetime
    ) -> None:
        self._store.accept(
            command,
            approve,
            received_at=received_at,
            expires_at=deadline(command, received_at, self._rules),
            reply_topic=incoming.reply_topic,
            correlation=incoming.correlation,
            position=incoming.position,
        )
        logger.info(
            "accepted",
            extra={
                "event_id": command.event_id,
                "key": command.key,
                "by": command.source,
                "signed_by": command.signed_by,
            },
        )
        self._on_accept()
