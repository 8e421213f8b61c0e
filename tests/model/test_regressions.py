"""Lives that once went wrong, step by step. A failing example of test_agent.py is kept here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.agent import Killed, run
from tests.model.test_agent import AgentMachine


@pytest.fixture
def life() -> Iterator[AgentMachine]:
    machine = AgentMachine()
    machine.start()
    yield machine
    machine.teardown()


def test_disk_full_after_accepting_leaves_the_answer_to_the_next_start(
    life: AgentMachine,
) -> None:
    """An answer from memory would be forgotten by the file, and the approval posted after it."""
    life.show("A-1", "Scheduled")
    life.poll(b"")
    life.send("k1", "A-1", override=False, token=False, life_s=None)
    life.take()
    assert life.agent
    life.agent.store.degrade("the disk is full")
    life.approve(200)
    life.publish(10**9)
    assert [e["data"].get("status") for e in life.published()] == [None]

    life.agent.die()
    file = life.agent.store._database._file
    assert file
    file.close()
    life.live()
    life.poll(b"")
    life.approve(200)
    life.publish(10**9)
    assert [e["data"].get("status") for e in life.published()][-1] == "approved"
    assert [event for event, _ in life.world.posts] == ["A-1"]


def test_lost_wal_after_sending_leaves_a_doubt(life: AgentMachine) -> None:
    """A crash after the POST, then the WAL is gone: the event must not look unposted."""
    life.show("A-1", "Scheduled")
    life.poll(b"")
    life.send("k1", "A-1", override=False, token=False, life_s=None)
    life.take()
    life.publish(10**9)
    agent, path = life.agent, Path(life.folder, "state.db")
    assert agent
    life.kill_soon(4)  # connect, begin_post (two), the POST has left
    with pytest.raises(Killed):
        run(agent.approver.step)
    without_wal = path.read_bytes()
    agent.die()
    path.write_bytes(without_wal)
    life.live()

    assert [event for event, _ in life.world.posts] == ["A-1"]
    assert life.agent
    assert life.agent.store.entries()["a-1"].state == "in-doubt"
