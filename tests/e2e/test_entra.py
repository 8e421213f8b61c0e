"""The agent at an Event Grid namespace: the managed identity's token instead of a password."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import main
from tests.support.certificates import DAY, Authority
from tests.support.mqtt5_peer import Mqtt5Peer
from tests.support.scripted_imds import Action, Request, ScriptedImds, answer

ROOT = "sebridge/v1/rg/web_3"
CONFIG = """
[imds]
endpoint = "{endpoint}"
[store]
path = "{folder}/state.db"
[mqtt]
host = "127.0.0.1"
port = {port}
auth = "entra-jwt"
identity_client_id = "my-identity"
[mqtt.tls]
enabled = true
ca_file = "{ca_file}"
[http]
listen = ""
"""


async def test_agent_logs_in_with_its_identity(
    tmp_path: Path, imds: Any, until: Callable[..., Any]
) -> None:
    """One process, from the configured identity to the first message at the broker."""
    authority = Authority(tmp_path)
    asked: list[str] = []

    def script(request: Request) -> bytes | Action:
        if not request.path.startswith("/metadata/identity"):
            step: bytes | Action = imds.script(request)
            return step
        asked.append(request.path)
        token = {"access_token": "the-token", "token_type": "Bearer", "resource": "r"}
        body = json.dumps(token | {"expires_on": str(int(time.time()) + 3600)}).encode()
        return answer(200, body, Content_Type="application/json")

    async with (
        ScriptedImds(script) as server,
        Mqtt5Peer(*authority.issue("broker", ends=30 * DAY), {"the-token"}) as peer,
    ):
        config = tmp_path / "bridge.toml"
        config.write_text(
            CONFIG.format(
                endpoint=server.endpoint,
                folder=tmp_path,
                port=peer.port,
                ca_file=authority.ca_file,
            )
        )
        environment = os.environ | {"AZURE_POD_IDENTITY_AUTHORITY_HOST": server.endpoint}
        with (tmp_path / "agent.log").open("wb") as log:
            agent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bridge", "run", "--config", str(config)),
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            await until(lambda: f"{ROOT}/status" in peer.topics)
            agent.terminate()
            async with asyncio.timeout(15):
                code = await agent.wait()
        finally:
            if agent.returncode is None:
                agent.kill()
                await agent.wait()

    assert code == 0
    assert {(c.level, c.method, c.data) for c in peer.connects} == {(5, "OAUTH2-JWT", "the-token")}
    assert all("client_id=my-identity" in path for path in asked)
    assert "the-token" not in (tmp_path / "agent.log").read_text()


def test_watch_with_the_agents_identity_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token is the VM's; an operator needs a login of his own."""
    config = tmp_path / "bridge.toml"
    config.write_text(
        CONFIG.format(endpoint="http://127.0.0.1:1", folder=tmp_path, port=1, ca_file="")
    )

    code = main(["watch", "--config", str(config)])

    assert code == 2
    assert "entra-jwt is for the agent" in capsys.readouterr().err
