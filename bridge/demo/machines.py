"""The simulated VMs as processes: each runs a real agent and suffers what Azure does to it.

Freeze is SIGSTOP for a moment, Reboot and Redeploy end the agent and start it again, Terminate and
Preempt kill it for good. An agent that dies otherwise is started again, as systemd would.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from os import environ, getpid
from pathlib import Path

from bridge.simulator.model import FREEZE, REBOOT, REDEPLOY
from bridge.simulator.world import World

# Azure needs a moment from "Started" to the interruption itself.
_IMPACT_AFTER_S = 1.5
_FROZEN_S = 2.5
_BOOT_S = 6.0
_RESTART_S = 1.0
_STOP_S = 4.0


class Machine:
    def __init__(
        self, name: str, world: World, config: Path, tell: Callable[[str, str], None]
    ) -> None:
        self.name = name
        self._tell = tell
        self._world = world
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._seen: set[str] = set()
        self._off = False

    @property
    def is_gone(self) -> bool:
        return not any(vm.name == self.name and vm.is_running for vm in self._world.fleet.vms)

    def boot(self) -> None:
        self._off = False
        if self.is_gone or self._is_alive():
            return
        command = [sys.executable, "-m", "bridge.demo.child", str(self._config), str(getpid())]
        with self._config.with_suffix(".log").open("ab") as log:
            # In a session of its own: Ctrl-C is for the demo, which ends its agents in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )

    def tick(self) -> None:
        """Let happen what is due; cheap, several times a second."""
        if self.is_gone:
            self.kill()
            self._due.clear()
            return
        self._suffer()
        now_s = time.monotonic()
        due = [action for at_s, action in self._due if at_s <= now_s]
        self._due = [(at_s, action) for at_s, action in self._due if at_s > now_s]
        for action in due:
            action()
        if not self._off and not self._is_alive():
            self.crash(_RESTART_S)

    def crash(self, down_s: float) -> None:
        self.kill()
        self._later(down_s, self.boot)

    def kill(self) -> None:
        self._off = True
        self.signal(signal.SIGKILL)
        self.wait(_STOP_S)

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        try:
            return self._process is None or self._process.wait(seconds) is not None
        except subprocess.TimeoutExpired:
            return False

    def _suffer(self) -> None:
        for scheduled in self._world.fleet.pending:
            hits = scheduled.is_started and self.name in scheduled.resources
            if not hits or scheduled.event_id in self._seen:
                continue
            self._seen.add(scheduled.event_id)
            if scheduled.event_type == FREEZE:
                self._later(_IMPACT_AFTER_S, self._freeze)
                self._later(_IMPACT_AFTER_S + _FROZEN_S, self._thaw)
            elif scheduled.event_type in (REBOOT, REDEPLOY):
                self._later(_IMPACT_AFTER_S, self._shut_down)
                self._later(_IMPACT_AFTER_S + _BOOT_S, self.boot)

    def _freeze(self) -> None:
        self._tell(self.name, "The VM stands still (SIGSTOP for its agent).")
        self.signal(signal.SIGSTOP)

    def _thaw(self) -> None:
        self._tell(self.name, "The VM runs again.")
        self.signal(signal.SIGCONT)

    def _shut_down(self) -> None:
        self._tell(self.name, "The VM restarts (SIGTERM for its agent).")
        self._off = True
        self.signal(signal.SIGTERM)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + seconds, action))

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None


def _environment() -> dict[str, str]:
    """The viewer's own overrides are for the viewer's own agents."""
    return {name: value for name, value in environ.items() if not name.startswith("SEBRIDGE_")}


def stop_all(machines: Iterable[Machine]) -> None:
    """End every agent: politely for a few seconds in all, then by force. Blocks."""
    waiting = list(machines)
    for machine in waiting:
        machine.signal(signal.SIGTERM)
        machine.signal(signal.SIGCONT)
    deadline_s = time.monotonic() + _STOP_S
    for machine in waiting:
        if not machine.wait(max(0.0, deadline_s - time.monotonic())):
            machine.kill()
