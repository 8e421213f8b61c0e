"""The VM around the agent: proxy variables and the clock."""

import ctypes
import sys
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from bridge.doctor.finding import Finding, failed, ok, warning

# Commands carry expiry times in seconds; a minute decides whether one is taken.
CLOCK_WARNING_S = 5.0
CLOCK_FAILED_S = 60.0

_PROXIES = ("http_proxy", "all_proxy")  # https_proxy cannot concern IMDS: it knows no TLS
_CLOCK_REMEDY = "check chrony or systemd-timesyncd; expiry and NotBefore are compared with it"
_STA_UNSYNC = 0x40


def check_proxies(environment: Mapping[str, str], endpoint: str) -> Finding:
    """This agent ignores them; other programs on the VM may send IMDS through one."""
    found = sorted(name for name in environment if name.lower() in _PROXIES and environment[name])
    if not found:
        return ok("proxies", "none set in this environment")
    host = urlsplit(endpoint).hostname or ""
    no_proxy = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    names = ", ".join(found)
    if urllib.request.proxy_bypass(host, {"no": no_proxy}):
        return ok("proxies", f"{names} set, and no_proxy exempts {host}")
    return warning(
        "proxies",
        f"{names} set, and no_proxy does not exempt {host}: sebridge ignores it, others do not",
        f"add {host} to no_proxy, or other programs on this VM cannot reach IMDS",
    )


def check_clock(offset_s: float | None, synchronised: bool | None) -> Finding:
    """`offset_s`: ahead of the host, by IMDS's Date; `synchronised`: what the kernel says."""
    kernel = {
        True: "the kernel calls it synchronised",
        False: "the kernel calls it not synchronised",
        None: "the kernel does not say whether it is synchronised",
    }[synchronised]
    if offset_s is None:
        if synchronised:
            return ok("clock", f"{kernel}; IMDS sent no time to compare with")
        text = f"cannot be told: IMDS sent no time to compare with, and {kernel}"
        return warning("clock", text, _CLOCK_REMEDY)
    direction = "ahead of" if offset_s > 0 else "behind"
    apart = f"{abs(offset_s):.0f} s {direction} IMDS; {kernel}"
    if abs(offset_s) > CLOCK_FAILED_S:
        return failed("clock", apart, _CLOCK_REMEDY)
    if abs(offset_s) > CLOCK_WARNING_S:
        return warning("clock", apart, _CLOCK_REMEDY)
    return ok("clock", f"agrees with IMDS; {kernel}")


class _Timex(ctypes.Structure):
    """The beginning of Linux's struct timex, see adjtimex(2); the rest is room for the kernel."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def kernel_is_synchronised() -> bool | None:
    """Whatever daemon disciplines the clock tells the kernel; reading that needs no rights."""
    if sys.platform != "linux":
        return None
    state = _Timex()
    if ctypes.CDLL(None).adjtimex(ctypes.byref(state)) < 0:
        return None
    return not state.status & _STA_UNSYNC
