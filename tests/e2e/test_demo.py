"""`sebridge demo` as a new user meets it: one command, real processes, nothing left behind."""

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "bridge", "demo"]
WAIT_S = 40.0

pytestmark = pytest.mark.timeout(120)


class Demo:
    """A headless demo whose lines are read as they come."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--headless", *arguments],
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.text = ""

    def read_until(self, pattern: str, times: int = 1) -> list[Any]:
        assert self.process.stdout
        deadline = time.monotonic() + WAIT_S
        while len(found := re.findall(pattern, self.text, re.MULTILINE)) < times:
            assert time.monotonic() < deadline, self.text
            line = self.process.stdout.readline()
            assert line, self.text
            self.text += line
        return found

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code and stderr."""
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=20)
        self.text += out
        return self.process.returncode, errors

    def agents(self) -> list[int]:
        return children(self.process.pid)


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = path.read_text().partition(" ")
        except OSError:
            continue
        if int(rest.rpartition(")")[2].split()[1]) == parent:
            found.append(int(pid))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str) -> Demo:
        started.append(Demo(tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
        one.process.communicate(timeout=20)


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result


def state_of(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/control/state", timeout=5) as answer:
        return json.load(answer)


def gone_in(state: Any) -> dict[str, str]:
    return {vm["name"]: vm["goneAt"] for vm in state["vms"] if vm["state"] == "gone"}


def test_scale_in_goes_together_only_when_both_are_approved(demo: Callable[..., Demo]) -> None:
    """The whole promise of the demo, with mosquitto_sub and the commands it prints."""
    playing = demo()
    port = playing.read_until(r"mosquitto_sub -p (\d+)")[0]
    azure = playing.read_until(r"(http://\S+)/control/scale-in")[0]
    approvals = playing.read_until(r"^  (.* approve .*)$", times=2)
    heard = subprocess.run(
        ["mosquitto_sub", "-p", port, "-t", "sebridge/v1/+/+/pending/#", "-C", "2", "-W", "20"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    published = [json.loads(line)["data"] for line in heard.splitlines()]

    assert {"web_1", "web_2"} == {data["vm"]["name"] for data in published}
    assert {"Terminate"} == {data["event"]["EventType"] for data in published}
    assert all(data["event"]["EventId"] in "".join(approvals) for data in published)

    first = subprocess.run(shlex.split(approvals[0]), capture_output=True, text=True, check=False)
    playing.read_until(r"Azure still waits for web_[12]\.")
    after_first = state_of(azure)

    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("approved  Terminate of web_")
    assert gone_in(after_first) == {}
    assert [False, True] == sorted(event["approved"] for event in after_first["events"][:2])
    assert {"Scheduled"} == {event["status"] for event in after_first["events"][:2]}

    second = subprocess.run(shlex.split(approvals[1]), capture_output=True, text=True, check=False)
    gone = wait_until(lambda: gone_in(state_of(azure)))

    assert second.returncode == 0, second.stderr
    assert set(gone) == {"web_1", "web_2"}
    assert gone["web_1"] == gone["web_2"]

    playing.read_until(r"web_[12] +The VM is gone", times=2)
    code, errors = playing.end(signal.SIGINT)

    assert (code, errors) == (0, "")
    assert "VMs gone: web_1, web_2." in playing.text
    assert re.search(r"IMDS got: (\d+), different EventIds in them: \1\.", playing.text)


def test_duration_ends_it_with_a_summary_and_leaves_nothing(demo: Callable[..., Demo]) -> None:
    """CI gets plain lines, an end in time, exit 0, and a clean machine."""
    playing = demo("--duration", "12")
    folder = Path(playing.read_until(r"--config (\S+)/operator\.toml")[0])
    agents = wait_until(lambda: len(found := playing.agents()) == 7 and found)
    out, errors = playing.process.communicate(timeout=30)
    text = playing.text + out

    assert (playing.process.returncode, errors) == (0, "")
    assert "Time lapse" in text
    assert "web_1 and web_2" in text
    assert re.search(
        r"^Seen in 0:1\d: 2 scheduled, 0 started, 0 completed, 0 canceled\.$", text, re.MULTILINE
    )
    assert "\x1b" not in text
    assert not any(is_alive(pid) for pid in agents)
    assert not folder.exists()


def test_sigterm_while_it_starts_ends_it_cleanly(demo: Callable[..., Demo]) -> None:
    """Nobody has to wait until the demo is ready to be ended."""
    playing = demo()
    agents = wait_until(playing.agents)
    code, errors = playing.end(signal.SIGTERM)

    assert (code, errors) == (0, "")
    assert not any(is_alive(pid) for pid in agents)


def test_killed_demo_takes_its_agents_along(demo: Callable[..., Demo]) -> None:
    """Even SIGKILL leaves no agent behind."""
    playing = demo()
    playing.read_until("All agents are online")
    agents = playing.agents()
    playing.process.kill()
    playing.process.wait()

    assert len(agents) == 7
    wait_until(lambda: not any(is_alive(pid) for pid in agents))


def test_terminal_shows_the_time_left_and_is_given_back(tmp_path: Path) -> None:
    """On a terminal it draws a screen with a countdown, and restores the terminal at the end."""
    master, slave = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "xterm",
        "LINES": "40",
        "COLUMNS": "100",
        "TMPDIR": str(tmp_path),
    }
    process = subprocess.Popen(
        COMMAND, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    try:
        shown = read_terminal(master, rb"Your turn.*1:2\d.*1:1\d")
        process.send_signal(signal.SIGINT)
        shown += read_terminal(master, rb"VMs gone")
        code = process.wait(20)
    finally:
        process.kill()
        process.wait()
        os.close(master)

    assert code == 0
    assert b"\x1b[?1049h" in shown
    assert b"\x1b[?1049l" in shown
    assert b"Traceback" not in shown


def read_terminal(master: int, pattern: bytes) -> bytes:
    text, deadline = b"", time.monotonic() + WAIT_S
    while not re.search(pattern, text, re.DOTALL):
        assert time.monotonic() < deadline, text[-2000:]
        if select.select([master], [], [], 0.5)[0]:
            text += os.read(master, 65_536)
    return text


def test_taken_port_is_said_and_exits_1(demo: Callable[..., Demo]) -> None:
    """A broker port that somebody else has ends it with a sentence, not a traceback."""
    port = demo().read_until(r"mosquitto_sub -p (\d+)")[0]
    second = subprocess.run(
        [*COMMAND, "--headless", "--port", port],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert second.returncode == 1
    assert f"127.0.0.1:{port}" in second.stderr
    assert "Traceback" not in second.stderr


def test_without_the_extra_it_says_what_to_install() -> None:
    """An installation without amqtt names the extra."""
    script = "import sys; sys.modules['amqtt'] = None; from bridge.cli import main; sys.exit(main(['demo']))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30
    )

    assert result.returncode == 1
    assert "scheduled-events-bridge[demo]" in result.stderr
