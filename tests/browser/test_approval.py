"""The whole way in a real browser: simulator, agents, broker, console, and a person who clicks."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import wait_until
from tests.support.mosquitto import Mosquitto

pytestmark = pytest.mark.timeout(120)


class Cloud:
    """`sebridge simulate`, and one `sebridge run` for each VM."""

    def __init__(self, folder: Path, broker: Mosquitto) -> None:
        self._folder, self._broker = folder, broker
        self._processes: list[subprocess.Popen[bytes]] = []
        simulator = self._start("simulate", "--listen", "127.0.0.1:0", "--instances", "1:1;2:2")
        assert simulator.stdout
        first = simulator.stdout.readline().decode()
        match = re.search(r"http://127\.0\.0\.1:\d+", first)
        assert match, first
        self.url = match[0]

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self._folder / f"process{len(self._processes)}.log").open("wb")
        command = [sys.executable, "-m", "bridge", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        log.close()
        self._processes.append(process)
        return process

    def start_agent(self, name: str) -> None:
        config = self._folder / f"{name}.toml"
        config.write_text(f"""
[imds]
endpoint = "{self.url}/vm/{name}"
poll_interval_s = 0.5
[store]
path = "{self._folder}/{name}.db"
[mqtt]
host = "127.0.0.1"
port = {self._broker.port}
[http]
listen = ""
""")
        self._start("run", "--config", str(config))

    def schedule(self, **fields: Any) -> str:
        body = {"type": "Reboot", "resources": ["web_1"], "notBeforeS": 900, **fields}
        return str(self._control("events", body)["eventId"])

    def events(self) -> list[dict[str, Any]]:
        return list(self._control("state")["events"])

    def _control(self, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/control/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(15)
            assert process.stdout
            process.stdout.close()


@pytest.fixture
def cloud(tmp_path: Path, broker: Mosquitto) -> Iterator[Cloud]:
    running = Cloud(tmp_path, broker)
    for name in ("web_1", "web_2"):
        running.start_agent(name)
    yield running
    running.stop()


def seconds_left(page: Page) -> int:
    minutes, seconds = page.locator("#pending-list .left").first.inner_text().split(":")
    return int(minutes) * 60 + int(seconds)


def test_event_appears_counts_down_is_approved_and_starts(
    page: Page, console: Any, cloud: Cloud
) -> None:
    """From the simulated Azure to the screen, and the click all the way back."""
    page.goto(console().url)
    expect(page.get_by_text("2 VMs")).to_be_visible()
    expect(page.get_by_text("Nothing is scheduled.")).to_be_visible()

    event_id = cloud.schedule(resources=["web_1", "web_2"])
    row = page.locator("#pending-list .event")
    expect(row).to_have_count(1)
    expect(row.locator(".state")).to_have_text("awaits approval")
    first = seconds_left(page)
    wait_until(lambda: seconds_left(page) < first)
    assert 880 < first <= 900

    page.get_by_role("button", name="Approve Reboot of web_1, web_2").click()
    dialog = page.get_by_role("dialog", name="Approve Reboot of 2 VMs?")
    expect(dialog.locator(".vm-list li")).to_have_text([re.compile("web_1"), re.compile("web_2")])
    expect(dialog).to_contain_text("This cannot be taken back")
    dialog.get_by_label("Reason").fill("it's drained")
    expect(dialog.locator("code")).to_have_text(
        f"sebridge approve {event_id} --vm web_1 --reason 'it'\\''s drained'"
    )
    dialog.get_by_role("button", name="Approve Reboot of 2 VMs").dblclick()
    expect(dialog).to_be_hidden()
    expect(row.locator(".state")).to_have_text("started, approved")
    expect(page.locator("#history-rows")).to_contain_text(
        "approval sent by /sebridge/console: it's drained"
    )
    expect(page.locator("#history-rows")).to_contain_text("confirmed")

    [scheduled_event] = cloud.events()
    assert (event_id, "Started") == (scheduled_event["eventId"], scheduled_event["status"])


def test_approval_with_the_keyboard_alone(page: Page, console: Any, cloud: Cloud) -> None:
    """Tab, Enter and text are enough; Enter in the reason does not approve by itself."""
    cloud.schedule(resources=["web_2"], type="Redeploy")
    page.goto(console().url)
    expect(page.locator("#pending-list .event")).to_have_count(1)

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to pending events")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Details: Redeploy of web_2")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("drained")
    page.keyboard.press("Enter")
    confirm = page.get_by_role("button", name="Approve Redeploy of 1 VM")
    expect(confirm).to_be_focused()
    expect(page.locator("#pending-list .state")).to_have_text("awaits approval")
    page.keyboard.press("Enter")
    expect(page.locator("#pending-list .state")).to_have_text("started, approved")
    expect(page.locator("#live")).to_contain_text("Redeploy of web_2")

    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Details: Redeploy of web_2")).to_be_focused()
    page.get_by_role("button", name="Details: Redeploy of web_2").press("Enter")
    drawer = page.get_by_role("dialog", name="Redeploy of web_2")
    expect(drawer.locator(".outcome")).to_contain_text(
        [re.compile("sent.*drained"), re.compile("approved.*HTTP 200"), re.compile("confirmed")]
    )
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
