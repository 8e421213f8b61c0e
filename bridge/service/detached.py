"""The agent as a process of its own, where there is no systemd to keep it.

It outlives the command that started it, and speaks sd_notify(3) to that command, so `start`
returns when the ledger is open and recovered, not when a process exists. Nobody starts it again
after a crash or a reboot but the next `enable`.
"""

import contextlib
import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bridge.errors import ServiceError
from bridge.service import files
from bridge.service.layout import Layout
from bridge.service.process import Process

_READY_S_MAX = 30.0
_STOP_S_MAX = 15.0  # the agent needs ten at most
_LOG_BYTES_MAX = 10_000_000
_EXCERPT_BYTES = 2_000  # of the log, for the reason of a failed start


class Detached:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def install(self) -> None:
        """A process needs no preparation."""

    def start(self) -> None:
        self.stop()
        with _notify_socket() as (receiver, address), self._open_log() as log:
            said_before = log.tell()
            child = self._spawn(address, log)
            process = Process.of(child.pid)
            if process is not None:
                files.write(self._layout.pid_file, str(process), 0o644)
            problem = _wait_ready(receiver, child)
        if problem:
            self.stop()
            raise ServiceError(f"{problem}: {self._last_line(said_before)}")

    def stop(self) -> None:
        process = self._process()
        if process is not None:
            process.end(_STOP_S_MAX)
        files.remove(self._layout.pid_file)

    def remove(self) -> None:
        files.remove(self._layout.log)

    @property
    def is_running(self) -> bool:
        return self._process() is not None

    def secret_path(self, name: str) -> Path:
        return self._layout.secrets / name

    def _process(self) -> Process | None:
        process = Process.parse(files.read(self._layout.pid_file) or "")
        return process if process and process.is_alive and self._is_agent(process.pid) else None

    def _is_agent(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return str(self._layout.configuration).encode() in words

    def _spawn(self, notify_address: str, log: BinaryIO) -> subprocess.Popen[bytes]:
        program = self._layout.current / "bin/sebridge"
        command = [str(program), "run", "--config", str(self._layout.configuration)]
        # Nothing of the caller's environment: the guest agent's is not ours to hand on.
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        environment["NOTIFY_SOCKET"] = notify_address
        self._layout.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ServiceError(f"cannot start {program}: {error.strerror}") from error

    def _open_log(self) -> BinaryIO:
        log = self._layout.log
        log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > _LOG_BYTES_MAX:
                log.replace(log.with_suffix(".log.1"))
        return os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640), "ab")

    def _last_line(self, since: int) -> str:
        with self._layout.log.open("rb") as log:
            log.seek(max(since, log.seek(0, os.SEEK_END) - _EXCERPT_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it said nothing'} ({self._layout.log})"


def _wait_ready(receiver: socket.socket, child: subprocess.Popen[bytes]) -> str:
    """Empty once the agent says READY; otherwise what went wrong."""
    deadline = time.monotonic() + _READY_S_MAX
    while time.monotonic() < deadline:
        if select.select([receiver], [], [], 0.05)[0] and b"READY=1" in receiver.recv(4096):
            return ""
        if child.poll() is not None:
            return f"the agent ended at once with exit code {child.returncode}"
    return f"the agent was not ready in {_READY_S_MAX:.0f} s"


@contextlib.contextmanager
def _notify_socket() -> Iterator[tuple[socket.socket, str]]:
    """Bound in a folder of its own: only this user's processes can write to it."""
    with (
        tempfile.TemporaryDirectory(prefix="sebridge-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
    ):
        address = f"{folder}/notify"
        receiver.bind(address)
        yield receiver, address
