"""The whole agent in virtual time: the real loops by step(), the real store on a file.

Around it a world that keeps its own books: an IMDS that counts, a broker that redelivers what
was not acknowledged, a consumer that keeps everything. `Killed` ends the process at any step of
the store, the POST or the sink; the file stays.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from bridge.approver import Approver, cut_short
from bridge.config import Approvals, Imds
from bridge.core.approvals import Rules
from bridge.core.cloudevents import Vm
from bridge.core.commands import Wire
from bridge.errors import ImdsUnavailable, SinkUnavailable
from bridge.intake import Intake
from bridge.poller import Poller
from bridge.publisher import Publisher
from bridge.start_request import PostResult
from bridge.store import Store
from bridge.transports import Incoming, Outgoing
from tests.builders import NOW, VM_NAME

VM = Vm(name=VM_NAME, vm_id="id-3", resource_id="/subscriptions/s/web_3")
REFUSED = {400, 403, 404, 405, 429}
WRITES = frozenset(
    (
        "record", "accept", "answer", "replay", "begin_post", "finish_post", "reject_accepted",
        "mark_sent", "begin_repost", "recover", "set_sinks",
    )
)  # fmt: skip


class Killed(BaseException):
    """The process is gone, here and now."""


class Clock:
    """Boot time goes forward only; the wall clock may be set."""

    def __init__(self) -> None:
        self.boot_s = 1_000.0
        self.wall = NOW

    def now(self) -> datetime:
        return self.wall

    def elapsed_s(self) -> float:
        return self.boot_s

    def pass_s(self, seconds: float) -> None:
        self.boot_s += seconds
        self.wall += timedelta(seconds=seconds)


class World:
    """What is true outside of the agent, and survives it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.entries: dict[str, dict[str, Any]] = {}
        self.incarnation = 1
        self.get: bytes | None = b""  # b"": the document as it is; None: no answer
        self.post: int | str | None = 200  # a status, None: no answer, "refused": no connection
        self.posts: list[tuple[str, int | None]] = []  # (EventId, status) of what arrived
        self.queue: list[bytes] = []  # commands that were not acknowledged
        self.acked: list[bytes] = []
        self.deliver = 10**9  # how many rows of a batch the broker takes
        self.received: list[Outgoing] = []
        self.steps_to_live = 10**9

    def step(self) -> None:
        self.steps_to_live -= 1
        if self.steps_to_live == 0:
            raise Killed

    def document(self) -> bytes:
        fields = {"DocumentIncarnation": self.incarnation, "Events": list(self.entries.values())}
        return msgspec.json.encode(fields)

    async def get_document(self) -> bytes:
        if self.get is None:
            raise ImdsUnavailable("no answer")
        return self.get or self.document()

    async def connect(self) -> "World":
        self.step()
        if self.post == "refused":
            raise ImdsUnavailable("nobody listens")
        return self

    async def post_start_request(self, event_id: str) -> PostResult:
        status = self.post if isinstance(self.post, int) else None
        self.posts.append((event_id, status))
        self.step()
        return PostResult(status, "said IMDS")

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        taken = batch[: self.deliver]
        for row in taken:
            self.received.append(row)
            self.step()
        if len(taken) < len(batch):
            raise SinkUnavailable("the broker went away", delivered=len(taken))


class _Steps:
    """The store, with a step before and after every write."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in WRITES:
            return found

        def stepping(*args: Any, **kwargs: Any) -> Any:
            self._world.step()
            result = found(*args, **kwargs)
            self._world.step()
            return result

        return stepping


class _Connection:
    def __init__(self, world: World) -> None:
        self._world = world

    async def post(self, event_id: str, timeout_s: float) -> PostResult:
        return await self._world.post_start_request(event_id)

    def close(self) -> None:
        pass


class _Sink:
    name = "memory"
    problem = ""

    def __init__(self, world: World) -> None:
        self.publish = world.publish


class Agent:
    """One process life: built on what the file holds, recovered, ready to be stepped."""

    def __init__(self, path: Path, world: World, *, in_doubt: str = "watch") -> None:
        clock = world.clock
        self.world = world
        self.store = Store.open(path, now=clock.now(), vm_id=VM.vm_id)
        stepping: Store = _Steps(self.store, world)  # type: ignore[assignment]
        try:
            stepping.recover(clock.now(), lambda row: cut_short(row, VM, clock.now()))
            stepping.set_sinks(("memory",))
        except Killed:
            self.die()
            raise
        rules = Rules(vm_name=VM_NAME)
        self.poller = Poller(
            Imds(),
            world,
            stepping,
            clock,
            vm=VM,
            commands_topic="t",
            own_events_only=True,
            on_news=lambda: None,
            on_change=lambda: None,
        )
        self.publisher = Publisher(_Sink(world), stepping, clock)  # type: ignore[arg-type]
        self.approver = Approver(
            Approvals(in_doubt=in_doubt),  # type: ignore[arg-type]
            stepping,
            clock,
            rules,
            vm=VM,
            document=lambda: self.poller.document,
            connect=self._connect,
            flush=self._flush,
            on_answer=lambda: None,
        )
        self.intake = Intake(
            stepping,
            clock,
            rules,
            vm=VM,
            payload_bytes_max=65_536,
            document=lambda: self.poller.document,
            on_accept=lambda: None,
            on_answer=lambda: None,
        )

    async def take_command(self) -> None:
        """Hand over the oldest command; a broker gives it again until it is acknowledged."""
        if not self.world.queue:
            return
        payload = self.world.queue[0]
        incoming = Incoming(wire=Wire(payload=payload), ack=lambda: self._ack(payload))
        task = asyncio.ensure_future(self.intake.step(incoming))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()  # it waits for a document: redelivered later
        results = await asyncio.gather(task, return_exceptions=True)
        if isinstance(results[0], BaseException) and not isinstance(
            results[0], asyncio.CancelledError
        ):
            raise results[0]

    def _ack(self, payload: bytes) -> None:
        self.world.queue.remove(payload)
        self.world.acked.append(payload)

    async def _connect(self) -> _Connection:
        await self.world.connect()
        return _Connection(self.world)

    async def _flush(self, seconds: float) -> None:
        await self.publisher.step()

    def die(self) -> None:
        """As SIGKILL: no checkpoint, no goodbye."""
        self.store._database.raw.close()


def run(step: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """One step of a loop, in an event loop of its own."""
    asyncio.run(step())
