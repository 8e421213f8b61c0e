"""The ledger's directory and file: writable, on a disk that lasts, readable by this version.

Nothing here locks, opens or changes the ledger: a running agent holds it alone. Who holds it is
asked of the kernel, and its content is read from a copy.
"""

import fcntl
import getpass
import os
import sqlite3
import struct
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bridge.config import Store
from bridge.doctor.finding import Finding, failed, ok, warning
from bridge.doctor.waiting import in_thread
from bridge.errors import StoreError
from bridge.store.connection import connect_memory
from bridge.store.meta import get_meta
from bridge.store.migrations import VERSION
from bridge.store.opening import copy_into

_PLACE, _FILE = "ledger directory", "ledger"
_DISK_S = 4.0
_MIB = 1024 * 1024
SPACE_FAILED_BYTES = 16 * _MIB
SPACE_WARNING_BYTES = 256 * _MIB
MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs"}
)
# The Azure agent leaves this note at the root of the disk that a redeployment empties.
RESOURCE_DISK_NOTE = "DATALOSS_WARNING_README.txt"
# Where SQLite puts its locks, in any file: see "File Locking" in its documentation.
_PENDING_BYTE, _LOCK_BYTES = 0x40000000, 512


class Mount(NamedTuple):
    point: str
    kind: str


async def check(
    config: Store, *, vm_id: str, agent: Mapping[str, Any] | None
) -> AsyncGenerator[Finding, None]:
    path = Path(os.path.abspath(config.path))  # noqa: PTH100, ASYNC240 - no disk is asked here
    try:
        yield await in_thread(_check_place, path.parent, seconds=_DISK_S)
        yield await in_thread(_check_file, path, vm_id, agent, seconds=_DISK_S)
    except TimeoutError:
        remedy = "the disk does not answer: look at the kernel log"
        yield failed(_FILE, f"{path}: no answer within {_DISK_S:g} s", remedy)


def mount_of(path: str, mountinfo: str) -> Mount:
    """The file system that a path is on, by /proc/self/mountinfo; the last mount hides others."""
    best = Mount("", "")
    for text in mountinfo.splitlines():
        before, _, after = text.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        covers = path == point or path.startswith(point.rstrip("/") + "/")
        if covers and len(point) >= len(best.point):
            best = Mount(point, after.split()[0])
    return best


def _check_place(directory: Path) -> Finding:
    try:
        existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
        problem = _write_problem(existing, really=existing == directory)
    except PermissionError as error:
        problem = f"{error.filename} is closed to {getpass.getuser()}"
    if problem:
        remedy = (
            f"give {getpass.getuser()} the right to write there, or run this as the agent's user"
        )
        return failed(_PLACE, f"{directory}: {problem}", remedy)
    where = mount_of(os.path.realpath(existing), Path("/proc/self/mountinfo").read_text("utf-8"))
    free = os.statvfs(existing)
    free_bytes = free.f_bavail * free.f_frsize
    text = f"{directory} on {where.kind or 'an unknown file system'}, {free_bytes // _MIB} MiB free"
    return (
        _check_space(text, free_bytes)
        or _check_kind(text, where)
        or ok(_PLACE, text + ("" if existing == directory else "; the agent makes it"))
    )


def _write_problem(directory: Path, *, really: bool) -> str:
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"not writable for {getpass.getuser()}"
    if not really:
        return ""
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"sebridge doctor")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return ""


def _check_space(text: str, free_bytes: int) -> Finding | None:
    if free_bytes < SPACE_FAILED_BYTES:
        return failed(_PLACE, text, "make room: a full disk means that approvals are refused")
    if free_bytes < SPACE_WARNING_BYTES:
        return warning(_PLACE, text, "make room before the disk is full: approvals need it")
    return None


def _check_kind(text: str, where: Mount) -> Finding | None:
    local = "set store.path to a local disk"
    if where.kind in NETWORK:
        return failed(_PLACE, f"{text}: locks do not hold over a network", local)
    if where.kind in MEMORY:
        return warning(_PLACE, f"{text}: a reboot forgets what was approved", local)
    if where.kind == "overlay":
        remedy = "mount a volume there"
        return warning(_PLACE, f"{text}: goes with the container, and with it the history", remedy)
    if Path(where.point, RESOURCE_DISK_NOTE).exists():
        remedy = "set store.path to the OS disk or a data disk"
        return warning(_PLACE, f"{text}: a redeployment empties this disk", remedy)
    return None


def _check_file(path: Path, vm_id: str, agent: Mapping[str, Any] | None) -> Finding:
    try:
        if not path.exists():
            return ok(_FILE, f"{path} does not exist yet; the agent makes it")
        holder = _holder(path)
        if holder:
            return _describe_held(path, holder, agent)
        return _describe_free(path, vm_id)
    except PermissionError:
        remedy = "run this as the agent's user, or as root"
        return warning(_FILE, f"{path}: not readable for {getpass.getuser()}", remedy)


def _holder(path: Path) -> int:
    """The process that holds SQLite's locks, or 0. Asking does not lock."""
    layout = "hhqqi4x"
    wanted = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, _PENDING_BYTE, _LOCK_BYTES, 0)
    with path.open("rb") as file:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, wanted)
    kind, *_, pid = struct.unpack(layout, answer)
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def _describe_held(path: Path, holder: int, agent: Mapping[str, Any] | None) -> Finding:
    # A process of another PID namespace has no number here.
    who = f"process {holder}" if holder > 0 else "a process outside this container"
    if agent is None:
        remedy = "if it is the agent, see http.listen; if not, stop it: the agent cannot start"
        return warning(_FILE, f"{path} is held by {who}, and no agent answers", remedy)
    if not agent["durable"]:
        remedy = "make room or make it writable, then restart the agent"
        return failed(_FILE, f"approvals are refused: {agent.get('storeProblem')}", remedy)
    return ok(_FILE, f"{path} is held by {who}, the agent; it can be written")


def _describe_free(path: Path, vm_id: str) -> Finding:
    memory = connect_memory()
    try:
        copy_into(path, memory)
        version = memory.execute("PRAGMA user_version").fetchone()[0]
        known = get_meta(memory, "vm_id") if 0 < version <= VERSION else None
        damage = [row[0] for row in memory.execute("PRAGMA quick_check(1)")]
    except (StoreError, sqlite3.Error) as error:
        remedy = "the agent moves it aside and starts a new one, see docs/operations.md"
        return failed(_FILE, f"{path} cannot be read: {error}", remedy)
    finally:
        memory.close()
    if version > VERSION:
        remedy = "install the newer sebridge again"
        return failed(_FILE, f"{path} has schema {version}, this version knows {VERSION}", remedy)
    if damage != ["ok"]:
        remedy = "the agent moves it aside and starts a new one, see docs/operations.md"
        return failed(_FILE, f"{path} is damaged: {damage[0]}", remedy)
    owner = (known or b"").decode()
    if owner and vm_id and owner != vm_id:
        remedy = "if the disk was cloned, leave it: the agent moves the file aside"
        return warning(_FILE, f"{path} belongs to another VM, {owner}", remedy)
    return ok(_FILE, f"{path}, schema {version}, in good order")
