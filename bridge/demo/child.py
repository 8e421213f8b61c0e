"""`python -m bridge.demo.child FILE`: `sebridge run` that does not outlive the demo.

The demo ends its agents itself; this is for the day when nobody could: it was killed.
"""

import ctypes
import os
import signal
import sys

from bridge.cli import main

_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[2]))
    sys.exit(main(["run", "--config", sys.argv[1]]))
