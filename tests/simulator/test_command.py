"""`sebridge simulate` as a person runs it: a process, its lines, its exit codes; and curl."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "bridge", "simulate"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """The default fleet on a free port, at sixty times real time."""
    command = [*COMMAND, "--listen", "127.0.0.1:0", "--speed", "60", "--policy", "OldestVM"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        yield started
        started.kill()


def read_lines(process: subprocess.Popen[str]) -> dict[str, str]:
    """The first word of each of the four lines, and the URL in it."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    return {line.split()[0]: re.findall(r"http://[^' ]+", line)[0].strip() for line in lines}


def curl(*arguments: str) -> str:
    command = ["curl", "-sS", "--noproxy", "*", "--max-time", "10", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_lines_printed_are_urls_that_work_with_curl(process: subprocess.Popen[str]) -> None:
    """Whoever copies a printed line gets an answer from it."""
    urls = read_lines(process)
    document = json.loads(curl("-H", "Metadata:true", urls["document"]))
    state = json.loads(curl(urls["control"]))

    assert document == {"DocumentIncarnation": 1, "Events": []}
    assert urls["endpoint"] == f"{urls['simulator']}/vm/web_1"
    assert len(state["vms"]) == 11


def test_story_of_a_scale_in_with_curl_alone(process: subprocess.Popen[str]) -> None:
    """Scale in, read the document, approve both, and find the VMs gone: all with curl."""
    urls = read_lines(process)
    base, document_url = urls["simulator"], urls["document"]
    selected = json.loads(curl(f"{base}/control/scale-in", "-d", '{"count": 2}'))["selected"]
    document = json.loads(curl("-H", "Metadata:true", document_url))
    body = json.dumps({"StartRequests": [{"EventId": e["EventId"]} for e in document["Events"]]})
    status = curl(
        "-o", "/dev/null", "-w", "%{http_code}", "-H", "Metadata:true", "-d", body, document_url
    )
    curl(f"{base}/control/clock", "-d", '{"advanceS": 60}')
    state = json.loads(curl(f"{base}/control/state"))

    assert selected == ["web_2", "web_3"]
    assert status == "200"
    assert [vm["name"] for vm in state["vms"] if vm["state"] == "gone"] == selected
    with pytest.raises(subprocess.CalledProcessError):
        curl("-H", "Metadata:true", document_url.replace("web_1", "web_2"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_cleanly(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """SIGTERM and SIGINT end it with exit code 0 and nothing on stderr."""
    read_lines(process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)

    assert (process.returncode, errors) == (0, "")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--listen"),
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--terminate-notification", "PT16M"], "PT5M to PT15M"),
        (["--listen", "127.0.0.1:0", "--spot", "--terminate-notification", "PT5M"], "spot"),
        (["--listen", "127.0.0.1:0", "--speed", "fast"], "--speed"),
        (["--listen", "127.0.0.1:0", "--scenario", "flood"], "host-failure"),
    ],
)
def test_bad_values_exit_2_with_a_clear_message(arguments: list[str], message: str) -> None:
    """Usage errors name what is wrong and leave nothing running."""
    result = run(*arguments)

    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_port_in_use_exits_1_with_a_clear_message() -> None:
    """A port that somebody else has is a failure, not a usage error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("--listen", f"127.0.0.1:{taken.getsockname()[1]}")

    assert result.returncode == 1
    assert "cannot listen" in result.stderr
    assert "Traceback" not in result.stderr


def test_help_names_every_option_and_the_module_does_the_same() -> None:
    """--help lists what there is, by either name."""
    shown = run("--help").stdout
    module = subprocess.run(
        [sys.executable, "-m", "bridge.simulator", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    ).stdout

    for option in ("--instances", "--policy", "--scenario", "--shorten", "--first-call-delay"):
        assert option in shown
    assert set(re.findall(r"--[a-z-]+", module)) <= set(re.findall(r"--[a-z-]+", shown))
