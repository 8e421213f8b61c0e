"""`sebridge doctor`: what would keep the agent from doing its work here, and what to do about it.

machine.py  proxies and the clock        imds.py    IMDS, and who this VM is
port.py     http.listen                  ledger.py  the ledger's directory and file
broker.py   MQTT, with tls.py and session.py

Checks look; they repair and change nothing. None disturbs a running agent, and each has a deadline:
with everything dead the whole takes less than half a minute.
"""

import asyncio
import contextlib
import importlib
import os
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from bridge.assembly import token_provider
from bridge.clock import SystemClock
from bridge.config import Config
from bridge.doctor import broker, imds, ledger, machine, port
from bridge.doctor.finding import Finding, failed, ok, warning

__all__ = ["Finding", "examine"]

# Together under 30 s, whatever hangs.
_IMDS_S = 12.0
_REST_S = 15.0


async def examine(config: Config, path: str) -> AsyncIterator[Finding]:
    """Every finding, in a fixed order, as soon as it is known."""
    clock = SystemClock()
    yield ok("configuration", f"{path} is valid")
    yield machine.check_proxies(os.environ, config.imds.endpoint)
    vm, agent = imds.Seen(), port.Seen()
    imds_findings, port_findings = await asyncio.gather(
        _collect("imds", imds.check(config.imds, clock, vm), _IMDS_S),
        _collect("agent", port.check(config.http, agent), _IMDS_S),
    )
    for finding in imds_findings:
        yield finding
    yield machine.check_clock(vm.clock_offset_s, machine.kernel_is_synchronised())
    for finding in port_findings:
        yield finding
    vm_id = vm.identity.vm.vm_id if vm.identity else ""
    rest = [
        _collect("ledger", ledger.check(config.store, vm_id=vm_id, agent=agent.status), _REST_S)
    ]
    if "mqtt" in {*config.events.sinks, config.commands.source}:
        check = broker.check(
            config.mqtt,
            clock,
            identity=vm.identity,
            token_provider=token_provider(config.mqtt),
            take_commands=config.commands.source == "mqtt",
        )
        rest.append(_collect("broker", check, _REST_S))
    if "eventhubs" in {*config.events.sinks, config.commands.source}:
        rest.append(_collect("event hubs", _check_event_hubs(config), _REST_S))
    for findings in await asyncio.gather(*rest):
        for finding in findings:
            yield finding


async def _collect(
    name: str, findings: AsyncGenerator[Finding, None], seconds: float
) -> list[Finding]:
    """What was found until the time was up."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(findings):
            async for finding in findings:
                found.append(finding)  # noqa: PERF401 - what came before a time-out is kept
    except TimeoutError:
        remedy = "what comes after the last line above does not answer"
        found.append(failed(name, f"gave up after {seconds:g} s", remedy))
    return found


async def _check_event_hubs(config: Config) -> AsyncGenerator[Finding, None]:
    """The transport knows what to ask; what it needs may not be installed."""
    try:
        transport = importlib.import_module("bridge.transports.eventhubs.check")
    except ImportError as error:
        remedy = "install scheduled-events-bridge[eventhubs]"
        yield warning("event hubs", f"not checked: {error}", remedy)
        return
    for result in await transport.check(config):  # of its own type, in our shape
        yield msgspec.convert(result, Finding, from_attributes=True)
