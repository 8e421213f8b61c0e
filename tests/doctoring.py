"""What the tests of `sebridge doctor` share: an IMDS that is well, and findings by their names."""

import json
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from typing import Any

from bridge.assembly import token_provider
from bridge.clock import SystemClock
from bridge.config import Mqtt
from bridge.core.cloudevents import Vm
from bridge.doctor import broker
from bridge.doctor.finding import Finding
from bridge.imds import Identity
from tests.support.scripted_imds import Action, Request, answer

COMPUTE = {
    "name": "web_3",
    "vmId": "v-1",
    "resourceGroupName": "web-rg",
    "subscriptionId": "s-1",
    "location": "westeurope",
}
IDENTITY = Identity(vm=Vm(name="web_3", vm_id="v-1"), resource_group="web-rg")
ROOT = "sebridge/v1/web-rg/web_3"
WAY = {"broker name": "ok", "broker port": "ok"}
EVENT = {"EventId": "e-1", "EventStatus": "Scheduled", "Resources": ["web_3"]}

Answers = Callable[[Request], bytes | Action | None]


def well(*, date: str | None = "now", answers: Answers = lambda _: None) -> Any:
    """A script for ScriptedImds; `answers` may say something else to some requests."""

    def script(request: Request) -> bytes | Action:
        special = answers(request)
        if special is not None:
            return special
        body: dict[str, Any] = {"DocumentIncarnation": 4, "Events": [EVENT]}
        if request.path.startswith("/metadata/instance"):
            body = {"compute": COMPUTE}
        headers = (
            {} if date is None else {"Date": formatdate(usegmt=True) if date == "now" else date}
        )
        return answer(200, json.dumps(body).encode(), **headers)

    return script


async def collect(findings: AsyncIterator[Finding]) -> dict[str, Finding]:
    """By name, in order; a name stands for one line only."""
    found: dict[str, Finding] = {}
    async for finding in findings:
        assert finding.name not in found
        found[finding.name] = finding
    return found


def results(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.result for name, finding in findings.items()}


async def examine_broker(
    port: int, identity: Identity | None = IDENTITY, *, take_commands: bool = True, **options: Any
) -> dict[str, Finding]:
    config = Mqtt(**{"host": "127.0.0.1", "port": port, **options})
    return await collect(
        broker.check(
            config,
            SystemClock(),
            identity=identity,
            token_provider=token_provider(config),
            take_commands=take_commands,
        )
    )
