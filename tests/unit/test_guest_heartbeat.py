"""The heartbeat file that the Azure guest agent reads."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bridge.guest_heartbeat import GuestHeartbeat


class HandClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def elapsed_s(self) -> float:
        return self.seconds


class Agent:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = HandClock()
        self.problem = ""
        self.heartbeat = GuestHeartbeat(
            str(path), self.clock, lambda: self.problem, patience_s=130.0
        )

    def after(self, seconds: float, problem: str = "") -> tuple[str, str]:
        self.clock.seconds += seconds
        self.problem = problem
        self.heartbeat.step()
        return self.read()

    def read(self) -> tuple[str, str]:
        (content,) = json.loads(self.path.read_text())
        heartbeat = content["heartbeat"]
        return heartbeat["status"], heartbeat["formattedMessage"]["message"]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "heartbeat.json")


def test_heartbeat_is_ready_while_the_agent_is_fine(agent: Agent) -> None:
    """All is well from the first step on."""
    assert ("Ready", "polling Scheduled Events") == agent.after(0)


def test_heartbeat_bears_a_problem_for_a_while(agent: Agent) -> None:
    """The first answer of IMDS may take two minutes; that must not fail a deployment."""
    assert ("Ready", "waiting for IMDS") == agent.after(130, "waiting for IMDS")
    assert ("NotReady", "waiting for IMDS") == agent.after(1, "waiting for IMDS")
    assert ("Ready", "polling Scheduled Events") == agent.after(1)
    assert ("Ready", "no good poll") == agent.after(100, "no good poll")


def test_heartbeat_is_written_on_change_and_every_minute(agent: Agent) -> None:
    """Often enough for ten minutes of patience, rarely enough for any disk."""
    agent.after(0)
    agent.path.unlink()
    for _ in range(59):
        agent.clock.seconds += 1
        agent.heartbeat.step()
    assert not agent.path.exists()

    assert ("Ready", "polling Scheduled Events") == agent.after(1)


def test_heartbeat_of_a_stopped_agent_is_not_ready(agent: Agent) -> None:
    """An orderly end says so, instead of a file that only grows old."""
    agent.after(0)
    agent.heartbeat.stop()

    assert ("NotReady", "the agent is stopped") == agent.read()


def test_heartbeat_that_cannot_be_written_does_not_end_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk stops approvals, not the agent; and certainly not for a heartbeat."""
    (tmp_path / "file").touch()
    agent = Agent(tmp_path / "file/heartbeat.json")

    agent.heartbeat.step()

    assert "cannot write service.heartbeat_file" in caplog.text


async def test_heartbeat_without_a_file_does_nothing() -> None:
    """The option is empty by default: the loop ends at once."""
    heartbeat = GuestHeartbeat("", HandClock(), lambda: "", patience_s=1.0)

    await heartbeat.run()
    heartbeat.stop()
