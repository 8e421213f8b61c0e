"""A real ledger on a real file, and a clock that stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.store import Store
from tests.fakes import FakeClock
from tests.support.mosquitto import Mosquitto


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    opened = Store.open(tmp_path / "loops" / "state.db", now=clock.now())
    opened.set_sinks(("memory",))
    yield opened
    opened.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path) as running:
        yield running
