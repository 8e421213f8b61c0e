"""The agent's state as one JSON object, for /status, /metrics and `sebridge status`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import msgspec

from bridge.core.cloudevents import Vm
from bridge.core.document import Document, ScheduledEvent
from bridge.poller import Poller
from bridge.publisher import Publisher
from bridge.store import Store
from bridge.store.figures import SinkFigures
from bridge.transports import ConnectedSource, Sink

# Pending events are few. If they ever are not, those that are due first matter most, and neither
# a status nor the labels of a metric may grow without end.
TIME_LEFT_EVENTS_MAX = 20


@runtime_checkable
class Link(Protocol):
    """A transport that keeps a connection."""

    @property
    def connected(self) -> bool: ...

    generation: int  # connections made so far


def snapshot(
    *,
    mode: str,
    commands: str,
    vm: Vm | None,
    store: Store,
    poller: Poller | None,
    answers: Mapping[Any, int],
    sinks: Mapping[str, Sink],
    publishers: Mapping[str, Publisher],
    now: datetime,
    source: ConnectedSource | None,
) -> dict[str, Any]:
    figures = store.figures()
    pending = _pending(poller.last_document if poller else None, vm)
    return {
        "vm": msgspec.to_builtins(vm) if vm else None,
        "mode": mode,
        "commands": commands,
        "durable": store.durable,
        "storeProblem": store.problem,
        "poll": _poll(poller, answers),
        "pending": [scheduled_event.raw for scheduled_event in pending],
        "timeLeft": time_left(pending, store, now),
        "approvals": figures.approvals,
        "inDoubtAgeS": _age_s(figures.in_doubt_since, now),
        "sinks": {
            name: _sink(sink, publishers[name], figures.sinks.get(name, SinkFigures()), now)
            for name, sink in sinks.items()
        },
        "commandSource": _command_source(source),
        "parked": sum(sink.parked for sink in figures.sinks.values()),
    }


def _poll(poller: Poller | None, answers: Mapping[Any, int]) -> dict[str, Any]:
    document = poller.last_document if poller else None
    return {
        "count": poller.polls if poller else 0,
        "ageS": poller.age_s if poller else None,
        "blind": poller.is_blind if poller else True,
        "problem": poller.problem if poller else "waiting for IMDS to say which VM this is",
        "answers": {str(status): count for status, count in answers.items()},
        "incarnation": document.incarnation if document else None,
    }


def _pending(document: Document | None, vm: Vm | None) -> list[ScheduledEvent]:
    if document is None or vm is None:
        return []
    return [e for e in document.scheduled_events if e.names(vm.name)]


def time_left(pending: list[ScheduledEvent], store: Store, now: datetime) -> list[dict[str, Any]]:
    """What has not begun, the nearest first; negative when NotBefore has passed."""
    due = [(e.not_before, e) for e in pending if e.is_scheduled and e.not_before]
    due.sort(key=lambda pair: pair[0])
    return [
        {
            "eventId": scheduled_event.event_id,
            "eventType": scheduled_event.event_type,
            "approval": entry.state if (entry := store.entry(scheduled_event.key)) else "none",
            "seconds": (not_before - now).total_seconds(),
        }
        for not_before, scheduled_event in due[:TIME_LEFT_EVENTS_MAX]
    ]


def _sink(sink: Sink, publisher: Publisher, figures: SinkFigures, now: datetime) -> dict[str, Any]:
    link = sink if isinstance(sink, Link) else None
    return {
        "problem": sink.problem or publisher.problem,
        "outbox": figures.outbox,
        "oldest": figures.oldest.isoformat() if figures.oldest else None,
        "oldestAgeS": _age_s(figures.oldest, now),
        "parked": figures.parked,
        "published": publisher.published,
        "connected": link.connected if link else None,
        "connections": link.generation if link else None,
    }


def _age_s(since: datetime | None, now: datetime) -> float:
    """Zero for nothing; never negative, though a clock may have been set back."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0


def _command_source(source: ConnectedSource | None) -> dict[str, Any]:
    if source is None:
        return {"name": "none", "problem": ""}
    return {"name": source.name, "problem": source.problem}
