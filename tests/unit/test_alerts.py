"""deploy/prometheus/alerts.yml: rules that load, speak of real metrics, and help whoever they wake."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.promql import metrics_in, promtool, series

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
GROUPS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]

by_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_alerts_have_names_of_their_own() -> None:
    """No two rules share a name, and all are recognised as ours."""
    names = [rule["alert"] for rule in RULES]

    assert len(names) == len(set(names)) >= 10
    assert all(re.fullmatch(r"Sebridge[A-Z]\w+", name) for name in names)


@by_rule
def test_rule_has_its_parts_and_no_others(rule: dict[str, Any]) -> None:
    """A misspelt key would be refused by Prometheus, with the whole file."""
    assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


@by_rule
def test_expression_reads_metrics_that_exist(rule: dict[str, Any]) -> None:
    """A rule on a metric that nobody exports never fires."""
    assert metrics_in(rule["expr"])


@by_rule
def test_annotations_explain(rule: dict[str, Any]) -> None:
    """Summary, description, and a section of the documentation that is really there."""
    annotations = rule["annotations"]
    page, _, anchor = annotations["runbook"].partition("#")

    assert annotations.keys() == {"summary", "description", "runbook"}
    assert "$labels.instance" in annotations["summary"]
    assert len(annotations["description"]) > 40
    assert anchor in anchors(ROOT / page)


@by_rule
def test_annotations_use_labels_that_the_alert_has(rule: dict[str, Any]) -> None:
    """A label that does not exist would leave a hole in the sentence."""
    known = {"instance", "job"}.union(*(series()[name] for name in metrics_in(rule["expr"])))

    text = rule["annotations"]["summary"] + rule["annotations"]["description"]

    assert set(re.findall(r"\$labels\.(\w+)", text)) <= known


def test_promtool_accepts_the_rules() -> None:
    """Prometheus itself reads the file."""
    assert f"{len(RULES)} rules found" in promtool("check", "rules", "alerts.yml", folder=FOLDER)


def test_promtool_sees_every_alert_fire_and_rest() -> None:
    """The unit tests of the rules pass, and leave no rule out."""
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml", folder=FOLDER)


def test_unit_tests_cover_every_alert() -> None:
    """Each rule is seen to fire, and seen to keep quiet, in alerts_test.yml."""
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text("utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]

    names = {rule["alert"] for rule in RULES}
    assert names == {case["alertname"] for case in cases if case["exp_alerts"]}
    assert names == {case["alertname"] for case in cases if not case["exp_alerts"]}
