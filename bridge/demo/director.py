"""Plays the story on the stage: tells Azure, and the machines, what happens next."""

import time
from collections import deque
from collections.abc import Mapping, Sequence

from bridge.demo import words
from bridge.demo.machines import Machine
from bridge.demo.stage import Stage
from bridge.demo.story import STORY, Announce, Beat, Cancel, Crash, ScaleIn
from bridge.simulator import fleet as fleets
from bridge.simulator.model import FleetError, Plan
from bridge.simulator.world import World


class Director:
    def __init__(
        self, worlds: Sequence[World], machines: Mapping[str, Machine], stage: Stage
    ) -> None:
        self._worlds = worlds
        self._machines = machines
        self._stage = stage
        self._beats = deque(STORY)
        self._began_s: float | None = None

    def step(self) -> None:
        """Let happen what is due; the story begins when every agent is online."""
        for world in self._worlds:
            world.advance()
        for name, machine in self._machines.items():
            if machine.is_gone and name not in self._stage.gone:
                self._stage.lose(name)
            machine.tick()
        if self._began_s is None and self._stage.agents_online == len(self._machines):
            self._began_s = time.monotonic()
            self._stage.say("demo", "All agents are online. Watch, and take part.")
        while self._is_due():
            self._play(self._beats.popleft())
            if not self._beats:
                self._stage.say("demo", "That was the story. Go on with a scale-in of your own.")

    @property
    def has_begun(self) -> bool:
        return self._began_s is not None

    def _is_due(self) -> bool:
        if self._began_s is None or not self._beats:
            return False
        return self._beats[0].at_s <= time.monotonic() - self._began_s

    def _play(self, beat: Beat) -> None:
        """One beat; what no longer fits, because the viewer was quicker, is left out."""
        try:
            names = self._act(beat)
        except FleetError:
            return
        who = "demo" if isinstance(beat.action, Crash) else "Azure"
        self._stage.say(who, beat.says.format(names=words.listed(names)))

    def _act(self, beat: Beat) -> tuple[str, ...]:
        """The names of the VMs that it is about."""
        match beat.action:
            case ScaleIn(count=count):
                return self._scale_in(count)
            case Announce() as announcement:
                self._announce(announcement)
                return (announcement.vm,)
            case Cancel(vm=vm):
                self._cancel(vm)
                return (vm,)
            case Crash(vm=vm, down_s=down_s):
                self._machines[vm].crash(down_s)
                return (vm,)

    def _scale_in(self, count: int) -> tuple[str, ...]:
        world = self._worlds[0]
        now = world.advance()
        world.fleet, names = fleets.scale_in(world.fleet, count, now)
        if not names:
            raise FleetError("no VM is left to go")
        return names

    def _announce(self, announcement: Announce) -> None:
        world = self._world_of(announcement.vm)
        now = world.advance()
        plan = Plan(event_type=announcement.event_type, resources=(announcement.vm,))
        world.fleet, _ = fleets.schedule(world.fleet, plan, now)

    def _cancel(self, vm: str) -> None:
        world = self._world_of(vm)
        now = world.advance()
        mine = [s for s in world.fleet.pending if s.resources == (vm,) and not s.is_started]
        if not mine:
            raise FleetError(f"nothing is announced for {vm}")
        world.fleet = fleets.cancel(world.fleet, mine[-1].event_id, now)

    def _world_of(self, vm: str) -> World:
        return next(w for w in self._worlds if any(known.name == vm for known in w.fleet.vms))
