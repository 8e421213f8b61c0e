"""The real agent; on SIGUSR1 it writes what it holds: tasks, threads, Python objects.

Usage: python -m tests.soak.child CONFIG REPORT
"""

import asyncio
import gc
import signal
import sys
import threading
from pathlib import Path

import msgspec

from bridge import app, configfile, log


async def main() -> None:
    config = configfile.load(sys.argv[1])
    log.configure(config.log)

    def report() -> None:
        gc.collect()
        found = {
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "objects": len(gc.get_objects()),
        }
        target = Path(sys.argv[2])
        target.with_suffix(".new").write_bytes(msgspec.json.encode(found))
        target.with_suffix(".new").replace(target)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report)
    await app.run(config)


if __name__ == "__main__":
    asyncio.run(main())
