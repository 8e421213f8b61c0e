"""The running simulator without its sockets: the fleet on its clock, and what was asked of it.

Everything is lazy: each access first lets happen what is due by now, so no timer is needed and
what can be seen depends on the time alone.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.structs import replace

from bridge.simulator import fleet as fleets
from bridge.simulator import imds
from bridge.simulator.clock import VirtualClock
from bridge.simulator.faults import Fault
from bridge.simulator.model import Vm
from bridge.simulator.scenarios import SCENARIOS, Action, play
from bridge.simulator.settings import Settings, build_fleet

START_REQUESTS_KEPT_MAX: Final = 10_000
FAULTS_MAX: Final = 1000


class StartRequestsSeen(Struct, frozen=True, kw_only=True, rename="camel"):
    """One POST that came in, as GET /control/state shows it."""

    at: datetime
    vm: str
    # Empty when the body was malformed.
    event_ids: tuple[str, ...]
    # None: no answer went out.
    status: int | None
    # Whether IMDS got to see it, or a rate limit or fault stood before.
    taken: bool


class World:
    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        start_at = settings.start_at or datetime.now(UTC)
        self.settings = settings
        self.fleet = build_fleet(settings, settings.seed or uuid.uuid4().hex, start_at)
        self.clock = VirtualClock(start_at, settings.speed, monotonic)
        self.steps: deque[tuple[datetime, Action]] = deque()
        self.faults: list[Fault] = []
        self.requests = {vm.name: {"GET": 0, "POST": 0} for vm in self.fleet.vms}
        self.start_requests: deque[StartRequestsSeen] = deque(maxlen=START_REQUESTS_KEPT_MAX)
        self._monotonic = monotonic
        self._admitted: dict[str, deque[float]] = {vm.name: deque() for vm in self.fleet.vms}
        self._enabled_at_s: dict[int, float] = {}
        if settings.scenario:
            self.play(settings.scenario)

    def play(self, scenario: str) -> None:
        """Line the steps of a scenario up, from now on."""
        now = self.advance()
        steps = SCENARIOS[scenario](sum(vm.is_running for vm in self.fleet.vms))
        shorten = self.settings.shorten
        added = [(now + timedelta(seconds=step.at_s / shorten), step.action) for step in steps]
        self.steps = deque(sorted([*self.steps, *added], key=lambda step: step[0]))

    def advance(self) -> datetime:
        """Let everything happen that is due, scenario and fleet in the order of time."""
        now = self.clock.now()
        while self.steps and self.steps[0][0] <= now:
            at, action = self.steps.popleft()
            self.fleet = play(self.fleet, action, at)
        self.fleet = fleets.advance(self.fleet, now)
        return now

    def vm(self, name: str) -> Vm | None:
        self.advance()
        return next((vm for vm in self.fleet.vms if vm.name == name), None)

    def count(self, vm: Vm, request: imds.Request) -> None:
        if request.endpoint == imds.SCHEDULED_EVENTS and request.method in self.requests[vm.name]:
            self.requests[vm.name][request.method] += 1

    def admit(self, vm: Vm) -> bool:
        """Whether this request is within the VM's rate, over the last real second."""
        limit = self.settings.requests_per_s_max
        admitted, now_s = self._admitted[vm.name], self._monotonic()
        while admitted and admitted[0] <= now_s - 1:
            admitted.popleft()
        if limit and len(admitted) >= limit:
            return False
        admitted.append(now_s)
        return True

    def first_call_wait_s(self, vm: Vm, request: imds.Request) -> float:
        """Real seconds until scheduled events are enabled for the VM's scope.

        The first request enables the feature; whoever asks meanwhile waits as well.
        """
        if request.endpoint != imds.SCHEDULED_EVENTS or imds.refuse(request) is not None:
            return 0.0
        now = self.advance()
        if fleets.is_switched_off(self.fleet, vm, now):
            self.fleet = fleets.poll(self.fleet, vm, now)
            self._enabled_at_s[vm.group] = self._monotonic() + self.settings.first_call_delay_s
        return max(0.0, self._enabled_at_s.get(vm.group, 0.0) - self._monotonic())

    def take_fault(self, vm: Vm, request: imds.Request) -> Fault | None:
        for index, fault in enumerate(self.faults):
            if fault.hits(vm.name, request):
                left = fault.count - 1
                self.faults[index : index + 1] = [replace(fault, count=left)] if left else []
                return fault
        return None

    def too_many(self, vm: Vm, request: imds.Request) -> imds.Reply:
        reply = imds.error(429, "Too many requests. IMDS takes 5 a second from a VM")
        self._note(vm, request, reply, taken=False)
        return reply

    def exchange(self, vm: Vm, request: imds.Request, fault: Fault | None) -> imds.Reply | None:
        """One request and its reply; None: the connection is cut without one."""
        now = self.advance()
        if not any(running.name == vm.name for running in self.fleet.vms if running.is_running):
            return None
        reply, taken = None, fault is None or fault.is_taken
        if taken:
            self.fleet, reply = imds.answer(self.fleet, vm, request, now)
        if fault is not None:
            reply = fault.spoil(reply)
        self._note(vm, request, reply, taken=taken)
        return reply

    def _note(
        self, vm: Vm, request: imds.Request, reply: imds.Reply | None, *, taken: bool
    ) -> None:
        if (request.method, request.endpoint) != ("POST", imds.SCHEDULED_EVENTS):
            return
        try:
            event_ids = imds.event_ids(request.body)
        except DecodeError:
            event_ids = ()
        status = None if reply is None else reply.status
        seen = StartRequestsSeen(
            at=self.fleet.now, vm=vm.name, event_ids=event_ids, status=status, taken=taken
        )
        self.start_requests.append(seen)
