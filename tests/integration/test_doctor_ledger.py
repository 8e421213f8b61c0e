"""The doctor and the ledger: its directory, its disk, its file, and who holds it."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bridge.config import Store as StoreConfig
from bridge.doctor import ledger
from bridge.doctor.finding import Finding
from bridge.store import Store
from tests.doctoring import collect, results

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /dev/shm rw - tmpfs tmpfs rw
24 22 8:17 / /mnt rw - ext4 /dev/sdb1 rw
25 22 0:40 / /srv/my\\040share rw - nfs4 server:/share rw
26 24 0:41 / /mnt rw - xfs /dev/sdc1 rw
"""
AGENT = {"vm": {}, "durable": True, "storeProblem": "", "poll": {"count": 7}, "sinks": {}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/sebridge", ("/", "ext4")),
        ("/dev/shm/x", ("/dev/shm", "tmpfs")),
        ("/dev/shmall", ("/", "ext4")),
        ("/mnt/state", ("/mnt", "xfs")),
        ("/srv/my share", ("/srv/my share", "nfs4")),
    ],
)
def test_mount_of_finds_the_deepest_and_newest(path: str, expected: tuple[str, str]) -> None:
    """The mount that a path is really on, whole names only."""
    assert ledger.mount_of(path, MOUNTS) == expected


def examine(path: Path, *, agent: dict[str, Any] | None = None) -> dict[str, Finding]:
    findings = ledger.check(StoreConfig(path=str(path)), vm_id="v-1", agent=agent)
    return asyncio.run(collect(findings))


def test_new_directory_is_fine_and_stays_unmade(tmp_path: Path) -> None:
    """The doctor looks and leaves no trace."""
    found = examine(tmp_path / "deep" / "er" / "state.db")

    assert results(found)["ledger"] == "ok"
    assert "the agent makes it" in found["ledger"].text
    assert found["ledger directory"].result != "failed"
    assert list(tmp_path.iterdir()) == []


def test_memory_file_system_is_a_warning() -> None:
    """What was approved must outlive a reboot."""
    found = examine(Path("/dev/shm/sebridge-doctor-test/state.db"))

    assert found["ledger directory"].result == "warning"
    assert "a reboot forgets" in found["ledger directory"].text


@pytest.mark.parametrize(
    ("kind", "result", "text"),
    [
        ("nfs4", "failed", "locks do not hold"),
        ("cifs", "failed", "locks do not hold"),
        ("ramfs", "warning", "a reboot forgets"),
        ("overlay", "warning", "goes with the container"),
    ],
)
def test_kinds_of_file_systems(kind: str, result: str, text: str, tmp_path: Path) -> None:
    """Each has its own danger."""
    finding = ledger._check_kind("here", ledger.Mount(str(tmp_path), kind))

    assert finding
    assert (finding.result, text in finding.text) == (result, True)


def test_resource_disk_is_known_by_azures_note(tmp_path: Path) -> None:
    """A redeployment empties it."""
    mount = ledger.Mount(str(tmp_path), "ext4")
    assert ledger._check_kind("here", mount) is None

    (tmp_path / ledger.RESOURCE_DISK_NOTE).touch()

    finding = ledger._check_kind("here", mount)
    assert finding
    assert "a redeployment empties this disk" in finding.text


@pytest.mark.parametrize(
    ("free_bytes", "result"),
    [(0, "failed"), (ledger.SPACE_FAILED_BYTES, "warning"), (ledger.SPACE_WARNING_BYTES, None)],
)
def test_space_is_judged(free_bytes: int, result: str | None) -> None:
    """A full disk means that approvals are refused."""
    finding = ledger._check_space("here", free_bytes)

    assert (finding.result if finding else None) == result


def test_good_ledger_is_read_from_a_copy(tmp_path: Path) -> None:
    """Schema and owner are told; the file is not changed by a byte."""
    path = tmp_path / "state.db"
    Store.open(str(path), now=datetime.now(UTC), vm_id="v-1").close()
    before = path.read_bytes(), path.stat().st_mtime_ns

    found = examine(path)

    assert found["ledger"].result == "ok"
    assert "schema 2, in good order" in found["ledger"].text
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.db"]


def test_ledger_of_another_vm_is_a_warning(tmp_path: Path) -> None:
    """A cloned disk brings another VM's history."""
    path = tmp_path / "state.db"
    Store.open(str(path), now=datetime.now(UTC), vm_id="v-2").close()

    found = examine(path)

    assert found["ledger"].result == "warning"
    assert "belongs to another VM, v-2" in found["ledger"].text


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda path: path.write_bytes(b"rubbish" * 1000), "cannot be read"),
        (lambda path: sqlite(path, "PRAGMA user_version = 99"), "has schema 99"),
        (lambda path: path.write_bytes(path.read_bytes()[:8192]), "ledger"),
    ],
    ids=["rubbish", "newer", "truncated"],
)
def test_unusable_ledger_is_a_failure(
    tmp_path: Path, spoil: Callable[[Path], None], text: str
) -> None:
    """What the agent would move aside or refuse is told before."""
    path = tmp_path / "state.db"
    Store.open(str(path), now=datetime.now(UTC), vm_id="v-1").close()
    spoil(path)

    found = examine(path)

    assert found["ledger"].result == "failed"
    assert text in found["ledger"].text


def sqlite(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()


HOLDER = """
import sys
from datetime import UTC, datetime
from bridge.store import Store
store = Store.open(sys.argv[1], now=datetime.now(UTC), vm_id="v-1")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("agent", "result", "text"),
    [
        (AGENT, "ok", "the agent; it can be written"),
        (AGENT | {"durable": False, "storeProblem": "disk full"}, "failed", "disk full"),
        (None, "warning", "and no agent answers"),
    ],
)
def test_held_ledger_is_asked_of_the_agent(
    tmp_path: Path, agent: dict[str, Any] | None, result: str, text: str
) -> None:
    """The kernel names the holder; its lock is untouched, which a second opening proves."""
    path = tmp_path / "state.db"
    command = [sys.executable, "-c", HOLDER, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin
    assert holder.stdout
    try:
        assert holder.stdout.readline() == b"open\n"

        found = examine(path, agent=agent)
        again = examine(path, agent=agent)
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(10)

    assert again["ledger"] == found["ledger"]
    assert (found["ledger"].result, text in found["ledger"].text) == (result, True)
    if result != "failed":
        assert f"process {holder.pid}" in found["ledger"].text


WITHOUT_RIGHTS = """
import asyncio, os, sys
from bridge.config import Store
from bridge.doctor import ledger
from bridge.doctor.finding import line

if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)

async def main():
    async for finding in ledger.check(Store(path=sys.argv[1]), vm_id="", agent=None):
        print(line(finding))

asyncio.run(main())
"""


@pytest.mark.parametrize("path", ["state.db", "inner/state.db"])
def test_directory_of_another_user_is_told(tmp_path: Path, path: str) -> None:
    """Who runs the doctor is named, since the agent may be another user."""
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o000)
    command = [sys.executable, "-c", WITHOUT_RIGHTS, str(closed / path)]

    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    closed.chmod(0o700)
    assert said.startswith("failed   ledger directory")
    assert "run this as the agent's user" in said
    assert "warning  ledger " in said
