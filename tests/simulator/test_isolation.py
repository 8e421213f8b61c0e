"""The simulator shares nothing with the agent it judges."""

import ast
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[2] / "bridge" / "simulator").glob("*.py"))
PURE = ("model", "fleet", "scale_in", "documents", "imds", "scenarios", "settings", "faults")


def imported(source: Path) -> set[str]:
    """Every module a file imports, by its full name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_simulator_imports_nothing_else_of_bridge(source: Path) -> None:
    """A misreading of Azure's documentation must not be made twice."""
    of_bridge = {name for name in imported(source) if name.split(".")[0] == "bridge"}

    assert all(name.startswith("bridge.simulator") for name in of_bridge)


@pytest.mark.parametrize("source", [s for s in SOURCES if s.stem in PURE], ids=lambda p: p.stem)
def test_pure_modules_know_no_clock_and_no_socket(source: Path) -> None:
    """The rules take time as an argument and do no input or output."""
    impure = {"asyncio", "aiohttp", "time", "random", "socket", "os", "logging", "secrets"}

    assert not {name.split(".")[0] for name in imported(source)} & impure
