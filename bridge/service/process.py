"""Which process is ours. A number alone proves nothing: the kernel gives it out again."""

import dataclasses
import os
import select
import signal
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True)
class Process:
    """A process of this boot: number and start time together are never used twice."""

    pid: int
    started: str
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process as /proc shows it; None once it is gone, or only waits to be reaped."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        # proc(5): the name in parentheses may hold anything; field 3 follows the last one.
        fields = stat.rpartition(")")[2].split()
        if fields[0] in "ZX":
            return None
        return cls(pid, fields[19], _BOOT_ID.read_text(encoding="ascii").strip())

    @classmethod
    def parse(cls, text: str) -> "Process | None":
        parts = text.split()
        if len(parts) != 3 or not parts[0].isdecimal():
            return None
        return cls(int(parts[0]), parts[1], parts[2])

    def __str__(self) -> str:
        return f"{self.pid} {self.started} {self.boot}\n"

    @property
    def is_alive(self) -> bool:
        return Process.of(self.pid) == self

    def end(self, patience_s: float) -> None:
        """SIGTERM, then SIGKILL, to this very process: the descriptor cannot change owner."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if not self.is_alive:
                    return
                signal.pidfd_send_signal(descriptor, number)
                select.select([descriptor], [], [], patience_s)
        finally:
            os.close(descriptor)
