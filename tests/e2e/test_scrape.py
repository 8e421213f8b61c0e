"""/metrics of a real agent, read with the parser of Prometheus' own library."""

import asyncio
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.metrics import FAMILIES
from tests.builders import EVENT_ID, azure_entry
from tests.e2e.test_stories import command, outcomes
from tests.support.scripted_imds import DROP

Samples = dict[tuple[str, ...], float]
Scrape = Callable[[Callable[[Samples], bool]], Awaitable[Samples]]


@pytest.fixture
def scrape(free_port: int) -> Scrape:
    """Scrape until a condition holds; samples by (name, label value, …), label names left out."""
    url = f"http://127.0.0.1:{free_port}/metrics"

    def once() -> Samples:
        text = urllib.request.urlopen(url, timeout=5).read().decode()
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def again(condition: Callable[[Samples], bool]) -> Samples:
        async with asyncio.timeout(20):
            while not condition(samples := await asyncio.to_thread(once)):
                await asyncio.sleep(0.05)
            return samples

    return again


async def test_metrics_tell_the_story_of_an_event(
    agent: Any, imds: Any, observer: Any, scrape: Scrape, until: Callable[..., Any]
) -> None:
    """A refusal, a lost answer and its confirmation are all in the numbers."""
    imds.on_post = lambda: DROP
    agent.start()
    imds.show(azure_entry())
    await until(lambda: observer.of("events"))
    before = await scrape(lambda s: s["sebridge_outbox_rows", "mqtt"] == 0)
    observer.send(command("other", vm="web_4"))
    observer.send(command())
    await until(lambda: ("in-doubt", "in-doubt") in outcomes(observer))
    doubtful = await scrape(lambda s: s["sebridge_in_doubt_age_seconds",] > 0)
    imds.show(azure_entry(EventStatus="Started", NotBefore=""))
    await until(lambda: ("confirmed", "") in outcomes(observer))
    after = await scrape(lambda s: s["sebridge_published_total", "mqtt"] >= 5)

    assert set(FAMILIES) <= {name.removesuffix("_count") for name, *_ in after} | {
        "sebridge_event_time_left_seconds"
    }
    assert before["sebridge_event_time_left_seconds", "none", EVENT_ID, "Reboot"] > 0
    assert doubtful["sebridge_event_time_left_seconds", "in-doubt", EVENT_ID, "Reboot"] > 0
    assert not any(name == "sebridge_event_time_left_seconds" for name, *_ in after)
    assert before["sebridge_in_doubt_age_seconds",] == 0
    assert doubtful["sebridge_approvals", "in-doubt"] == 1
    assert doubtful["sebridge_commands_total", "in-doubt", "in-doubt"] == 1
    assert doubtful["sebridge_commands_total", "rejected", "wrong-vm"] == 1
    assert doubtful["sebridge_imds_answers_total", "POST", "error"] == 1
    assert doubtful["sebridge_post_duration_seconds_count",] == 1
    assert doubtful["sebridge_answer_latency_seconds_count",] == 2
    assert after["sebridge_approvals", "confirmed"] == 1
    assert after["sebridge_transitions_total", "Reboot", "started"] == 1
    assert after["sebridge_pending_events", "Started"] == 1
    assert after["sebridge_polls_total",] > before["sebridge_polls_total",]
    assert after["sebridge_poll_duration_seconds_count",] > 0
    assert after["sebridge_commit_duration_seconds_count",] > 0
    assert after["sebridge_publish_latency_seconds_count", "mqtt"] == 5
    assert (1, 1, 1) == (
        after["sebridge_sink_up", "mqtt"],
        after["sebridge_connected", "mqtt"],
        after["sebridge_connections_total", "mqtt"],
    )


async def test_metrics_show_an_outage_of_the_broker(
    agent: Any, imds: Any, broker: Any, scrape: Scrape, until: Callable[..., Any]
) -> None:
    """Rows wait and age while the broker is away; afterwards a reconnect is counted."""
    agent.start()
    await until(lambda: imds.gets > 0)
    await scrape(lambda s: s.get(("sebridge_connected", "mqtt")) == 1)
    broker.stop()
    imds.show(azure_entry())
    away = await scrape(lambda s: s["sebridge_outbox_rows", "mqtt"] == 1)
    later = await scrape(lambda s: s["sebridge_sink_up", "mqtt"] == 0)
    broker.start()
    back = await scrape(lambda s: s["sebridge_outbox_rows", "mqtt"] == 0)

    assert later["sebridge_connected", "mqtt"] == 0
    assert later["sebridge_blind",] == 0
    assert later["sebridge_outbox_age_seconds", "mqtt"] > 0
    assert back["sebridge_outbox_age_seconds", "mqtt"] == 0
    assert back["sebridge_sink_up", "mqtt"] == 1
    assert back["sebridge_connections_total", "mqtt"] > away["sebridge_connections_total", "mqtt"]
