"""Who is measured: the agent, and what people would use instead, each as a process of its own."""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.mosquitto import free_port

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
AGENT, SCRIPT, NODE, BASH, FLOOR = (
    "sebridge",
    "requests + paho",
    "Node mqtt.js",
    "bash, curl, jq",
    "raw sockets",
)


class EndedEarly(RuntimeError):
    pass


class Contestant(NamedTuple):
    name: str
    command: Callable[[str, int, float], list[str]]  # endpoint, broker's port, poll interval
    topic: str = "bench/events"  # where its messages appear
    missing: str = ""  # why it cannot take part


class Workshop:
    """A folder for everything that a run makes, with an interpreter like a normal install's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = self._plain_interpreter()
        self._runs = 0

    def contestants(self) -> list[Contestant]:
        return [
            Contestant(AGENT, self.agent, "sebridge/v1/rg/web_3/events"),
            Contestant(SCRIPT, self._of(self.python, PEERS / "script.py")),
            self._node(),
            self._bash(),
            Contestant(FLOOR, self._of(self.python, PEERS / "floor.py")),
        ]

    def agent(self, endpoint: str, port: int, interval_s: float) -> list[str]:
        """Everything on: durable ledger, HTTP, commands; only the budget fits the poll interval."""
        self._runs += 1
        folder = self.folder / f"agent{self._runs}"
        folder.mkdir()
        return self.agent_on(folder, endpoint, port, interval_s)

    def agent_on(self, folder: Path, endpoint: str, port: int, interval_s: float) -> list[str]:
        config = folder / "config.toml"
        config.write_text(
            f'[imds]\nendpoint = "{endpoint}"\npoll_interval_s = {interval_s}\n'
            f"requests_per_s_max = {max(4.0, 2 / interval_s)}\n"
            f"[approvals]\nper_minute_max = 100000\n"
            f'[store]\npath = "{folder}/state.db"\n'
            f'[mqtt]\nhost = "127.0.0.1"\nport = {port}\n'
            f'[http]\nlisten = "127.0.0.1:{free_port()}"\n'
        )
        return [str(self.python), "-m", "bridge", "run", "--config", str(config)]

    def _of(self, *program: object) -> Callable[[str, int, float], list[str]]:
        return lambda endpoint, port, interval_s: [
            *map(str, program), endpoint, str(port), str(interval_s),
        ]  # fmt: skip

    def _plain_interpreter(self) -> Path:
        """Without the import hook of an editable install, which costs more than the agent's own."""
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        packages = next((venv / "lib").glob("python*/site-packages"))
        (packages / "bench.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        return venv / "bin" / "python"

    def _node(self) -> Contestant:
        node, npm = shutil.which("node"), shutil.which("npm")
        if not node or not npm:
            return Contestant(NODE, self._of(), missing="node or npm is not installed")
        folder = self.folder / "node"
        folder.mkdir()
        shutil.copy(PEERS / "script.mjs", folder)
        installed = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--silent", "mqtt@5"],
            cwd=folder, capture_output=True, check=False,
        )  # fmt: skip
        missing = "" if installed.returncode == 0 else "npm install mqtt failed"
        return Contestant(NODE, self._of(node, folder / "script.mjs"), missing=missing)

    def _bash(self) -> Contestant:
        tools = ("bash", "curl", "jq", "mosquitto_pub")
        absent = [tool for tool in tools if not shutil.which(tool)]
        missing = f"{', '.join(absent)} not installed" if absent else ""
        return Contestant(BASH, self._of("bash", PEERS / "script.sh"), missing=missing)


@contextlib.contextmanager
def running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    # An installation has its bytecode, whatever this shell says about writing it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    with (folder / "processes.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        yield process
        if process.poll() is not None:
            raise EndedEarly(f"{command} ended: see {folder}/processes.log")
    finally:
        process.terminate()
        process.wait(20)


def cpu_s(pid: int) -> float:
    """CPU of the process and of its children that have ended."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    own_s = sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own_s + (int(fields[13]) + int(fields[14])) / TICKS_PER_S


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no memory")
