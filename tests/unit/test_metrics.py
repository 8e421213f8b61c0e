"""/metrics: the text is right, docs/metrics.md tells of all of it, and plain numbers add up."""

import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge import metrics
from bridge.measures import DISK_S, Histogram, Measures
from bridge.metrics import FAMILIES
from tests.builders import NOW
from tests.support.promql import PROCESS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def status(**changes: Any) -> dict[str, Any]:
    sink = {"outbox": 3, "oldestAgeS": 7.5, "parked": 1, "published": 9, "problem": ""}
    return {
        "durable": True,
        "poll": {"count": 4, "ageS": 0.5, "blind": False, "answers": {"200": 3, "429": 1}},
        "pending": [{"EventStatus": "Scheduled"}, {"EventStatus": "Started"}, {}],
        "timeLeft": [
            {"eventId": 'e"1', "eventType": "Reboot", "approval": "none", "seconds": -2.0}
        ],
        "approvals": {"in-doubt": 1},
        "inDoubtAgeS": 61.0,
        "sinks": {"mqtt": {**sink, "connected": True, "connections": 2}},
        "commandSource": {"name": "eventhubs", "problem": "no such hub"},
        **changes,
    }


def scrape(measures: Measures | None = None, **changes: Any) -> dict[tuple[str, ...], float]:
    """Samples by (name, label, value, …)."""
    text = metrics.render(status(**changes), measures or Measures(), Histogram(DISK_S)).decode()
    return {
        (
            sample.name,
            *(part for pair in sorted(sample.labels.items()) for part in pair),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {row[0].strip("` "): (row[1], tuple(re.findall(r"`(\w+)`", row[2]))) for row in cells}


def test_page_tells_of_every_metric_and_of_no_other() -> None:
    """Name, type and labels of each metric are in docs/metrics.md as they are in the code."""
    ours = {name: (family.kind, family.labels) for name, family in FAMILIES.items()}

    told = {n: told for n, told in documented().items() if not n.startswith("sebridge_process_")}

    assert ours == told


def test_page_tells_of_the_process_metrics() -> None:
    """What prometheus_client adds by itself is explained as well."""
    text = metrics.render(status(), Measures(), Histogram(DISK_S)).decode()
    given = set(re.findall(r"^# TYPE (sebridge_process_\w+)", text, re.MULTILINE))

    assert given == {name for name in documented() if name.startswith("sebridge_process_")}
    assert set(PROCESS) <= given


@pytest.mark.parametrize("name", FAMILIES)
def test_names_follow_the_conventions(name: str) -> None:
    """Counters end in _total, times in _seconds, and each has a help text."""
    family = FAMILIES[name]

    assert re.fullmatch(r"sebridge_[a-z_]+", name)
    assert (family.kind == "counter") == name.endswith("_total")
    assert family.kind != "histogram" or name.endswith("_seconds")
    assert family.help


def test_scrape_has_a_sample_of_every_family() -> None:
    """Nothing has happened yet, and every family has its zero to count from."""
    names = {key[0] for key in scrape()}

    for name, family in FAMILIES.items():
        assert (f"{name}_count" if family.kind == "histogram" else name) in names


def test_values_come_from_the_status() -> None:
    """Gauges say what the status says; awkward ids are escaped."""
    found = scrape()

    assert found["sebridge_pending_events", "event_status", "other"] == 1
    assert found["sebridge_outbox_age_seconds", "sink", "mqtt"] == 7.5
    assert found["sebridge_approvals", "state", "in-doubt"] == 1
    assert found["sebridge_approvals", "state", "approved"] == 0
    left = ("approval", "none", "event_id", 'e"1', "event_type", "Reboot")
    assert found["sebridge_event_time_left_seconds", *left] == -2
    assert found["sebridge_imds_answers_total", "method", "GET", "status", "429"] == 1
    assert found["sebridge_imds_answers_total", "method", "POST", "status", "429"] == 0


def test_age_is_absent_before_the_first_good_poll() -> None:
    """No number is better than a wrong one; `blind` speaks in its place."""
    poll: dict[str, Any] = {"count": 1, "ageS": None, "blind": True, "answers": {}}

    found = scrape(poll=poll)

    assert ("sebridge_poll_age_seconds",) not in found
    assert found["sebridge_blind",] == 1


def test_sink_without_connection_has_no_connection_metrics() -> None:
    """Standard output is never connected and never lost."""
    sink = {**status()["sinks"]["mqtt"], "connected": None, "connections": None}

    found = scrape(sinks={"stdout": sink})

    assert ("sebridge_connected", "sink", "stdout") not in found
    assert found["sebridge_sink_up", "sink", "stdout"] == 1


def test_measures_count_by_label() -> None:
    """Commands, POSTs and transitions are counted; a new type of Azure's is `other`."""
    measures = Measures()
    measures.answered("rejected", "expired", NOW, NOW + timedelta(seconds=2))
    measures.replayed()
    measures.posted(None, 0.2)
    measures.changed("started", "Hibernate")
    measures.published("mqtt", [NOW, None], NOW + timedelta(seconds=1))

    found = scrape(measures)

    assert found["sebridge_commands_total", "outcome", "rejected", "reason", "expired"] == 1
    assert found["sebridge_commands_total", "outcome", "replay", "reason", ""] == 1
    assert found["sebridge_imds_answers_total", "method", "POST", "status", "error"] == 1
    assert found["sebridge_transitions_total", "event_type", "other", "kind", "started"] == 1
    assert found["sebridge_publish_latency_seconds_count", "sink", "mqtt"] == 1
    assert found["sebridge_answer_latency_seconds_sum",] == 2


def test_histogram_counts_up_to_each_bound() -> None:
    """A value on a bound belongs below it; a clock that stepped back counts as zero."""
    histogram = Histogram((0.1, 1.0))
    for value in (-5.0, 0.1, 0.2, 1.0, 3.0):
        histogram.observe(value)

    assert [("0.1", 2), ("1.0", 4), ("+Inf", 5)] == histogram.cumulative()
    assert histogram.sum == pytest.approx(4.3)


def test_agent_does_not_load_prometheus_before_a_scrape() -> None:
    """An agent that nobody scrapes does not pay for the library."""
    code = "import sys, bridge.app; sys.exit('prometheus_client' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
