"""The page on its own: untrusted text, login, read-only, filters, a large fleet, outages."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from bridge.core.diff import Ending
from tests.support.fleet_messages import Publisher, vm
from tests.support.mosquitto import Mosquitto

pytestmark = pytest.mark.timeout(120)

WEB_3 = vm("web_3")
EVENT = "602d9444-d2cd-49c7-8624-8643e7171297"
MARKUP = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'


def tell(publisher: Publisher, name: str, event_id: str = EVENT, **fields: Any) -> None:
    machine = vm(name)
    publisher.status(machine, now=datetime.now(UTC))
    publisher.event(machine, event_id, **{"now": datetime.now(UTC), **fields})
    publisher.flush()


def test_markup_from_the_wire_stays_text(page: Page, console: Any, publisher: Publisher) -> None:
    """A Description, a type or a name with tags in it is shown with its tags."""
    tell(publisher, "web_3", Description=MARKUP, EventSource=MARKUP, EventType=MARKUP)
    publisher.status(vm("web_<b>4", scale_set="<i>web</i>", zone="<u>1</u>"))
    publisher.outcome(
        WEB_3, status="rejected", reason="policy-denied", detail=MARKUP, event_id=EVENT
    )
    page.goto(console().url)
    expect(page.locator("#pending-list .type")).to_have_text(MARKUP)
    expect(page.locator("#groups h3", has_text="<i>web</i>")).to_be_visible()
    expect(page.get_by_role("button", name="web_<b>4, online")).to_be_visible()
    page.locator("#pending-list .vms").click()
    expect(page.locator("#details-facts")).to_contain_text(MARKUP)
    expect(page.locator("#details-messages pre")).to_contain_text("onerror=")
    page.keyboard.press("Escape")
    page.locator("#pending-list .approve").click()
    expect(page.locator("#approve-title")).to_contain_text(MARKUP)

    assert "owned" not in page.title()
    assert (
        page.locator("main img, main script, dialog img, dialog script, aside i, aside b").count()
        == 0
    )


def test_details_show_the_cloudevent_as_received(
    page: Page, console: Any, publisher: Publisher
) -> None:
    """Every field of the message, its token included, and who sent it."""
    tell(publisher, "web_3", SomethingNew="kept")
    page.goto(console().url)
    page.get_by_role("button", name="Details: Reboot of web_3").click()
    shown = page.locator("#details-messages")
    expect(shown).to_contain_text("web_3 — sebridge/v1/web-rg/web_3")
    expect(shown.locator("pre")).to_contain_text('"SomethingNew": "kept"')
    expect(shown.locator("pre")).to_contain_text('"type": "io.sebridge.event.scheduled.v1"')


def test_waiting_doubt_and_refusal_are_told_in_words(
    page: Page, console: Any, publisher: Publisher
) -> None:
    """Live: what Azure waits for, a doubt, and a refusal with its reason."""
    page.goto(console().url)
    expect(page.locator("#link-text")).to_have_text("live")
    for number, name in enumerate(("web_1", "web_2", "web_3", "web_4")):
        tell(publisher, name, f"E{number}", event_type="Terminate", in_s=300 + number)
    expect(page.locator("#pending-list .event")).to_have_count(4)
    publisher.outcome(vm("web_1"), event_id="E0", waiting_on=("E1",), http_status=200)
    publisher.outcome(vm("web_2"), event_id="E1", status="in-doubt", detail="no answer")
    publisher.outcome(vm("web_3"), event_id="E2", status="rejected", reason="policy-denied")
    rows = page.locator("#pending-list .event")
    expect(rows.nth(0)).to_contain_text("Azure waits for 1 other Terminate event: web_2")
    expect(rows.nth(0).locator(".state")).to_have_text("approved")
    expect(rows.nth(1).locator(".state")).to_have_text("in doubt")
    expect(rows.nth(1).get_by_role("button", name="Approve")).to_be_hidden()
    expect(rows.nth(2)).to_contain_text("policy-denied")
    expect(rows.nth(2).get_by_role("button", name="Approve")).to_be_visible()
    expect(page.locator("#doubts")).to_have_text("1 in doubt")

    ending = Ending(because="gone after it had started", certainty="observed")
    tell(
        publisher,
        "web_4",
        "E3",
        event_type="Terminate",
        transition="completed",
        sequence=9,
        ending=ending,
    )
    expect(page.locator("#recent-list .event")).to_contain_text(["gone after it had started"])
    expect(page.locator("#pending-count")).to_have_text("3")


def test_dialog_closes_the_way_when_the_event_changes(
    page: Page, console: Any, publisher: Publisher
) -> None:
    """Nobody approves something else than what is on the screen."""
    tell(publisher, "web_3")
    page.goto(console().url)
    page.get_by_role("button", name="Approve Reboot of web_3").click()
    tell(publisher, "web_3", transition="updated", sequence=2, event_type="Redeploy")
    expect(page.get_by_text("The event has changed since you opened this.")).to_be_visible()
    expect(page.locator("#approve-confirm")).to_be_disabled()


def test_filters_narrow_events_history_and_fleet(
    page: Page, console: Any, publisher: Publisher
) -> None:
    """By scale set, type, status, text, and by pressing a VM."""
    tell(publisher, "web_1", "E1")
    tell(publisher, "db_2", "E2", event_type="Freeze")
    tell(publisher, "db_3", "E3", state="approved")
    page.goto(console().url)
    rows = page.locator("#pending-list .event")
    expect(rows).to_have_count(3)
    page.get_by_label("Scale set").select_option("db")
    expect(rows).to_have_count(2)
    expect(page.locator("#history-rows tr")).to_have_count(2)
    page.get_by_label("Type").select_option("Freeze")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Clear").click()
    page.locator("#filter-status").select_option("approved")
    expect(rows).to_contain_text(["db_3"])
    page.get_by_role("button", name="Clear").click()
    page.keyboard.press("/")
    page.keyboard.type("web_")
    expect(rows).to_contain_text(["web_1"])
    page.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="db_2, online, 1 pending event").click()
    expect(rows).to_contain_text(["db_2"])


def test_read_only_shows_everything_and_offers_nothing(
    page: Page, console: Any, publisher: Publisher
) -> None:
    """No button, and the reason where one looks for it."""
    tell(publisher, "web_3")
    page.goto(console("read_only = true").url)
    expect(page.locator("#pending-list .event")).to_have_count(1)
    expect(page.get_by_text("read-only", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Approve Reboot")).to_have_count(0)
    page.get_by_role("button", name="Details: Reboot of web_3").click()
    expect(page.get_by_text("This console is read-only.")).to_be_visible()
    expect(page.locator("#details-approve")).to_be_hidden()


def test_token_login(
    page: Page, context: BrowserContext, console: Any, publisher: Publisher, tmp_path: Path
) -> None:
    """A wrong token is told so, the right one opens the page, and scripts cannot read the cookie."""
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple")
    tell(publisher, "web_3")
    page.goto(console(f'token_file = "{token}"').url)
    field = page.get_by_label("Console token")
    expect(field).to_be_focused()
    field.fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    field.fill("correct-horse-battery-staple")
    field.press("Enter")
    page.get_by_role("button", name="Approve Reboot of web_3").click()
    page.get_by_role("button", name="Approve Reboot of 1 VM").click()
    expect(page.locator("#pending-list .state")).to_have_text("sent, no answer yet")

    [cookie] = context.cookies()
    assert cookie["httpOnly"]
    assert "Strict" == cookie["sameSite"]
    assert "" == page.evaluate("document.cookie")


def test_thousand_vms_stay_usable(page: Page, console: Any, publisher: Publisher) -> None:
    """All are there, one change touches one tile, and an approval still takes two clicks."""
    for number in range(1000):
        machine = vm(f"web_{number}", zone=str(number % 3 + 1))
        publisher.status(machine, now=datetime.now(UTC))
        if number % 10 == 0:
            publisher.event(machine, f"E{number}", now=datetime.now(UTC), in_s=600 + number)
    publisher.flush()
    page.goto(console().url)
    expect(page.get_by_text("1000 VMs")).to_be_visible()
    expect(page.locator("#groups .tile")).to_have_count(1000)
    expect(page.locator("#pending-list .event")).to_have_count(100)

    page.evaluate(
        """() => {
          window.touched = new Set();
          const note = (records) => records.forEach((record) => {
            const tile = (record.target.nodeType === 1 ? record.target : record.target.parentElement).closest(".tile");
            if (tile) window.touched.add(tile.dataset.agent);
          });
          const options = { subtree: true, childList: true, attributes: true, characterData: true };
          new MutationObserver(note).observe(document.getElementById("groups"), options);
        }"""
    )
    publisher.status(vm("web_500", zone="3"), "blind", now=datetime.now(UTC))
    expect(page.get_by_role("button", name="web_500, blind", exact=False)).to_have_count(1)
    assert ["sebridge/v1/web-rg/web_500"] == page.evaluate("[...window.touched]")

    page.get_by_label("Search").fill("web_990")
    page.get_by_role("button", name="Approve Reboot of web_990").click()
    page.get_by_role("button", name="Approve Reboot of 1 VM").click()
    expect(page.locator("#pending-list .state")).to_have_text("sent, no answer yet")


def test_outage_is_told_and_mended(
    page: Page, console: Any, publisher: Publisher, broker: Mosquitto
) -> None:
    """Old data never looks fresh: the page says that the broker is away, and when it is back."""
    tell(publisher, "web_3")
    page.goto(console().url)
    expect(page.locator("#link-text")).to_have_text("live")
    broker.stop()
    expect(page.get_by_role("alert").first).to_contain_text("What you see may be old")
    broker.start()
    expect(page.locator("#link-text")).to_have_text("live", timeout=30_000)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_text_has_contrast_in_both_themes(
    page: Page, console: Any, publisher: Publisher, scheme: Any
) -> None:
    """Every text on the page reaches 4.5:1 against what is painted behind it."""
    for number, kind in enumerate(("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")):
        tell(publisher, f"web_{number}", f"E{number}", event_type=kind, in_s=60 + number * 120)
    publisher.status(vm("web_8"), "blind")
    publisher.status(vm("web_9"), "offline", now=datetime.now(UTC))
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(console().url)
    expect(page.locator("#pending-list .event")).to_have_count(5)
    publisher.outcome(vm("web_0"), event_id="E0", status="in-doubt", detail="no answer")
    publisher.outcome(vm("web_1"), event_id="E1", status="rejected", reason="policy-denied")
    publisher.outcome(vm("web_2"), event_id="E2", http_status=200)
    expect(page.locator("#doubts")).to_have_text("1 in doubt")
    script = (Path(__file__).parent / "contrast.js").read_text()

    assert [] == page.evaluate(script)
    page.get_by_role("button", name="Approve Terminate").click()
    assert [] == page.evaluate(script)


def test_every_control_has_a_name_and_the_page_its_landmarks(
    page: Page, console: Any, publisher: Publisher
) -> None:
    """What a screen reader lists: banner, main, aside, search; no nameless button or field."""
    tell(publisher, "web_3")
    page.goto(console().url)
    expect(page.locator("#pending-list .event")).to_have_count(1)
    tree = page.locator("body").aria_snapshot()

    for landmark in ("banner", "main", "complementary", "search"):
        assert re.search(rf"^- {landmark}|^\s+- {landmark}", tree, re.MULTILINE), landmark
    nameless = [
        line
        for line in tree.splitlines()
        if re.search(r"- (button|textbox|combobox|searchbox)$", line.rstrip(":"))
    ]
    assert nameless == []


def test_phone_needs_no_sideways_scrolling(page: Page, console: Any, publisher: Publisher) -> None:
    """At 360 pixels everything fits the width, the dialog included."""
    tell(publisher, "web_3", resources=("web_3", "web_4", "web_5"), Description="x" * 300)
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(console().url)
    expect(page.locator("#pending-list .event")).to_have_count(1)
    page.get_by_role("button", name="Approve Reboot").click()
    widths = page.evaluate(
        "[document.documentElement.scrollWidth, document.getElementById('approve').scrollWidth, innerWidth]"
    )

    assert max(widths[:2]) <= widths[2]
