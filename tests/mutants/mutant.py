"""A seeded fault: pieces of text that are exchanged in a copy of the package, and who finds it."""

import shutil
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Edit(NamedTuple):
    file: str  # below bridge/
    old: str
    new: str


class Mutant(NamedTuple):
    name: str  # what is broken, in words
    edits: tuple[Edit, ...]  # several where Python and SQL guard the same thing
    killer: str  # a test id, as pytest takes it


def mutant(name: str, killer: str, *edits: tuple[str, str, str]) -> Mutant:
    return Mutant(name, tuple(Edit(*edit) for edit in edits), killer)


def apply(fault: Mutant, bridge: Path) -> None:
    """Edit the copy; every old text must stand in its file exactly once."""
    for edit in fault.edits:
        path = bridge / edit.file
        text = path.read_text(encoding="utf-8")
        found = text.count(edit.old)
        if found != 1:
            raise ValueError(f"{fault.name}: {edit.file} has the text {found} times: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def copy_tree(folder: Path) -> Path:
    """The package as a copy, everything else as it is; gives the copied package."""
    shutil.copytree(ROOT / "bridge", folder / "bridge", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    for name in ("tests", "config", "docs"):
        (folder / name).symlink_to(ROOT / name)
    return folder / "bridge"
