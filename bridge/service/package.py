"""A virtual environment from a folder of wheels: no package registry, no pip on the VM needed.

The folder comes with the package (see deploy/extension/build.py): wheels for several platforms,
a pip that runs from inside its own wheel, and requirements.txt with the hash of every file.
"""

import hashlib
import platform
import subprocess
import sys
from pathlib import Path

from bridge.errors import ServiceError
from bridge.service import files
from bridge.service.layout import Layout
from bridge.version import VERSION

# Written last: an environment without it was cut short.
STAMP = ".complete"
_INSTALL_S_MAX = 600.0  # the guest agent gives an install 900
_EXCERPT_CHARACTERS = 900  # of what pip said; a status message holds a thousand


def find_wheels() -> Path | None:
    """The folder of wheels that this module was imported from, if it was."""
    for parent in Path(__file__).parents:
        if parent.suffix == ".whl":
            return parent.parent
    return None


def install(layout: Layout, wheels: Path) -> Path:
    """Make this version's environment, unless it is there, from these wheels and this Python."""
    program = layout.programs / VERSION
    stamp = program / STAMP
    made_of = f"{sys.executable} {platform.python_version()} {_digest(wheels)}\n"
    if files.read(stamp) == made_of:
        return program
    files.remove(program)
    layout.programs.mkdir(mode=0o755, parents=True, exist_ok=True)
    python = [sys.executable, "-I"]
    _run([*python, "-m", "venv", "--without-pip", str(program)])
    _run([*python, *_pip(wheels, program / "bin/python")])
    files.write(stamp, made_of, 0o644)
    return program


def _digest(wheels: Path) -> str:
    """Of the lock file, which holds the hash of every wheel."""
    try:
        return hashlib.sha256((wheels / "requirements.txt").read_bytes()).hexdigest()
    except FileNotFoundError:
        raise ServiceError(f"{wheels} has no requirements.txt: the package is not whole") from None


def _pip(wheels: Path, python: Path) -> list[str]:
    try:
        pip = next(wheels.glob("pip-*.whl"))
    except StopIteration:
        raise ServiceError(f"{wheels} has no pip wheel: the package is not whole") from None
    options = "--isolated --quiet --no-input --disable-pip-version-check --no-cache-dir"
    install = "--no-index --no-deps --require-hashes --only-binary=:all:"
    files_ = ["--find-links", str(wheels), "--requirement", str(wheels / "requirements.txt")]
    return [
        str(pip / "pip"), "--python", str(python), *options.split(),
        "install", *install.split(), *files_,
    ]  # fmt: skip


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S_MAX,
            check=False,
            umask=0o022,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"cannot make the virtual environment: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-_EXCERPT_CHARACTERS:]
        raise ServiceError(f"cannot make the virtual environment: {said}")
