"""Real processes: a mosquitto, `sebridge run`, and an IMDS that counts what reaches it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.support import mosquitto, waiting
from tests.support.mosquitto import Mosquitto
from tests.support.scripted_imds import RESET, Action, Request, ScriptedImds, answer

ROOT = "sebridge/v1/rg/web_3"
COMPUTE = {
    "name": "web_3",
    "vmId": "0a1b2c3d-0000-4000-8000-000000000003",
    "resourceId": "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/web_3",
    "resourceGroupName": "rg",
    "subscriptionId": "s",
    "location": "westeurope",
    "zone": "1",
    "vmScaleSetName": "web",
}


class CountingImds:
    """One VM's IMDS, scripted by the test: a document, and what becomes of a POST."""

    def __init__(self) -> None:
        self.compute = dict(COMPUTE)
        self.incarnation = 1
        self.entries: list[dict[str, Any]] = []
        self.posts: list[str] = []
        self.gets = 0
        self.is_away = False
        self.endpoint = ""
        self.on_post: Callable[[], bytes | Action] = lambda: answer(200)

    def script(self, request: Request) -> bytes | Action:
        if self.is_away:
            return RESET
        if request.path.startswith("/metadata/instance"):
            return answer(200, msgspec.json.encode({"compute": self.compute}))
        if request.method == "POST":
            start_requests = msgspec.json.decode(request.body)["StartRequests"]
            self.posts += [start["EventId"] for start in start_requests]
            return self.on_post()
        self.gets += 1
        document = {"DocumentIncarnation": self.incarnation, "Events": self.entries}
        return answer(200, msgspec.json.encode(document))

    def was_polled_twice(self) -> Callable[[], bool]:
        """A condition: the document as it is now has been seen for sure."""
        seen = self.gets
        return lambda: self.gets >= seen + 2

    def show(self, *entries: dict[str, Any]) -> None:
        self.incarnation += 1
        self.entries = list(entries)


class Observer:
    """A consumer that keeps everything it was sent."""

    def __init__(self, port: int) -> None:
        self.seen: list[tuple[str, bytes, bool]] = []
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id="observer",
            protocol=MQTTProtocolVersion.MQTTv311,
            clean_session=False,
        )
        self.listening = threading.Event()
        self.client.on_connect = self._subscribe
        self.client.on_subscribe = lambda *_: self.listening.set()
        self.client.on_message = lambda _c, _u, message: self._keep(message)
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def _subscribe(self, *_: Any) -> None:
        self.client.subscribe("sebridge/#", 1)

    def _keep(self, message: MQTTMessage) -> None:
        self.seen.append((message.topic, bytes(message.payload), message.retain))

    def of(self, channel: str) -> list[dict[str, Any]]:
        topic = f"{ROOT}/{channel}"
        return [
            msgspec.json.decode(payload)
            for name, payload, _ in self.seen
            if name == topic and payload
        ]

    def send(self, command: dict[str, Any] | bytes, *, retain: bool = False) -> None:
        payload = command if isinstance(command, bytes) else msgspec.json.encode(command)
        self.client.publish(f"{ROOT}/commands", payload, qos=1, retain=retain)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class AgentProcess:
    """`sebridge run` as a process; keywords are environment variables."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._log = config.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        command = [sys.executable, "-m", "bridge", "run", "--config", str(self._config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stderr=log, stdout=log, env=os.environ | environment
            )

    def start_with_log(self, descriptor: int) -> None:
        command = [sys.executable, "-m", "bridge", "run", "--config", str(self._config)]
        self._process = subprocess.Popen(command, stderr=descriptor, stdout=descriptor)

    def signal(self, number: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process
        return self._process.wait(timeout=12)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def cli(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bridge", *arguments, "--config", str(self._config)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=os.environ | environment,
        )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    with Mosquitto(folder) as running:
        yield running


@pytest.fixture
async def imds() -> AsyncIterator[CountingImds]:
    counting = CountingImds()
    async with ScriptedImds(counting.script) as server:
        counting.endpoint = server.endpoint
        yield counting


@pytest.fixture
def observer(broker: Mosquitto) -> Iterator[Observer]:
    watching = Observer(broker.port)
    yield watching
    watching.close()


@pytest.fixture
def agent(
    tmp_path: Path, imds: CountingImds, broker: Mosquitto, free_port: int
) -> Iterator[AgentProcess]:
    config = tmp_path / "agent.toml"
    config.write_text(f"""
[imds]
endpoint = "{imds.endpoint}"
poll_interval_s = 0.25
[store]
path = "{tmp_path}/state/state.db"
[mqtt]
port = {broker.port}
reconnect_s_max = 1.0
[approvals]
answer_timeout_s = 1.0
[http]
listen = "127.0.0.1:{free_port}"
""")
    process = AgentProcess(config)
    yield process
    if process.is_running:
        process.kill()


@pytest.fixture
def agent_class() -> type[AgentProcess]:
    """For stories that write their own configuration."""
    return AgentProcess


@pytest.fixture
def until() -> Callable[..., Any]:
    return waiting.until


@pytest.fixture
def free_port() -> int:
    return mosquitto.free_port()
