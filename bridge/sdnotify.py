"""Word to systemd, where it is listening: READY, WATCHDOG, STOPPING."""

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send one state; without NOTIFY_SOCKET, or on any trouble, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        sock.send(state.encode())


def watchdog_interval_s() -> float | None:
    """Half of what systemd allows, or None when it does not watch us."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or os.environ.get("WATCHDOG_PID", "") not in (
        "",
        str(os.getpid()),
    ):
        return None
    return int(microseconds) / 2_000_000
