"""The architecture as tests: who may import whom, and how long a file may be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "bridge").rglob("*.py"))
LINES_MAX = 300
PURE = {
    "collections", "datetime", "email", "enum", "hashlib", "hmac", "base64", "binascii", "json",
    "functools", "itertools", "math", "msgspec", "operator", "re", "string", "struct", "types",
    "typing", "urllib", "uuid",
}  # fmt: skip
ADAPTERS = (
    "bridge.imds",
    "bridge.start_request",
    "bridge.store",
    "bridge.transports",
    "bridge.feeds",
    "bridge.http",
)
PORTS = ("bridge.transports", "bridge.feeds")
INSTALLER = ("bridge.service", "bridge.extension", "bridge.errors", "bridge.version")
LOOPS = ("bridge.poller", "bridge.publisher", "bridge.intake", "bridge.approver")
MAY_IMPORT_APP = {"bridge.app", "bridge.cli", "bridge.__main__", "bridge.fleet.worker"}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Every module that the file imports, anywhere in it; names of `bridge` as modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it comes from"
            base = node.module or ""
            found.add(base)
            found |= {name for a in node.names if is_module(name := f"{base}.{a.name}")}
    return found - {"bridge"}


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def is_within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def adapter_of(module: str) -> str | None:
    """The adapter that a module belongs to: each transport is one of its own."""
    if module in PORTS:
        return None
    if is_within(module, *PORTS):
        return ".".join(module.split(".")[:3])
    return next((a for a in ADAPTERS if is_within(module, a)), None)


by_module = pytest.mark.parametrize("path", FILES, ids=module_of)


@by_module
def test_core_imports_only_core_and_pure_modules(path: Path) -> None:
    """The heart does no I/O, reads no clock, rolls no dice and logs nothing."""
    if not is_within(module_of(path), "bridge.core"):
        return

    foreign = {
        name
        for name in imports_of(path)
        if not is_within(name, "bridge.core") and name.partition(".")[0] not in PURE
    }

    assert foreign == set()


@by_module
def test_simulator_imports_nothing_else_of_bridge(path: Path) -> None:
    """A simulator that shared code with the agent would share its mistakes."""
    if not is_within(module_of(path), "bridge.simulator"):
        return

    shared = {n for n in imports_of(path) if is_within(n, "bridge")}

    assert {n for n in shared if not is_within(n, "bridge.simulator")} == set()


@by_module
def test_adapters_never_import_each_other(path: Path) -> None:
    """IMDS, store, transports and HTTP meet in the app only."""
    mine = adapter_of(module_of(path))
    if mine is None:
        return

    others = {name for name in imports_of(path) if adapter_of(name) not in {None, mine}}

    assert others == set()


@by_module
def test_loops_know_the_store_and_ports_only(path: Path) -> None:
    """They meet in the ledger: no loop calls another, nor a transport, nor IMDS by itself."""
    mine = module_of(path)
    if mine not in LOOPS:
        return

    found = imports_of(path)

    assert {name for name in found if adapter_of(name) not in {None, "bridge.store"}} == set()
    assert {name for name in found if name in LOOPS and name != mine} == set()


@by_module
def test_console_knows_no_transport_but_the_port(path: Path) -> None:
    """The console shows what any consumer could: it never touches the agent's own parts."""
    if not is_within(module_of(path), "bridge.console"):
        return

    assert {name for name in imports_of(path) if adapter_of(name)} == set()


@by_module
def test_nothing_but_the_entry_points_imports_app(path: Path) -> None:
    """The app knows everybody; nobody knows the app."""
    if module_of(path) in MAY_IMPORT_APP:
        return

    assert {n for n in imports_of(path) if is_within(n, "bridge.app")} == set()


@by_module
def test_installer_needs_the_standard_library_alone(path: Path) -> None:
    """It runs from inside the wheel, on a VM where nothing is installed yet."""
    if not is_within(module_of(path), "bridge.service", "bridge.extension"):
        return

    foreign = {
        name
        for name in imports_of(path)
        if name.partition(".")[0] not in sys.stdlib_module_names and not is_within(name, *INSTALLER)
    }

    assert foreign == set()


@by_module
def test_file_stays_short(path: Path) -> None:
    """A file that needs more lines has two subjects."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < LINES_MAX


def test_azure_libraries_are_loaded_only_when_configured() -> None:
    """An agent without Event Hubs pays nothing for it: 30 MB and a quarter of a second."""
    modules = [
        m for m in map(module_of, FILES) if "eventhubs" not in m and not m.endswith("__main__")
    ]
    program = f"import sys, {', '.join(modules)}; print(sorted(n for n in sys.modules if n == 'azure' or n.startswith('azure.')))"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
