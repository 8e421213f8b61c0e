"""The process: starting without friends, stopping in time, probes, and what the logs keep quiet."""

import asyncio
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from typing import Any

import msgspec
import pytest

from tests.e2e.conftest import AgentProcess
from tests.support.scripted_imds import ScriptedImds


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


async def test_process_starts_without_imds_and_broker_and_stops_with_zero(
    agent: AgentProcess, imds: Any, broker: Any, free_port: int, until: Callable[..., Any]
) -> None:
    """Alive at once, not ready; one SIGTERM ends it within ten seconds."""
    broker.stop()
    imds.is_away = True
    agent.start()
    await until(lambda: ask(free_port, "/healthz")[0] == 200)
    code, why = await asyncio.to_thread(ask, free_port, "/readyz")
    began = time.monotonic()

    assert (code, "waiting for IMDS" in why) == (503, True)
    assert await asyncio.to_thread(agent.stop) == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_watch_ends_well_when_it_is_told_to(
    broker: Any, tmp_path: Path, until: Callable[..., Any], number: signal.Signals
) -> None:
    """A live tail has no other end: a signal is no failure, and leaves no traceback."""
    config, said = tmp_path / "watch.toml", tmp_path / "said"
    config.write_text(f'[mqtt]\nhost = "127.0.0.1"\nport = {broker.port}\n')
    command = [sys.executable, "-m", "bridge", "watch", "--config", str(config)]
    with said.open("wb") as output:
        watching = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
    await until(lambda: says_hello(broker.port) and b"hello" in said.read_bytes())
    watching.send_signal(number)

    assert await asyncio.wait_for(watching.wait(), 10) == 0
    assert set(said.read_text().split()) == {"hello"}


def says_hello(port: int) -> bool:
    run(
        ["mosquitto_pub", "-p", str(port), "-t", "sebridge/v1/rg/x/events", "-m", "hello"],
        check=True,
    )
    return True


async def test_process_broker_outage_does_not_make_it_unready(
    agent: AgentProcess, imds: Any, broker: Any, free_port: int, until: Callable[..., Any]
) -> None:
    """The broker's absence shows in /status, not in /readyz, and stopping stays quick."""
    broker.stop()
    agent.start()
    await until(lambda: ask(free_port, "/readyz")[0] == 200)
    status = msgspec.json.decode(ask(free_port, "/status")[1])
    metrics = ask(free_port, "/metrics")[1]
    began = time.monotonic()

    assert "refused" in status["sinks"]["mqtt"]["problem"]
    assert 'sebridge_sink_up{sink="mqtt"} 0.0' in metrics
    assert await asyncio.to_thread(agent.stop) == 0
    assert time.monotonic() - began < 10


async def test_process_second_signal_ends_it_at_once(
    agent: AgentProcess, imds: Any, broker: Any, free_port: int, until: Callable[..., Any]
) -> None:
    """Whoever asks twice is in a hurry: no draining, exit code 1."""
    agent.start()
    await until(lambda: ask(free_port, "/readyz")[0] == 200)
    broker.stop()
    imds.show({"EventId": "undeliverable", "EventStatus": "Scheduled", "Resources": ["web_3"]})
    await until(
        lambda: msgspec.json.decode(ask(free_port, "/status")[1])["sinks"]["mqtt"]["outbox"]
    )
    agent.signal(signal.SIGTERM)
    await until(lambda: "stopping" in agent.log)
    assert agent.is_running
    agent.signal(signal.SIGINT)

    assert await asyncio.to_thread(agent.wait) == 1


@pytest.mark.parametrize("is_copy", [False, True], ids=["same-vm", "copied-image"])
async def test_process_started_without_imds_polls_once_it_is_sure_whose_events_these_are(
    agent: AgentProcess, imds: Any, observer: Any, until: Callable[..., Any], *, is_copy: bool
) -> None:
    """It starts as the VM in the ledger; a copied image ends before it acts for another VM."""
    agent.start()
    await until(lambda: statuses(observer))
    agent.kill()
    imds.is_away = True
    agent.start()
    await until(lambda: "using the identity in the ledger" in agent.log, 20)
    if is_copy:
        imds.compute["vmId"] = "another"
    imds.show({"EventId": "e", "EventStatus": "Scheduled", "Resources": ["web_3"]})
    before, imds.is_away = imds.gets, False

    if is_copy:
        assert await asyncio.to_thread(agent.wait) == 1
        assert "Restart: what is another VM's is moved aside" in agent.log
        assert (imds.gets, observer.of("events")) == (before, [])
    else:
        await until(lambda: observer.of("events"))


async def test_process_survives_imds_going_away_and_turns_blind(
    agent: AgentProcess, imds: Any, observer: Any, until: Callable[..., Any]
) -> None:
    """No event ends while IMDS is silent; the status says blind, and online again."""
    imds.show({"EventId": "e", "EventStatus": "Scheduled", "Resources": ["web_3"]})
    agent.start(SEBRIDGE_IMDS__STALE_AFTER_S="1.0", SEBRIDGE_IMDS__TIMEOUT_S="0.5")
    await until(lambda: observer.of("events"))
    imds.is_away = True
    await until(lambda: "blind" in statuses(observer))
    imds.is_away = False
    await until(lambda: statuses(observer)[-1] == "online")

    assert [e["data"]["transition"] for e in observer.of("events")] == ["scheduled"]


def statuses(observer: Any) -> list[str]:
    return [event["data"]["status"] for event in observer.of("status")]


async def test_process_ignores_proxies_whatever_the_environment_says(
    agent: AgentProcess, observer: Any, until: Callable[..., Any]
) -> None:
    """IMDS is asked directly even when every proxy variable is set."""
    asked: list[str] = []

    def proxy(request: Any) -> bytes:
        asked.append(request.path)
        return b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"

    async with ScriptedImds(proxy) as server:
        names = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy")
        agent.start(**dict.fromkeys(names, server.endpoint))
        await until(lambda: "online" in statuses(observer))

    assert asked == []


async def test_process_password_is_nowhere_to_be_seen(
    agent: AgentProcess, tmp_path: Path, free_port: int, until: Callable[..., Any]
) -> None:
    """A secret is in its file, and in no log, status, metric or printed configuration."""
    secret = tmp_path / "password"
    secret.write_text("correct-horse-battery\n")
    environment = {
        "SEBRIDGE_MQTT__USERNAME": "agent",
        "SEBRIDGE_MQTT__PASSWORD_FILE": str(secret),
        "SEBRIDGE_LOG__LEVEL": "debug",
    }
    agent.start(**environment)
    await until(lambda: ask(free_port, "/readyz")[0] == 200)
    shown = [ask(free_port, path)[1] for path in ("/status", "/metrics", "/audit")]
    printed = await asyncio.to_thread(agent.cli, "check-config", **environment)
    assert await asyncio.to_thread(agent.stop) == 0

    assert str(secret) in printed.stdout
    assert "correct-horse" not in "".join([*shown, printed.stdout, agent.log])


async def test_process_second_agent_on_one_ledger_refuses_to_start(
    agent: AgentProcess, free_port: int, until: Callable[..., Any]
) -> None:
    """Two agents on one ledger could approve twice: the second says so and exits 1."""
    agent.start()
    await until(lambda: ask(free_port, "/readyz")[0] == 200)
    second = await asyncio.to_thread(agent.cli, "run", SEBRIDGE_HTTP__LISTEN="")

    assert second.returncode == 1
    assert "another agent holds the ledger" in second.stderr


async def test_process_bad_configuration_exits_with_two(agent: AgentProcess) -> None:
    """The message names the file, the key and what is wrong."""
    result = await asyncio.to_thread(agent.cli, "run", SEBRIDGE_IMDS__POLL_INTERVAL_S="-1")

    assert result.returncode == 2
    assert "imds.poll_interval_s" in result.stderr
