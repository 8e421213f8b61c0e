"""Runs schedules: the agent is forked for every life, hit where the schedule says, and restarted.

Import once, fork per life: some ten milliseconds each. A schedule is a behaviour of IMDS and a list
of hits, one a life; after the last a life without a hit must bring the story to its end.
"""

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from bridge import app, log, loops
from bridge.config import Config
from tests.crash import counting_imds
from tests.crash.counting_imds import EVENT_ID
from tests.crash.scripted import ScriptedAssembly, ScriptedTransport
from tests.crash.steps import FROZEN_S, Steps, install

LIFE_S_MAX = 20.0


class Hit(NamedTuple):
    action: str  # kill, stop, term, cancel, or "clock HOURS"
    at: int  # which step of that life


class Schedule(NamedTuple):
    behaviour: str
    hits: tuple[Hit, ...]


class Life(NamedTuple):
    code: int  # 0 ended by itself; negative: the signal
    steps: int  # as far as it could still tell


def command(key: str, number: int) -> bytes:
    fields = {
        "specversion": "1.0",
        "id": f"id-{number}",
        "source": "/ops",
        "type": "io.sebridge.approve.v1",
        "idempotencykey": key,
        "data": {"eventId": EVENT_ID},
    }
    return msgspec.json.encode(fields)


# The same command twice, another for the same event, rubbish, the first once more.
COMMANDS = (command("a", 1), command("a", 1), command("b", 2), b"rubbish", command("a", 1))


class Runner:
    """One worker: its own IMDS process, one run at a time."""

    def __init__(self) -> None:
        ram = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._root = Path(tempfile.mkdtemp(dir=ram))
        self._port, self._imds = counting_imds.start(self._root)
        self._runs = 0
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        os.kill(self._imds, signal.SIGKILL)
        os.waitpid(self._imds, 0)
        shutil.rmtree(self._root, ignore_errors=True)
        gc.unfreeze()

    @contextlib.contextmanager
    def run(self, schedule: Schedule) -> Iterator[tuple[Path, list[Life]]]:
        """Live through the schedule; gives the folder that all parties wrote into."""
        self._runs += 1
        folder = self._root / str(self._runs)
        folder.mkdir()
        (folder / "commands.jsonl").write_bytes(b"\n".join((*COMMANDS, b"")))
        (folder / "acked").touch()
        lives = []
        for hit in schedule.hits:
            lives.append(self.live(folder, schedule.behaviour, hit))
            if lives[-1].code == 0 and hit.action == "kill":
                break
        if not lives or lives[-1].code != 0 or schedule.hits[-1].action in {"term", "cancel"}:
            lives.append(self.live(folder, schedule.behaviour, Hit("kill", 0)))
        yield folder, lives
        shutil.rmtree(folder)

    def live(self, folder: Path, behaviour: str, hit: Hit) -> Life:
        (folder / "steps").unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            self._agent(folder, behaviour, hit)
        code = _wait(pid, folder)
        counted = folder / "steps"
        return Life(code, int(counted.read_text()) if counted.exists() else 0)

    def _agent(self, folder: Path, behaviour: str, hit: Hit) -> None:
        """The child: never returns."""
        code = 70
        try:
            errors = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            steps = Steps(*hit)
            install(steps)
            ScriptedAssembly.transport = ScriptedTransport(folder, steps)
            loops.Assembly = ScriptedAssembly  # type: ignore[attr-defined]
            endpoint = f"http://127.0.0.1:{self._port}/{behaviour}/{folder.name}"
            config = make_config(endpoint, folder)
            log.configure(config.log)
            asyncio.run(app.run(config))
            (folder / "steps").write_text(str(steps.count))
            code = 0
        except BaseException:  # noqa: BLE001 - the log is all that is left of a child
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)


def make_config(endpoint: str, folder: Path) -> Config:
    fields = {
        "imds": {"endpoint": endpoint, "poll_interval_s": 0.004, "requests_per_s_max": 10_000},
        "store": {"path": str(folder / "state.db")},
        "events": {"sinks": ["stdout"]},
        "commands": {"source": "none"},
        "approvals": {"answer_timeout_s": 0.1, "connect_timeout_s": 1.0},
        "http": {"listen": ""},
    }
    return msgspec.convert(fields, Config)


def _wait(pid: int, folder: Path) -> int:
    """Until it ends; who stands still is left so for a moment and woken."""
    deadline = time.monotonic() + LIFE_S_MAX
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if not found:
            time.sleep(0.001)
        elif os.WIFSTOPPED(status):
            time.sleep(FROZEN_S * 2)
            os.kill(pid, signal.SIGCONT)
        else:
            return os.waitstatus_to_exitcode(status)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"the agent did not come to an end:\n{(folder / 'log').read_text()[-3000:]}")
