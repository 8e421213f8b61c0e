"""`sebridge simulate --fleet`: whole agents in worker processes, against a real mosquitto."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mosquitto import Mosquitto

COMMAND = [sys.executable, "-m", "bridge", "simulate"]


def drill(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.timeout(150)
def test_fleet_loses_nothing_and_approves_once() -> None:
    """A mass event and a broker restart: all is published and approved, nothing lost or twice."""
    done = drill("--fleet", "6", "--steady", "2", "--patience", "60", "--json")

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["mass_approved"], figures["storm_approved"]) == (6, 6)
    faults = ("lost", "twice", "posted_twice", "not_posted")
    assert {
        name: 0 for act in ("mass", "storm") for fault in faults if (name := f"{act}_{fault}")
    } == {name: value for name, value in figures.items() if name.endswith(faults)}
    assert 0.5 < figures["polls_kept"] < 1.5


def test_fleet_uses_the_broker_it_is_given(tmp_path: Path) -> None:
    """A broker of somebody else gets the mass event and is not restarted."""
    with Mosquitto(tmp_path) as broker:
        done = drill("--fleet", "2", "--steady", "1", "--mqtt", f"127.0.0.1:{broker.port}")

    assert done.returncode == 0, done.stderr
    assert "mass event, all approved" in done.stdout
    assert "broker restart" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--fleet", "2", "--mqtt", "nowhere"], 2, "expected HOST:PORT"),
        (["--fleet", "2", "--mqtt", "127.0.0.1:1"], 1, "does not listen"),
        (["--fleet", "-1"], 2, "--fleet"),
    ],
)
def test_fleet_tells_what_is_wrong(arguments: list[str], code: int, text: str) -> None:
    """A broker that cannot be, or is not there, ends the command with the reason."""
    done = drill(*arguments)

    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
