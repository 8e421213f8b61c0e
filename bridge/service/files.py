"""Files that are there whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def write(path: Path, content: str, mode: int) -> None:
    """Replace the file in one step; nobody ever reads half of it, nor with a wider mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def link(path: Path, target: Path) -> None:
    """Point a symbolic link somewhere else in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def read(path: Path) -> str | None:
    """The text, or None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def remove(path: Path) -> None:
    """A file, a link or a whole folder; what is not there is removed already."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
