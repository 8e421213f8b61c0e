"""The direction of imports, held by a test: cli → app → loops and adapters → core."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "bridge"
IMPURE = {"asyncio", "socket", "time", "random", "logging", "os", "sqlite3", "aiohttp", "secrets"}
ADAPTERS = (
    "bridge.imds",
    "bridge.start_request",
    "bridge.store",
    "bridge.http",
    "bridge.transports",
)


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_core_is_pure() -> None:
    """The core imports itself, values and nothing that acts."""
    for path in (PACKAGE / "core").glob("*.py"):
        found = imports(path)
        assert not {name.partition(".")[0] for name in found} & IMPURE, path
        ours = {name for name in found if name.startswith("bridge.")}
        assert all(name.startswith("bridge.core") for name in ours), (path, ours)


def test_simulator_shares_nothing_with_the_agent() -> None:
    """A misreading of Azure's document must not be made twice."""
    for path in (PACKAGE / "simulator").glob("*.py"):
        ours = {name for name in imports(path) if name.startswith("bridge.")}
        assert all(name.startswith("bridge.simulator") for name in ours), (path, ours)


def test_adapters_do_not_import_each_other() -> None:
    """Each adapter knows the core and its own config; GET and POST of IMDS are one adapter."""
    for name in ("imds.py", "http.py", "transports/mqtt.py", "transports/stdout.py"):
        found = imports(PACKAGE / name)
        own = "bridge." + name.removesuffix(".py").replace("/", ".")
        others = {a for a in ADAPTERS if a != own and not own.startswith(a)}
        assert not {f for f in found if f.startswith(tuple(others))}, name


def test_only_the_command_line_imports_the_app() -> None:
    """The composition root is nobody's library."""
    for path in PACKAGE.rglob("*.py"):
        if path.name not in {"cli.py", "app.py"}:
            assert "bridge.app" not in imports(path), path
