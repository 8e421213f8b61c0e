"""Takes the pictures of the docs: `make screenshots`."""

import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from bridge.core.diff import Ending
from tests.browser.conftest import ARGUMENTS, CHROMIUM, ConsoleProcess
from tests.support.fleet_messages import Publisher, vm
from tests.support.mosquitto import Mosquitto

DESKTOP = ViewportSize(width=1280, height=860)
PHONE = ViewportSize(width=390, height=844)
ZONES: dict[str, tuple[str, ...]] = {
    "web/1": ("3", "4", "5", "10"),
    "web/2": ("2", "6", "9", "11"),
    "web/3": ("1", "7", "8"),
    "batch/1": tuple(str(number) for number in range(14)),
    "batch/2": tuple(str(number) for number in range(14, 27)),
}
STATUSES = {"batch_8": "blind", "batch_21": "offline"}
REDEPLOYED = ("web_10", "web_11", "web_6")
SOON: dict[str, Any] = {"event_type": "Terminate", "in_s": 192, "EventSource": "User"}


def publish_fleet(publisher: Publisher) -> None:
    now = datetime.now(UTC)
    for place, numbers in ZONES.items():
        scale_set, zone = place.split("/")
        for number in numbers:
            name = f"{scale_set}_{number}"
            publisher.status(vm(name, zone=zone), STATUSES.get(name, "online"), now=now)
    publisher.status(vm("build-01", scale_set="", zone=""), now=now)
    publisher.flush()


def publish_events(publisher: Publisher) -> None:
    now = datetime.now(UTC)
    over = Ending(because="gone after it had started", certainty="observed")
    away = Ending(because="gone before NotBefore, never started", certainty="inferred")
    minutes = timedelta(minutes=1)

    zone_of = {f"{p[:-2]}_{number}": p[-1] for p, numbers in ZONES.items() for number in numbers}

    def tell(name: str, event_id: str, **fields: Any) -> None:
        publisher.event(vm(name, zone=zone_of[name]), event_id, **{"now": now, **fields})

    tell(
        "batch_3",
        "0f6b1c88-51aa",
        transition="completed",
        event_type="Freeze",
        ending=over,
        now=now - 4 * minutes,
    )
    tell("web_7", "5b0e0f2c-77de", transition="canceled", ending=away, now=now - 2 * minutes)
    tell(
        "web_3",
        "602d9444-d2cd-49c7-8624-8643e7171297",
        in_s=872,
        Description="Host server is undergoing maintenance.",
        DurationInSeconds=9,
    )
    for name in REDEPLOYED:
        tell(
            name,
            "8a1c6f0d-2f5d-4d3e-b5a7-52c5d1c3aa03",
            event_type="Redeploy",
            resources=REDEPLOYED,
            in_s=468,
            Description="The host shows early signs of a hardware failure.",
        )
    tell("batch_5", "c1f6f2be-0d0b-4d5d-9a56-6a6a9b2dbb04", **SOON)
    tell("batch_20", "d2a7a3cf-1e1c-4e6e-8b67-7b7b0c3ecc05", **SOON)
    tell("batch_12", "e3b8b4d0-2f2d-4f7f-9c78-8c8c1d4fdd06", event_type="Preempt", in_s=28)
    tell(
        "batch_16",
        "f4c9c5e1-3a3e-4a8a-8d89-9d9d2e5aee07",
        event_type="Freeze",
        in_s=665,
        DurationInSeconds=5,
    )
    publisher.outcome(
        vm("batch_5"),
        event_id="c1f6f2be-0d0b-4d5d-9a56-6a6a9b2dbb04",
        http_status=200,
        waiting_on=("d2a7a3cf-1e1c-4e6e-8b67-7b7b0c3ecc05",),
        now=now,
    )
    publisher.outcome(
        vm("batch_16"),
        event_id="f4c9c5e1-3a3e-4a8a-8d89-9d9d2e5aee07",
        status="in-doubt",
        reason="in-doubt",
        detail="no answer to the POST within 10 s; the document is watched",
        now=now,
    )
    publisher.flush()


def open_page(browser: Browser, url: str, size: ViewportSize, scheme: Any) -> Page:
    page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page.goto(url)
    expect(page.locator("#fleet-count")).to_have_text("39 VMs")
    return page


def shoot(browser: Browser, url: str, publisher: Publisher, folder: Path) -> None:
    """Outcomes are not retained, so every page is open before the events come."""
    dark = open_page(browser, url, DESKTOP, "dark")
    light = open_page(browser, url, DESKTOP, "light")
    phone = open_page(browser, url, PHONE, "dark")
    publish_events(publisher)
    for name, page in (("dark", dark), ("light", light), ("phone", phone)):
        expect(page.locator("#doubts")).to_have_text("1 in doubt")
        page.screenshot(path=folder / f"console-{name}.png")
    phone.get_by_role("button", name="Approve Redeploy").click()
    phone.get_by_label("Reason").fill("drained, chg-4711")
    phone.screenshot(path=folder / "console-approve.png")


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary, Mosquitto(Path(temporary)) as broker:
        config = Path(temporary) / "console.toml"
        config.write_text(f'[mqtt]\nport = {broker.port}\n[console]\nlisten = "127.0.0.1:0"\n')
        publisher = Publisher(broker.port)
        publish_fleet(publisher)
        console = ConsoleProcess(config)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            shoot(browser, console.url, publisher, folder)
            browser.close()
        console.stop()
        publisher.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
