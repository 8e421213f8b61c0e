"""The checker of expressions must itself be able to say no."""

import pytest

from tests.support.promql import BadExpression, metrics_in


@pytest.mark.parametrize(
    ("expression", "metrics"),
    [
        ("sebridge_blind == 1", {"sebridge_blind"}),
        (
            'rate(sebridge_imds_answers_total{status="429"}[5m]) > 0.1',
            {"sebridge_imds_answers_total"},
        ),
        (
            "histogram_quantile(0.99, sum by (le) (rate(sebridge_poll_duration_seconds_bucket[5m])))",
            {"sebridge_poll_duration_seconds_bucket"},
        ),
    ],
)
def test_good_expression_gives_its_metrics(expression: str, metrics: set[str]) -> None:
    """What is right passes, and the metrics are found in it."""
    assert metrics == metrics_in(expression)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("sebridge_blnd == 1", "sebridge_blnd is no metric"),
        ("rate(sebridge_polls_total[5m]", r"\) is missing"),
        ("rate(sebridge_polls_total[5m)]", r"\) closes nothing"),
        ('sebridge_sink_up{sink="mqtt} == 0', "is not PromQL"),
        ("sebridge_sink_up{sink=mqtt} == 0", "not a quoted value"),
        ('sebridge_sink_up{broker="mqtt"}', "no such label: broker"),
        ("sum by (state) (sebridge_sink_up)", "no such label: state"),
        ("sebridge_poll_duration_seconds > 1", "is no metric"),
        ("sum by (le) (sebridge_blind)", "no such label: le"),
        ("1 > 0", "reads no metric"),
        ("sebridge_blind § 1", "is not PromQL"),
    ],
)
def test_bad_expression_is_refused(expression: str, complaint: str) -> None:
    """Typos in names, labels, brackets and quotes are found."""
    with pytest.raises(BadExpression, match=complaint):
        metrics_in(expression)
