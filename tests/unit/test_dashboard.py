"""deploy/grafana/dashboard.json: a shape that Grafana loads, and queries that find something."""

from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bridge.metrics import FAMILIES
from tests.support.promql import metrics_in, promtool

PATH = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboard.json"
DASHBOARD: dict[str, Any] = msgspec.json.decode(PATH.read_bytes())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
CHARTS = [panel for panel in PANELS if panel["type"] != "row"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

by_chart = pytest.mark.parametrize("panel", CHARTS, ids=lambda panel: str(panel["title"]))


def expressions() -> list[str]:
    """Every query, with Grafana's variables filled in."""
    return [
        target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".+")
        for panel in CHARTS
        for target in panel["targets"]
    ]


def test_dashboard_is_of_grafana_ten() -> None:
    """Schema 39 came with Grafana 10.3; an id would tie it to one installation."""
    assert DASHBOARD["schemaVersion"] == 39
    assert "id" not in DASHBOARD
    assert {"uid", "title", "templating", "time", "refresh", "tags"} <= DASHBOARD.keys()


def test_data_source_and_vm_are_variables() -> None:
    """It works with any Prometheus, and for one VM or the whole fleet."""
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}

    assert ("datasource", "prometheus") == (
        variables["datasource"]["type"],
        variables["datasource"]["query"],
    )
    assert variables["instance"]["datasource"] == SOURCE
    assert variables["instance"]["multi"]
    assert metrics_in(variables["instance"]["definition"].replace(", instance", ""))


def test_rows_are_in_the_order_of_questions() -> None:
    """Is all well, what is coming, what was decided, who knows of it, do we see, how are we."""
    titles = [panel["title"] for panel in PANELS if panel["type"] == "row"]

    assert [
        "Fleet overview",
        "Events and time left",
        "Approvals and in-doubt",
        "Publishing and outbox",
        "IMDS polling",
        "Process",
    ] == titles


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    """Grafana would move or lose one of two panels in the same place."""
    ids = [panel["id"] for panel in PANELS]
    boxes = [panel["gridPos"] for panel in PANELS]

    assert len(ids) == len(set(ids))
    assert all(box["x"] + box["w"] <= 24 for box in boxes)
    for one, other in combinations(boxes, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@by_chart
def test_panel_explains_itself_and_asks_the_chosen_source(panel: dict[str, Any]) -> None:
    """Each panel has a title, a sentence, and targets with letters of their own."""
    letters = [target["refId"] for target in panel["targets"]]

    assert panel["type"] in {"stat", "timeseries", "table"}
    assert panel["description"].endswith(".")
    assert panel["datasource"] == SOURCE
    assert all(target["datasource"] == SOURCE for target in panel["targets"])
    assert letters
    assert len(letters) == len(set(letters))


@pytest.mark.parametrize("expression", expressions())
def test_query_reads_metrics_that_exist(expression: str) -> None:
    """A query on a metric that nobody exports shows an empty panel."""
    assert metrics_in(expression)


@by_chart
def test_legend_uses_labels_that_the_query_keeps(panel: dict[str, Any]) -> None:
    """A label that was summed away would leave the legend empty."""
    for target in panel["targets"]:
        kept = target["expr"].partition(" by (")[2].partition(")")[0]
        for label in ("instance", "sink", "kind", "state", "reason", "outcome", "status", "method"):
            if f"{{{{{label}}}}}" in target["legendFormat"] and "sum" in target["expr"]:
                assert label in kept, target


def test_every_metric_is_on_the_dashboard() -> None:
    """What is worth exporting is worth showing."""
    shown = {name for expression in expressions() for name in metrics_in(expression)}
    families = {name.removesuffix("_bucket") for name in shown}

    assert set(FAMILIES) - families == set()


def test_promtool_accepts_every_query(tmp_path: Path) -> None:
    """Prometheus' own parser reads each of them, dressed up as a recording rule."""
    rules = [{"record": f"q:{n}", "expr": expr} for n, expr in enumerate(expressions())]
    (tmp_path / "queries.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )

    assert f"{len(rules)} rules found" in promtool("check", "rules", "queries.yml", folder=tmp_path)
