"""What `sebridge doctor` asks of Event Hubs: the same steps that the agent takes, one line each.

Looks only: a link to send is opened and nothing is sent; a partition is opened and nothing is kept.
"""

import asyncio
import contextlib
from typing import Any, Literal

import msgspec
from azure.eventhub import EventData

from bridge.config import Config
from bridge.errors import ConfigError
from bridge.eventhubs.client import TOKEN_SCOPE, Namespace
from bridge.eventhubs.problems import FAILURES, Problem, Stalled

# A refused link is tried again within this time, and then calls nobody.
_QUIET_S = 2.0
# Together less than the doctor allows for all of it.
_LOGIN_S = 5.0
_STEP_S = 9.0


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line; the shape of the doctor's findings."""

    name: str
    result: Literal["ok", "failed"]
    text: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        return self.result == "ok"


async def check(config: Config) -> list[CheckResult]:
    """Every step up to the first that makes the others pointless."""
    hubs = config.eventhubs
    try:
        namespace = Namespace(hubs)
    except ConfigError as error:
        remedy = "put the connection string there, readable for the agent's user"
        return [
            CheckResult(name="eventhubs login", result="failed", text=str(error), remedy=remedy)
        ]
    async with namespace:
        results = [await _check_login(namespace)]
        if not results[0].ok:
            return results
        steps = []
        if "eventhubs" in config.events.sinks:
            steps.append(_check_sending(namespace, hubs.events_hub))
        if config.commands.source == "eventhubs":
            steps.append(_check_reading(namespace, hubs.commands_hub, hubs.consumer_group))
        return [*results, *await asyncio.gather(*steps)]


async def _check_login(namespace: Namespace) -> CheckResult:
    name = "eventhubs login"
    if not namespace.by_identity:
        return CheckResult(name=name, result="ok", text=f"connection string for {namespace.host}")
    try:
        async with asyncio.timeout(_LOGIN_S):
            await namespace.credential().get_token(TOKEN_SCOPE)
    except FAILURES as error:
        return _failed(name, namespace.explain(error, ""))
    return CheckResult(name=name, result="ok", text="the managed identity has a token")


async def _check_sending(namespace: Namespace, hub: str) -> CheckResult:
    name = "events hub"
    try:
        producer = namespace.producer(hub)
        async with asyncio.timeout(_STEP_S), producer:
            batch = await producer.create_batch()
    except FAILURES as error:
        return _failed(name, namespace.explain(error, hub))
    text = f"{hub} on {namespace.host} can be sent to, {batch.max_size_in_bytes} bytes a message"
    return CheckResult(name=name, result="ok", text=text)


async def _check_reading(namespace: Namespace, hub: str, group: str) -> CheckResult:
    name = "commands hub"
    try:
        consumer = namespace.consumer(hub, group)
        async with asyncio.timeout(_STEP_S), consumer:
            partitions = await consumer.get_partition_ids()
            await _read_a_moment(consumer, partitions[0], group)
    except FAILURES as error:
        return _failed(name, namespace.explain(error, hub))
    text = f"{hub} on {namespace.host} can be read, {len(partitions)} partitions, group {group}"
    return CheckResult(name=name, result="ok", text=text)


async def _read_a_moment(consumer: Any, partition: str, group: str) -> None:
    """Until the link has stayed open for a while; the library does not report a refused one."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def on_event(_: Any, _event: EventData | None) -> None:
        if not opened.done():
            opened.set_result(None)

    async def on_error(_: Any, error: Exception) -> None:
        if not opened.done():
            opened.set_exception(error)

    receiving = asyncio.create_task(
        consumer.receive(
            on_event,
            on_error=on_error,
            partition_id=partition,
            starting_position="@latest",
            max_wait_time=_QUIET_S,
        )
    )
    try:
        async with asyncio.timeout(3 * _QUIET_S):
            await opened
    except TimeoutError as error:
        raise Stalled(partition, group) from error
    finally:
        receiving.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_S):
                await asyncio.gather(receiving, return_exceptions=True)


def _failed(name: str, problem: Problem) -> CheckResult:
    return CheckResult(name=name, result="failed", text=problem.text, remedy=problem.remedy)
