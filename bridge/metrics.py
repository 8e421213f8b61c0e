"""Prometheus metrics: one table of families, filled at the moment of the scrape.

`FAMILIES` is the only list of names; docs/metrics.md explains each of them. prometheus_client is
imported with the first scrape: an agent that nobody scrapes does without it.
"""

import platform
from collections.abc import Iterator
from itertools import product
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from bridge.core.approvals import MOVES, Reason
from bridge.core.diff import Kind
from bridge.core.document import KNOWN_TYPES, SCHEDULED, STARTED
from bridge.measures import Histogram, Measures
from bridge.version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# increase() misses the step from nothing to one, and one event a month is all that a VM may see:
# every series that can be named beforehand begins at zero.
_TRANSITIONS = dict.fromkeys(product(get_args(Kind), (*sorted(KNOWN_TYPES), "other")), 0)
_ANSWERS = {
    **dict.fromkeys([("approved", ""), ("in-doubt", "in-doubt"), ("replay", "")], 0),
    **dict.fromkeys(product(["rejected"], get_args(Reason)), 0),
}
_STATUSES = {"200": 0, "429": 0}

Sample: TypeAlias = tuple[str, tuple[str, ...], float | Histogram]


class Family(msgspec.Struct, frozen=True):
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    "sebridge_build_info": Family("gauge", "Always 1", ("version", "python")),
    "sebridge_polls_total": Family("counter", "Polls of IMDS"),
    "sebridge_poll_failures_total": Family("counter", "Polls that brought no document"),
    "sebridge_poll_age_seconds": Family("gauge", "Age of the last good poll"),
    "sebridge_poll_duration_seconds": Family("histogram", "A poll, from GET to commit"),
    "sebridge_blind": Family("gauge", "1 without a good poll for imds.stale_after_s"),
    "sebridge_imds_answers_total": Family(
        "counter", "Answers of IMDS by HTTP status, or error", ("method", "status")
    ),
    "sebridge_post_duration_seconds": Family("histogram", "StartRequests POST, to its answer"),
    "sebridge_transitions_total": Family(
        "counter", "Changes of scheduled events", ("kind", "event_type")
    ),
    "sebridge_pending_events": Family("gauge", "Scheduled events now pending", ("event_status",)),
    "sebridge_event_time_left_seconds": Family(
        "gauge", "Time to NotBefore", ("event_id", "event_type", "approval")
    ),
    "sebridge_commands_total": Family("counter", "Answers to commands", ("outcome", "reason")),
    "sebridge_answer_latency_seconds": Family("histogram", "Command received to answer durable"),
    "sebridge_approvals": Family("gauge", "Approvals in the ledger by state", ("state",)),
    "sebridge_in_doubt_age_seconds": Family("gauge", "Age of the oldest doubt, 0 without one"),
    "sebridge_ledger_durable": Family("gauge", "1 if the ledger can be written"),
    "sebridge_commit_duration_seconds": Family("histogram", "A commit, until it is on the disk"),
    "sebridge_outbox_rows": Family("gauge", "Rows not yet acknowledged", ("sink",)),
    "sebridge_outbox_age_seconds": Family("gauge", "Age of the oldest such row", ("sink",)),
    "sebridge_parked_rows": Family("gauge", "Rows the sink can never take", ("sink",)),
    "sebridge_published_total": Family("counter", "Rows acknowledged", ("sink",)),
    "sebridge_publish_latency_seconds": Family(
        "histogram", "Row made to row acknowledged", ("sink",)
    ),
    "sebridge_sink_up": Family("gauge", "1 if the sink works", ("sink",)),
    "sebridge_commands_up": Family("gauge", "1 if commands can come", ("source",)),
    "sebridge_connected": Family("gauge", "1 with a connection to the broker", ("sink",)),
    "sebridge_connections_total": Family("counter", "Connections made", ("sink",)),
}


def render(status: dict[str, Any], measures: Measures, commit_s: Histogram) -> bytes:
    """The text that /metrics answers."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(list(_samples(status, measures, commit_s))))
    ProcessCollector(namespace="sebridge", registry=registry)
    return generate_latest(registry)


class _Collector:
    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Any]:
        families = {name: _empty(name, family) for name, family in FAMILIES.items()}
        for name, labels, value in self._samples:
            if isinstance(value, Histogram):
                families[name].add_metric(labels, value.cumulative(), value.sum)
            else:
                families[name].add_metric(labels, value)
        yield from families.values()


def _empty(name: str, family: Family) -> Any:
    from prometheus_client import core  # noqa: PLC0415

    kinds = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }
    return kinds[family.kind](name, family.help, labels=family.labels)


def _samples(status: dict[str, Any], measures: Measures, commit_s: Histogram) -> Iterator[Sample]:
    yield "sebridge_build_info", (VERSION, platform.python_version()), 1
    yield "sebridge_ledger_durable", (), status["durable"]
    yield "sebridge_commit_duration_seconds", (), commit_s
    yield from _polls(status["poll"], measures)
    yield from _events(status, measures)
    yield from _approvals(status, measures)
    for name, sink in status["sinks"].items():
        yield from _sink(name, sink, measures)
    source = status["commandSource"]
    if source["name"] != "none":
        yield "sebridge_commands_up", (source["name"],), not source["problem"]


def _polls(poll: dict[str, Any], measures: Measures) -> Iterator[Sample]:
    yield "sebridge_polls_total", (), poll["count"]
    yield "sebridge_poll_failures_total", (), measures.poll_failures
    yield "sebridge_poll_duration_seconds", (), measures.poll_s
    yield "sebridge_blind", (), poll["blind"]
    if poll["ageS"] is not None:
        yield "sebridge_poll_age_seconds", (), poll["ageS"]
    yield "sebridge_post_duration_seconds", (), measures.post_s
    for method, counts in (("GET", poll["answers"]), ("POST", measures.post_statuses)):
        for http_status, count in (_STATUSES | counts).items():
            yield "sebridge_imds_answers_total", (method, http_status), count


def _events(status: dict[str, Any], measures: Measures) -> Iterator[Sample]:
    for (kind, event_type), count in (_TRANSITIONS | measures.transitions).items():
        yield "sebridge_transitions_total", (kind, event_type), count
    found = {SCHEDULED: 0, STARTED: 0, "other": 0}
    for raw in status["pending"]:
        event_status = raw.get("EventStatus")
        found[event_status if event_status in found else "other"] += 1
    for event_status, count in found.items():
        yield "sebridge_pending_events", (event_status,), count
    for left in status["timeLeft"]:
        labels = (left["eventId"], left["eventType"], left["approval"])
        yield "sebridge_event_time_left_seconds", labels, left["seconds"]


def _approvals(status: dict[str, Any], measures: Measures) -> Iterator[Sample]:
    for (outcome, reason), count in (_ANSWERS | measures.answers).items():
        yield "sebridge_commands_total", (outcome, reason), count
    yield "sebridge_answer_latency_seconds", (), measures.answer_s
    for state in filter(None, MOVES):
        yield "sebridge_approvals", (state,), status["approvals"].get(state, 0)
    yield "sebridge_in_doubt_age_seconds", (), status["inDoubtAgeS"]


def _sink(name: str, sink: dict[str, Any], measures: Measures) -> Iterator[Sample]:
    yield "sebridge_outbox_rows", (name,), sink["outbox"]
    yield "sebridge_outbox_age_seconds", (name,), sink["oldestAgeS"]
    yield "sebridge_parked_rows", (name,), sink["parked"]
    yield "sebridge_published_total", (name,), sink["published"]
    yield "sebridge_publish_latency_seconds", (name,), measures.publish_s[name]
    yield "sebridge_sink_up", (name,), not sink["problem"]
    if sink["connected"] is not None:
        yield "sebridge_connected", (name,), sink["connected"]
        yield "sebridge_connections_total", (name,), sink["connections"]
