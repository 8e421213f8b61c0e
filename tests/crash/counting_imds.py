"""An IMDS in a process of its own: it counts what arrives, whatever becomes of the agent.

One server for many runs: the endpoint of a run is `http://127.0.0.1:PORT/BEHAVIOUR/RUN`. What it
saw of a run is appended to `posts` in the run's folder: one line a POST, with what was answered.
"""

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.scripted import answered_keys, transitions
from tests.support.scripted_imds import Action, Request, ScriptedImds, answer

EVENT_ID = "602D9444-D2CD-49C7-8624-8643E7171297"
VM_NAME = "vm1"
COMPUTE = {"name": VM_NAME, "vmId": "id-1", "resourceGroupName": "rg", "subscriptionId": "s"}
ELSEWHERE = "/metadata/scheduledevents?api-version=2020-07-01"

# What becomes of a POST, and whether the platform took it.
BEHAVIOURS: dict[str, tuple[Callable[[], bytes | Action], bool]] = {
    "ok": (lambda: answer(200), True),
    "slow": (lambda: Action("drip", answer(200), 0.0005), True),
    "refuse": (lambda: answer(400, b"no such event"), False),
    "error": (lambda: answer(500), True),
    "gone": (lambda: answer(410), True),
    "drop": (lambda: Action("drop"), True),
    "reset": (lambda: Action("reset"), True),
    "redirect": (lambda: answer(307, Location=ELSEWHERE), True),
    "garbage": (lambda: Action("drop", b"\x16\x03\x01 this is not HTTP\r\n\r\n"), True),
    "half": (lambda: Action("drop", b"HTTP/1.1 20"), True),
    "hang": (lambda: Action("hang"), True),
    "busy": (lambda: answer(200), True),  # the first one or two are answered 429
}
BUSY_POSTS = 2


class CountingImds:
    def __init__(self, root: Path) -> None:
        self._root = root

    def script(self, request: Request) -> bytes | Action:
        _, behaviour, run, *_ = request.path.split("/")
        folder = self._root / run
        if "/metadata/instance" in request.path:
            return answer(200, msgspec.json.encode({"compute": COMPUTE}))
        if request.method == "POST":
            return self._post(behaviour, folder, request)
        return answer(200, msgspec.json.encode(self._document(folder)))

    def _post(self, behaviour: str, folder: Path, request: Request) -> bytes | Action:
        (start,) = msgspec.json.decode(request.body)["StartRequests"]
        known = posts(folder)
        if behaviour == "busy" and len(known) < BUSY_POSTS:
            _note(folder, f"{start['EventId']} 429 refused")
            return answer(429)
        react, taken = BEHAVIOURS[behaviour]
        _note(folder, f"{start['EventId']} {behaviour} {'counts' if taken else 'refused'}")
        return react()

    def _document(self, folder: Path) -> dict[str, Any]:
        """The event starts once the command is answered, and goes once that was told."""
        seen = transitions(folder)
        if "started" in seen:
            return {"DocumentIncarnation": 3, "Events": []}
        started = "a" in answered_keys(folder)
        entry = {
            "EventId": EVENT_ID,
            "EventType": "Reboot",
            "Resources": [VM_NAME],
            "EventStatus": "Started" if started else "Scheduled",
            "NotBefore": "" if started else "Mon, 19 Sep 2033 18:29:47 GMT",
        }
        return {"DocumentIncarnation": 2 if started else 1, "Events": [entry]}


def posts(folder: Path) -> list[str]:
    path = folder / "posts"
    return path.read_text().splitlines() if path.exists() else []


def _note(folder: Path, line: str) -> None:
    """Before the answer, and in one write: nothing that was answered is ever uncounted."""
    descriptor = os.open(folder / "posts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def start(root: Path) -> tuple[int, int]:
    """Fork the server; gives its port and its process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            asyncio.run(_serve(root, writing))
        finally:
            os._exit(0)
    os.close(writing)
    (port,) = struct.unpack("i", os.read(reading, 4))
    os.close(reading)
    return port, child


async def _serve(root: Path, writing: int) -> None:
    async with ScriptedImds(CountingImds(root).script) as imds:
        os.write(writing, struct.pack("i", imds.port))
        await asyncio.Event().wait()
