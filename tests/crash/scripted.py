"""A transport without a broker, for speed: files that outlive the agent.

`commands.jsonl` holds what was sent to it, `acked` one byte for each command that it acknowledged,
`out.jsonl` everything that it published. A command is given again until it is acknowledged.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bridge.assembly import Assembly
from bridge.clock import Clock
from bridge.core.cloudevents import CloudEvent
from bridge.core.commands import Wire
from bridge.transports import ConnectedSource, Incoming, Outgoing, Sink
from tests.crash.steps import Steps

ENDS = {"completed", "canceled", "ended"}


class ScriptedTransport:
    name = "scripted"
    problem = ""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self._folder = folder
        self._steps = steps
        self._out = os.open(folder / "out.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._acks = os.open(folder / "acked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        for row in batch:
            self._steps.step()
            os.write(self._out, row.cloudevent + b"\n")
            await asyncio.sleep(0)
        self._steps.step()

    async def publish_status(self, status: CloudEvent) -> None:
        pass

    async def run(self) -> None:
        """Ends the agent once the story is told: nobody else would."""
        while not is_told(self._folder):
            await asyncio.sleep(0.004)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass

    async def commands(self) -> AsyncIterator[Incoming]:
        payloads = (self._folder / "commands.jsonl").read_bytes().splitlines()
        given = (self._folder / "acked").stat().st_size
        while "scheduled" not in transitions(self._folder):
            await asyncio.sleep(0.002)
        for payload in payloads[given:]:
            yield Incoming(wire=Wire(payload=payload), ack=self._ack)
        await asyncio.Event().wait()

    def _ack(self) -> None:
        self._steps.step()
        os.write(self._acks, b"+")
        self._steps.step()


class ScriptedAssembly(Assembly):
    """Stands in for `Assembly` in the loops of a forked agent."""

    transport: ScriptedTransport

    @property
    def commands_topic(self) -> str:
        return ""

    def sinks(self, **_: Any) -> dict[str, Sink]:
        return {"scripted": self.transport}

    def source(self, sinks: dict[str, Sink], clock: Clock) -> ConnectedSource | None:
        return self.transport


def published(folder: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last may be cut off by a kill, and is sent again."""
    path = folder / "out.jsonl"
    raw = path.read_bytes() if path.exists() else b""
    events = []
    for line in raw.split(b"\n"):
        if line.endswith(b"}"):
            event = msgspec.json.decode(line)
            if not event["type"].startswith("io.sebridge.agent"):
                events.append(event)
    return events


def transitions(folder: Path) -> list[str]:
    return [e["data"]["transition"] for e in published(folder) if "transition" in e["data"]]


def statuses(folder: Path) -> list[str]:
    return [e["data"]["status"] for e in published(folder) if "status" in e["data"]]


def answered_keys(folder: Path) -> set[str]:
    """Whose answer was published; the malformed ones have keys of their own."""
    return {e["data"]["idempotencyKey"] for e in published(folder) if "idempotencyKey" in e["data"]}


def is_told(folder: Path) -> bool:
    """The event is over, and every command was acknowledged and answered."""
    sent = (folder / "commands.jsonl").read_bytes().count(b"\n")
    acked = (folder / "acked").stat().st_size if (folder / "acked").exists() else 0
    events = published(folder)
    ended = any(e["data"].get("transition") in ENDS for e in events)
    return ended and acked >= sent and len(answered_keys(folder)) >= distinct_keys(folder)


def distinct_keys(folder: Path) -> int:
    lines = (folder / "commands.jsonl").read_bytes().splitlines()
    keys = {
        msgspec.json.decode(line)["idempotencykey"] if line.endswith(b"}") else line.decode()
        for line in lines
    }
    return len(keys)
