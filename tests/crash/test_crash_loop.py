"""Kill the process at step 1, 2, 3 … until it survives; after each, a clean restart must be right."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.scripted_imds import Action, Request, ScriptedImds, answer

EVENT_ID = "602D9444-D2CD-49C7-8624-8643E7171297"
CONFIG = """
[imds]
endpoint = "{endpoint}"
poll_interval_s = 0.05
requests_per_s_max = 200
[store]
path = "{folder}/state.db"
[events]
sinks = ["stdout"]
[commands]
source = "none"
[http]
listen = ""
[[approvals.rules]]
name = "all"
action = "auto"
"""


class World:
    """IMDS and a consumer: the event starts once it is approved or in doubt, then goes."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out.jsonl"
        self.out.touch()
        self.config = folder / "agent.toml"
        self.posts = 0

    def script(self, request: Request) -> bytes | Action:
        if request.path.startswith("/metadata/instance"):
            compute = {
                "name": "vm1",
                "vmId": "id-1",
                "resourceGroupName": "rg",
                "subscriptionId": "s",
            }
            return answer(200, msgspec.json.encode({"compute": compute}))
        if request.method == "POST":
            self.posts += 1
            return answer(200)
        return answer(200, msgspec.json.encode(self.document()))

    def document(self) -> dict[str, Any]:
        kinds = self.kinds()
        if "started" in kinds:
            return {"DocumentIncarnation": 3, "Events": []}
        started = self.posts > 0 or "in-doubt" in kinds
        entry = {
            "EventId": EVENT_ID,
            "EventType": "Reboot",
            "Resources": ["vm1"],
            "EventStatus": "Started" if started else "Scheduled",
            "NotBefore": "" if started else "Mon, 19 Sep 2033 18:29:47 GMT",
        }
        return {"DocumentIncarnation": 2 if started else 1, "Events": [entry]}

    def published(self) -> list[dict[str, Any]]:
        lines = self.out.read_bytes().splitlines()
        events = [msgspec.json.decode(line) for line in lines if line.endswith(b"}")]
        return [e for e in events if not e["type"].startswith("io.sebridge.agent")]

    def kinds(self) -> list[str]:
        return [e["data"].get("transition") or e["data"]["status"] for e in self.published()]

    async def run(self, kill_at: int) -> bool:
        """Whether the child reached the end of the story alive."""
        with self.out.open("ab") as out, self.config.with_suffix(".log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.crash.child",
                str(self.config),
                str(kill_at),
                stdout=out,
                stderr=log,
            )
        try:
            async with asyncio.timeout(20):
                while child.returncode is None and "completed" not in self.kinds():
                    await asyncio.sleep(0.02)
        finally:
            if child.returncode is None:
                child.terminate()
            code = await child.wait()
        return code == 0


@pytest.mark.timeout(300)
async def test_kill_at_every_step_never_posts_twice_and_loses_nothing(tmp_path: Path) -> None:
    """At most one POST, every transition once in order under one id, one answer."""
    kill_at, survived = 0, False
    while not survived:
        kill_at += 1
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        world = World(folder)
        async with ScriptedImds(world.script) as imds:
            world.config.write_text(CONFIG.format(endpoint=imds.endpoint, folder=folder))
            survived = await world.run(kill_at)
            if "completed" not in world.kinds():
                assert await world.run(0), (folder / "agent.log").read_text()

        check(world, kill_at)

    assert kill_at > 20


def check(world: World, kill_at: int) -> None:
    unique = {event["id"]: event for event in world.published()}
    transitions = [e["data"]["transition"] for e in unique.values() if "transition" in e["data"]]
    answers = [e["data"]["status"] for e in unique.values() if "status" in e["data"]]
    assert world.posts <= 1, kill_at
    assert ["scheduled", "started", "completed"] == transitions, kill_at
    assert answers in (["approved", "confirmed"], ["in-doubt", "confirmed"]), (kill_at, answers)
    sequences = [event["sequence"] for event in unique.values()]
    assert sorted(sequences) == sequences, kill_at
