"""A real broker for tests: mosquitto on a free port of 127.0.0.1, in its own folder."""

import contextlib
import random
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

BINARY = "/usr/sbin/mosquitto"


class Mosquitto:
    def __init__(self, folder: Path, lines: Sequence[str] = ("allow_anonymous true",)) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._config = folder / "mosquitto.conf"
        basics = [f"listener {self.port} 127.0.0.1", "user root", "set_tcp_nodelay true"]
        self._config.write_text("\n".join([*basics, *lines, ""]))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with (self._folder / "mosquitto.log").open("ab") as log:
            self._process = subprocess.Popen(
                [BINARY, "-c", str(self._config)], cwd=self._folder, stdout=log, stderr=log
            )
        _wait_until_open(self.port, self._process)

    def stop(self) -> None:
        self._end(lambda process: process.terminate())

    def kill(self) -> None:
        self._end(lambda process: process.kill())

    def signal(self, number: int) -> None:
        """SIGSTOP and SIGCONT: a broker that is there and does nothing."""
        assert self._process
        self._process.send_signal(number)

    def restart(self) -> None:
        self.stop()
        self.start()

    def _end(self, how: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert callable(how)
            how(process)
            process.wait(10)


def free_port() -> int:
    """Below the ports that Linux gives to clients: one of those would take it between two uses."""
    while True:
        port = random.randrange(15_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        assert process.poll() is None, "mosquitto ended at once: see mosquitto.log"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"mosquitto does not listen on {port}")
