"""The same promises with a real broker: kills at sampled steps, commands sent until answered.

Each of `TRANSPORTS` brings its configuration and a party that sends the commands and appends what
it consumes to `out.jsonl`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.crash.counting_imds import CountingImds
from tests.crash.promises import check
from tests.crash.runner import COMMANDS
from tests.crash.scripted import answered_keys, distinct_keys, transitions
from tests.support.eventhubs_server import EventHubsServer
from tests.support.mosquitto import Mosquitto
from tests.support.scripted_imds import ScriptedImds

EVENTS_HUB, COMMANDS_HUB = "scheduled-events", "scheduled-events-commands"
CONFIG = """
[imds]
endpoint = "{endpoint}"
poll_interval_s = 0.05
requests_per_s_max = 1000
[store]
path = "{folder}/state.db"
[approvals]
answer_timeout_s = 0.3
[http]
listen = ""
{transport}
"""


class Party(Protocol):
    """Whoever stands at the other end of the transport."""

    config: str

    def send(self, payload: bytes) -> None: ...


class MqttParty:
    def __init__(self, folder: Path, port: int) -> None:
        self.config = f"[mqtt]\nport = {port}\nreconnect_s_max = 0.5\n"
        self._out = (folder / "out.jsonl").open("ab", buffering=0)
        self._client = Client(CallbackAPIVersion.VERSION2, client_id="party", clean_session=False)
        self._client.on_message = self._keep
        self._client.on_connect = lambda client, *_: client.subscribe(
            [("sebridge/v1/rg/vm1/events", 1), ("sebridge/v1/rg/vm1/outcomes", 1)]
        )
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _keep(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._out.write(message.payload + b"\n")

    def send(self, payload: bytes) -> None:
        self._client.publish("sebridge/v1/rg/vm1/commands", payload, qos=1)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self._out.close()


class EventHubsParty:
    def __init__(self, folder: Path, server: EventHubsServer) -> None:
        secret = folder / "connection-string"
        secret.write_text(server.connection_string())
        self.config = (
            '[events]\nsinks = ["eventhubs"]\n[commands]\nsource = "eventhubs"\n'
            f'[eventhubs]\nconnection_string_file = "{secret}"\n'
            "reconnect_s_max = 0.5\ncheckpoint_s = 0.2\n"
        )
        self._server = server
        self._out = folder / "out.jsonl"

    def send(self, payload: bytes) -> None:
        self._server.hub(COMMANDS_HUB).put(payload, partition_key="vm1")

    async def keep(self) -> None:
        """Append what is new in the hub, for ever."""
        kept = 0
        while True:
            new = self._server.hub(EVENTS_HUB).events()[kept:]
            with self._out.open("ab") as out:
                # Status goes to the same hub; it describes a moment, and none is promised.
                bodies = (bytes(event.body) for event in new)
                out.writelines(body + b"\n" for body in bodies if b"io.sebridge.agent" not in body)
            kept += len(new)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def eventhubs(folder: Path) -> AsyncIterator[Party]:
    async with EventHubsServer() as server:
        server.add_hub(EVENTS_HUB)
        server.add_hub(COMMANDS_HUB)
        party = EventHubsParty(folder, server)
        keeping = asyncio.create_task(party.keep())
        try:
            yield party
        finally:
            keeping.cancel()


@asynccontextmanager
async def mqtt(folder: Path) -> AsyncIterator[Party]:
    (folder / "mosquitto").mkdir()
    with Mosquitto(folder / "mosquitto") as broker:
        party = MqttParty(folder, broker.port)
        try:
            yield party
        finally:
            party.close()


TRANSPORTS = {"eventhubs": eventhubs, "mqtt": mqtt}


class Outcome(NamedTuple):
    killed: int
    folder: Path


async def live(folder: Path, hit: tuple[str, int], party: Party) -> int:
    """One life of the agent; commands are sent again until they are answered."""
    with (folder / "log").open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.crash.child", str(folder / "agent.toml"), hit[0],
            str(hit[1]), stdout=log, stderr=log,
        )  # fmt: skip
    try:
        async with asyncio.timeout(30):
            while child.returncode is None and not is_told(folder):
                if "scheduled" in transitions(folder):
                    for payload in COMMANDS:
                        if not is_answered(folder):
                            party.send(payload)
                await asyncio.sleep(0.15)
    finally:
        if child.returncode is None:
            child.terminate()
        code = await child.wait()
    return code


def is_answered(folder: Path) -> bool:
    return len(answered_keys(folder)) >= distinct_keys(folder)


def is_told(folder: Path) -> bool:
    return is_answered(folder) and bool({"completed", "ended"} & set(transitions(folder)))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
@pytest.mark.parametrize(
    ("behaviour", "steps"),
    [
        ("ok", (9, 50)),
        pytest.param("ok", tuple(range(2, 90, 4)), marks=pytest.mark.slow),
        pytest.param("drop", tuple(range(30, 80, 5)), marks=pytest.mark.slow),
        pytest.param("busy", tuple(range(40, 90, 10)), marks=pytest.mark.slow),
    ],
)
async def test_kills_with_a_real_broker_keep_every_promise(
    tmp_path: Path, transport: str, behaviour: str, steps: tuple[int, ...]
) -> None:
    """One POST, one answer a command, every transition in order, through a broker that repeats."""
    killed = 0
    async with ScriptedImds(CountingImds(tmp_path).script) as imds:
        for at in steps:
            folder = tmp_path / f"{behaviour}-{at}"
            folder.mkdir()
            (folder / "commands.jsonl").write_bytes(b"\n".join((*COMMANDS, b"")))
            async with TRANSPORTS[transport](folder) as party:
                endpoint = f"{imds.endpoint}/{behaviour}/{folder.name}"
                text = CONFIG.format(endpoint=endpoint, folder=folder, transport=party.config)
                (folder / "agent.toml").write_text(text)
                killed += await live(folder, ("kill", at), party) == -9
                if not is_told(folder):
                    assert await live(folder, ("kill", 0), party) == 0, (folder / "log").read_text()
            check(folder, {"a", "b"})

    assert killed > 0
