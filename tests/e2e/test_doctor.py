"""`sebridge doctor` as an operator runs it: a process, its lines and its exit code."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def doctor(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Ends within half a minute, whatever is dead: that is promised."""
    command = [sys.executable, "-m", "bridge", "doctor", "--config", str(config), *options]
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=ROOT,
        env=environment | {"http_proxy": "http://127.0.0.1:9"},
    )


async def test_doctor_beside_a_running_agent_finds_it_well_and_leaves_it_so(
    agent: Any, imds: Any, observer: Any, until: Callable[..., Any], tmp_path: Path
) -> None:
    """Nothing fails, the agent stays connected, and consumers see no event and no outcome."""
    agent.start()
    await until(lambda: observer.of("status"))

    answer = await asyncio.to_thread(agent.cli, "doctor", "--json")

    findings = [json.loads(text) for text in answer.stdout.splitlines()]
    by_name = {finding["name"]: finding for finding in findings}
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "failed" not in {finding["result"] for finding in findings}
    assert "runs and polls" in by_name["agent"]["text"]
    assert "the agent; it can be written" in by_name["ledger"]["text"]
    assert by_name["topic commands"]["result"] == "ok"
    types = {event["type"] for event in observer.of("events") + observer.of("outcomes")}
    assert types == {"io.sebridge.agent.probe.v1"}
    await until(imds.was_polled_twice())
    assert agent.is_running
    assert "offline" not in [status["data"].get("status") for status in observer.of("status")]
    assert imds.posts == []


def test_doctor_with_everything_dead_ends_in_time(tmp_path: Path) -> None:
    """Peers that take connections and say nothing: a failure for each, exit code 1."""
    silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    imds, broker, agent = (server.getsockname()[1] for server in silent)
    config = tmp_path / "bridge.toml"
    config.write_text(
        f'[imds]\nendpoint = "http://127.0.0.1:{imds}"\n'
        f'[store]\npath = "{tmp_path}/state.db"\n'
        f'[mqtt]\nhost = "127.0.0.1"\nport = {broker}\n'
        f'[http]\nlisten = "127.0.0.1:{agent}"\n'
    )

    answer = doctor(config)

    for server in silent:
        server.close()
    lines = answer.stdout.splitlines()
    assert answer.returncode == 1
    for name in ("imds endpoint", "agent", "broker login"):
        (at,) = (i for i, text in enumerate(lines) if text.startswith(f"failed   {name} "))
        assert lines[at + 1].startswith("         → ")
    assert "warning  proxies           http_proxy set" in answer.stdout
    assert answer.stderr == ""


def test_doctor_bad_configuration_is_exit_code_2(tmp_path: Path) -> None:
    """One line that names the key, for people and for programs."""
    config = tmp_path / "bridge.toml"
    config.write_text("[mqtt]\nhots = 'broker'\n")

    text, machine = doctor(config), doctor(config, "--json")

    assert (text.returncode, machine.returncode) == (2, 2)
    assert text.stdout.startswith("failed   configuration")
    assert "mqtt.hots" in text.stdout
    finding = json.loads(machine.stdout)
    assert (finding["name"], finding["result"]) == ("configuration", "failed")
    assert finding["remedy"]


def test_doctor_prints_no_control_characters(tmp_path: Path) -> None:
    """What a stranger's server writes must not move the operator's cursor."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = tmp_path / "bridge.toml"
        config.write_text(
            f'[imds]\nendpoint = "http://127.0.0.1:{port}"\n'
            f'[store]\npath = "{tmp_path}/state.db"\n'
            '[events]\nsinks = ["stdout"]\n[commands]\nsource = "none"\n[http]\nlisten = ""\n'
        )
        command = [sys.executable, "-m", "bridge", "doctor", "--config", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                body = b"<\x1b[2Jhtml>"
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                output, _ = process.communicate(timeout=30)

    assert "a web page answers" in output
    assert "\x1b" not in output
    assert process.returncode == 1
