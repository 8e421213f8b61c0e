"""A real mosquitto, a real `sebridge console`, and Debian's Chromium in front of it."""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.fleet_messages import Publisher
from tests.support.mosquitto import Mosquitto

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
START_S = 20.0


class ConsoleProcess:
    """`sebridge console` on a free port; its first line tells which."""

    def __init__(self, config: Path) -> None:
        command = [sys.executable, "-m", "bridge", "console", "--config", str(config)]
        self._log = config.with_suffix(".log").open("wb")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log)
        self.url = self._read_address()

    def _read_address(self) -> str:
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline().decode() if ready else ""
        match = re.search(r"console at (http://\S+)", line)
        assert match, f"no address within {START_S} s: {line!r}"
        return match[1]

    def stop(self) -> int:
        self._process.terminate()
        code = self._process.wait(10)
        assert self._process.stdout
        self._process.stdout.close()
        self._log.close()
        return code


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module, and no longer: Playwright's loop would be in the way of async tests."""
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS, env=dict(environment)
        )
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1440, "height": 900}, timezone_id="UTC")
    opened.set_default_timeout(15_000)
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page whose console must stay silent: no error, no violated policy."""
    complaints: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    yield opened
    unexpected = [text for text in complaints if "Failed to load resource" not in text]
    assert unexpected == []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    with Mosquitto(folder, ["allow_anonymous true", "max_queued_messages 0"]) as running:
        yield running


@pytest.fixture
def publisher(broker: Mosquitto) -> Iterator[Publisher]:
    speaking = Publisher(broker.port)
    yield speaking
    speaking.stop()


@pytest.fixture
def console(tmp_path: Path, broker: Mosquitto) -> Iterator[Callable[..., ConsoleProcess]]:
    """Start a console with these lines in its [console] section."""
    running: list[ConsoleProcess] = []

    def start(*lines: str) -> ConsoleProcess:
        config = tmp_path / f"console{len(running)}.toml"
        section = ['listen = "127.0.0.1:0"', *lines]
        config.write_text(
            "\n".join([f"[mqtt]\nport = {broker.port}\nhost = '127.0.0.1'", "[console]", *section])
        )
        running.append(ConsoleProcess(config))
        return running[-1]

    yield start
    for process in running:
        process.stop()


def wait_until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
