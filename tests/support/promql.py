"""A look at PromQL without Prometheus: is it whole, and does it speak of metrics that exist?

promtool knows the language better, and is asked, too, where it is installed; this check is there
everywhere, and knows our metrics, which promtool does not.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bridge.metrics import FAMILIES

FUNCTIONS = {"count", "delta", "histogram_quantile", "increase", "label_values", "max", "min", "rate", "sum"}  # fmt: skip
OPERATORS = {"and", "by", "on", "or", "unless"}
# Given by Prometheus itself.
TARGET_LABELS = frozenset({"instance", "job"})
PROCESS = {
    f"sebridge_process_{name}": frozenset[str]()
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds")
}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_:][\w:]*)|(?P<duration>\d+[smhdw])'
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<operator>=~|!~|!=|==|<=|>=|[-+*/<>=,])|(?P<bracket>[()\[\]{}])"
)


class BadExpression(AssertionError):
    """The message names the expression and what is wrong with it."""


def series() -> dict[str, frozenset[str]]:
    """Every name that a query may use, with the labels it has."""
    found = {"up": frozenset[str](), **PROCESS}
    for name, family in FAMILIES.items():
        labels = frozenset(family.labels)
        if family.kind == "histogram":
            found |= {f"{name}_sum": labels, f"{name}_count": labels}
            found[f"{name}_bucket"] = labels | {"le"}
        else:
            found[name] = labels
    return found


def metrics_in(expression: str) -> set[str]:
    """Check an expression as far as that is possible here; gives the metrics it reads."""
    tokens = list(_tokens(expression))
    _check_brackets(expression, [text for kind, text in tokens if kind == "bracket"])
    known, used, labels = series(), set(), set()
    inside_braces, after_by, previous = False, False, ""
    for kind, text in tokens:
        inside_braces = text == "{" or (inside_braces and text != "}")
        after_by = text == "by" or (after_by and text != ")")
        if kind == "name" and (inside_braces or (after_by and text != "by")):
            labels.add(text)
        elif kind == "name" and text not in FUNCTIONS | OPERATORS:
            if text not in known:
                raise BadExpression(f"{text} is no metric of ours: {expression}")
            used.add(text)
        if inside_braces and previous in {"=", "=~", "!=", "!~"} and kind != "string":
            raise BadExpression(f"{text} is not a quoted value: {expression}")
        previous = text
    _check_labels(expression, labels, {name: known[name] for name in used})
    return used


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    position = 0
    while rest := expression[position:].lstrip():
        position = len(expression) - len(rest)
        match = _TOKEN.match(expression, position)
        if match is None or match.lastgroup is None:
            raise BadExpression(f"{rest[:10]!r} is not PromQL: {expression}")
        yield match.lastgroup, match[0]
        position = match.end()


def _check_brackets(expression: str, brackets: list[str]) -> None:
    open_ones: list[str] = []
    for bracket in brackets:
        if bracket in _PAIRS:
            open_ones.append(_PAIRS[bracket])
        elif not open_ones or open_ones.pop() != bracket:
            raise BadExpression(f"{bracket} closes nothing: {expression}")
    if open_ones:
        raise BadExpression(f"{open_ones[-1]} is missing: {expression}")


def _check_labels(expression: str, labels: set[str], used: Mapping[str, frozenset[str]]) -> None:
    if not used:
        raise BadExpression(f"it reads no metric: {expression}")
    allowed = TARGET_LABELS.union(*used.values())
    if unknown := labels - allowed:
        raise BadExpression(f"no such label: {', '.join(sorted(unknown))}: {expression}")


def promtool(*arguments: str, folder: Path) -> str:
    """What promtool says; the test is skipped where Debian's package `prometheus` is not."""
    command = shutil.which("promtool")
    if command is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(
        [command, *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
