"""Prometheus metrics, made from one status snapshot at the moment of the scrape."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def render(status: dict[str, Any]) -> bytes:
    """The text that /metrics answers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(status))
    return generate_latest(registry)


class _Snapshot:
    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        yield from self._polls()
        yield from self._approvals()
        yield from self._sinks()

    def _polls(self) -> Iterator[Metric]:
        poll = self._status["poll"]
        yield CounterMetricFamily("sebridge_polls", "Polls of IMDS", poll["count"])
        answers = CounterMetricFamily(
            "sebridge_imds_answers", "Answers of IMDS by HTTP status", labels=["status"]
        )
        for status, count in poll["answers"].items():
            answers.add_metric([status], count)
        yield answers
        if poll["ageS"] is not None:
            yield GaugeMetricFamily(
                "sebridge_poll_age_seconds", "Age of the last good poll", poll["ageS"]
            )
        yield GaugeMetricFamily(
            "sebridge_pending_events", "Scheduled events now pending", len(self._status["pending"])
        )

    def _approvals(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "sebridge_approvals", "Approvals in the ledger by state", labels=["state"]
        )
        for state, count in self._status["approvals"].items():
            states.add_metric([state], count)
        yield states
        yield GaugeMetricFamily(
            "sebridge_ledger_durable", "1 if the ledger can be written", self._status["durable"]
        )

    def _sinks(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("sebridge_outbox_rows", "Rows to publish", labels=["sink"])
        works = GaugeMetricFamily("sebridge_sink_up", "1 if the sink works", labels=["sink"])
        published = CounterMetricFamily(
            "sebridge_published", "Rows acknowledged by the broker", labels=["sink"]
        )
        for name, sink in self._status["sinks"].items():
            depth.add_metric([name], sink["outbox"])
            works.add_metric([name], not sink["problem"])
            published.add_metric([name], sink["published"])
        yield from (depth, works, published)
