"""The agent's state as one JSON object, for /status, /metrics and `sebridge status`."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from bridge.core.cloudevents import Vm
from bridge.poller import Poller
from bridge.publisher import Publisher
from bridge.store import Store
from bridge.transports import Sink


def snapshot(
    *,
    mode: str,
    vm: Vm | None,
    store: Store,
    poller: Poller | None,
    answers: Mapping[Any, int],
    sinks: Mapping[str, Sink],
    publishers: Mapping[str, Publisher],
) -> dict[str, Any]:
    return {
        "vm": msgspec.to_builtins(vm) if vm else None,
        "mode": mode,
        "durable": store.durable,
        "storeProblem": store.problem,
        "poll": _poll(poller, answers),
        "pending": _pending(poller, vm),
        "approvals": dict(Counter(entry.state for entry in store.entries().values())),
        "sinks": {name: _sink(store, sinks[name], publishers[name]) for name in sinks},
        "parked": len(store.parked()),
    }


def _poll(poller: Poller | None, answers: Mapping[Any, int]) -> dict[str, Any]:
    document = poller.last_document if poller else None
    return {
        "count": poller.polls if poller else 0,
        "ageS": poller.age_s if poller else None,
        "problem": poller.problem if poller else "waiting for IMDS to say which VM this is",
        "answers": {str(status): count for status, count in answers.items()},
        "incarnation": document.incarnation if document else None,
    }


def _pending(poller: Poller | None, vm: Vm | None) -> list[dict[str, Any]]:
    document = poller.last_document if poller else None
    if document is None or vm is None:
        return []
    return [e.raw for e in document.scheduled_events if e.names(vm.name)]


def _sink(store: Store, sink: Sink, publisher: Publisher) -> dict[str, Any]:
    return {
        "problem": sink.problem or publisher.problem,
        "outbox": store.depth(sink.name),
        "oldest": store.oldest(sink.name),
        "published": publisher.published,
    }
