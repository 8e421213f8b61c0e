"""Takes the pictures of the docs: `python -m tests.browser.screenshots FOLDER`."""

import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bridge.core.diff import Ending
from tests.browser.conftest import ARGUMENTS, CHROMIUM, ConsoleProcess
from tests.support.fleet_messages import Publisher, vm
from tests.support.mosquitto import Mosquitto

ZONES = {
    "web": {"1": (3, 4, 5, 10), "2": (2, 6, 9, 11), "3": (1, 7, 8)},
    "batch": {"1": range(14), "2": range(14, 27)},
}
DESKTOP = {"width": 1440, "height": 940}
PHONE = {"width": 390, "height": 844}


def publish_fleet(publisher: Publisher) -> None:
    for scale_set, zones in ZONES.items():
        for zone, numbers in zones.items():
            for number in numbers:
                word = {"batch_7": "blind", "batch_21": "offline", "web_9": "online"}.get(
                    f"{scale_set}_{number}", "online"
                )
                publisher.status(
                    vm(f"{scale_set}_{number}", scale_set=scale_set, zone=zone),
                    word,
                    now=datetime.now(UTC),
                )
    publisher.status(vm("build-01", scale_set="", zone=""), "online", now=datetime.now(UTC))


def publish_events(publisher: Publisher) -> None:
    now = datetime.now(UTC)

    def tell(name: str, zone: str, event_id: str, **fields: object) -> None:
        machine = vm(name, zone=zone)
        publisher.event(machine, event_id, **{"now": now - timedelta(minutes=1), **fields})  # type: ignore[arg-type]

    tell(
        "batch_3",
        "1",
        "0f6b1c88-51aa-4c1e-9a3f-1f0f5f6f0a01",
        transition="completed",
        event_type="Freeze",
        now=now - timedelta(minutes=4),
        sequence=9,
        ending=Ending(because="gone after it had started", certainty="observed"),
    )
    tell(
        "web_7",
        "3",
        "5b0e0f2c-77de-4a0f-8c0e-8b8f2d0c1102",
        transition="canceled",
        now=now - timedelta(minutes=2),
        sequence=9,
        ending=Ending(because="gone before NotBefore, never started", certainty="inferred"),
    )
    tell(
        "web_3",
        "1",
        "602d9444-d2cd-49c7-8624-8643e7171297",
        in_s=14 * 60 + 32 + 60,
        Description="Host server is undergoing maintenance.",
        DurationInSeconds=9,
    )
    for name in ("web_10", "web_11", "web_6"):
        tell(
            name,
            "2",
            "8a1c6f0d-2f5d-4d3e-b5a7-52c5d1c3aa03",
            event_type="Redeploy",
            resources=("web_10", "web_11", "web_6"),
            in_s=7 * 60 + 48 + 60,
            Description="Hardware of the host shows early signs of failure.",
        )
    tell(
        "batch_5",
        "1",
        "c1f6f2be-0d0b-4d5d-9a56-6a6a9b2dbb04",
        event_type="Terminate",
        in_s=3 * 60 + 12 + 60,
        EventSource="User",
    )
    tell(
        "batch_20",
        "2",
        "d2a7a3cf-1e1c-4e6e-8b67-7b7b0c3ecc05",
        event_type="Terminate",
        in_s=3 * 60 + 12 + 60,
        EventSource="User",
    )
    tell(
        "batch_12", "1", "e3b8b4d0-2f2d-4f7f-9c78-8c8c1d4fdd06", event_type="Preempt", in_s=26 + 60
    )
    tell(
        "batch_16",
        "2",
        "f4c9c5e1-3a3e-4a8a-8d89-9d9d2e5aee07",
        event_type="Freeze",
        in_s=11 * 60 + 5 + 60,
        Description="Host network is being updated.",
        DurationInSeconds=5,
    )
    publisher.outcome(
        vm("batch_5", zone="1"),
        event_id="c1f6f2be-0d0b-4d5d-9a56-6a6a9b2dbb04",
        http_status=200,
        waiting_on=("d2a7a3cf-1e1c-4e6e-8b67-7b7b0c3ecc05",),
        requested_by="/ops/oncall",
        now=now,
    )
    publisher.outcome(
        vm("batch_16", zone="2"),
        event_id="f4c9c5e1-3a3e-4a8a-8d89-9d9d2e5aee07",
        status="in-doubt",
        reason="in-doubt",
        detail="no answer to the POST within 10 s; the document is watched",
        requested_by="/ops/oncall",
        now=now,
    )


def shoot(browser: Browser, url: str, folder: Path) -> None:
    for name, scheme, size in (
        ("console-dark", "dark", DESKTOP),
        ("console-light", "light", DESKTOP),
        ("console-phone", "dark", PHONE),
    ):
        context = browser.new_context(
            viewport=size,
            color_scheme=scheme,
            device_scale_factor=1,
            timezone_id="UTC",
            reduced_motion="reduce",
        )  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url)
        page.get_by_role("button", name="Approve Redeploy").wait_for()
        page.screenshot(path=folder / f"{name}.png")
        page.screenshot(path=folder / f"{name}-full.png", full_page=True)
        if name != "console-light":
            page.get_by_role("button", name="Approve Redeploy").click()
            page.get_by_label("Reason").fill("drained, chg-4711")
            page.screenshot(path=folder / f"{name}-approve.png")
            page.get_by_role("button", name="Cancel").click()
            page.get_by_role("button", name="Details: Freeze of batch_16").click()
            page.locator("pre").first.wait_for()
            page.screenshot(path=folder / f"{name}-details.png")
        context.close()


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary, Mosquitto(Path(temporary)) as broker:
        config = Path(temporary) / "console.toml"
        config.write_text(f'[mqtt]\nport = {broker.port}\n[console]\nlisten = "127.0.0.1:0"\n')
        publisher = Publisher(broker.port)
        publish_fleet(publisher)
        publisher.flush()
        console = ConsoleProcess(config)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            page = browser.new_page()
            page.goto(console.url)
            page.get_by_text("39 VMs").wait_for()
            publish_events(publisher)
            publisher.flush()
            shoot(browser, console.url, folder)
            browser.close()
        console.stop()
        publisher.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
