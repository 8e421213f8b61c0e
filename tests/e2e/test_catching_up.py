"""A start with something to announce: the news goes before the housekeeping."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.builders import EVENT_ID, azure_entry
from tests.support.mqtt_script import SlowBroker, scripted_broker

ROOT = "sebridge/v1/rg/web_3"
CONFIG = """
[imds]
endpoint = "{endpoint}"
poll_interval_s = 0.25
[store]
path = "{folder}/state.db"
[mqtt]
port = {port}
protocol = "3.1.1"
[http]
listen = ""
"""


async def test_stale_messages_are_asked_for_when_the_news_is_out(
    tmp_path: Path, imds: Any, agent_class: Any, until: Callable[..., Any]
) -> None:
    """The copies that an agent retains while its outbox drains would all come back to it."""
    imds.show(azure_entry())
    broker, config = SlowBroker(), tmp_path / "agent.toml"
    async with scripted_broker(broker.serve) as port:
        config.write_text(CONFIG.format(endpoint=imds.endpoint, folder=tmp_path, port=port))
        agent = agent_class(config)
        agent.start()
        try:
            await until(lambda: f"{ROOT}/pending/{EVENT_ID}" in broker.published)
            await until(imds.was_polled_twice())
            before = list(broker.subscribed)
            broker.told.set()
            await until(lambda: f"{ROOT}/pending/+" in broker.subscribed)
        finally:
            agent.kill()

    assert before == [f"{ROOT}/commands"]
