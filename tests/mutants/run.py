"""`make test-mutants`: break the package in every listed way; the named test must fail each time.

Prints one line a mutant; exits 1 if one survives, or if a test fails on the unbroken package.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, apply, copy_tree

SECONDS_MAX = 180


def run_test(killer: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a folder of its own, with the package that lies there."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", killer]
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder),
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def attack(fault: Mutant) -> str:
    """'' if the named test failed, as it must."""
    with tempfile.TemporaryDirectory() as directory:
        apply(fault, copy_tree(Path(directory)))
        try:
            done = run_test(fault.killer, Path(directory))
        except subprocess.TimeoutExpired:
            return f"no verdict within {SECONDS_MAX} s"
        if done.returncode == 1:
            return ""
        why = "survived" if done.returncode == 0 else f"pytest says {done.returncode}"
        return f"{why}\n{done.stdout[-600:]}"


def unbroken(killers: set[str]) -> str:
    """Every killer passes without a fault: a test that always fails proves nothing."""
    with tempfile.TemporaryDirectory() as directory:
        copy_tree(Path(directory))
        done = run_test_all(sorted(killers), Path(directory))
        return "" if done.returncode == 0 else done.stdout[-2000:]


def run_test_all(killers: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *killers]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    began = time.monotonic()
    chosen = [m for m in MUTANTS if all(word in m.name for word in sys.argv[1:])]
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        baseline = pool.submit(unbroken, {m.killer for m in chosen})
        for fault, problem in zip(chosen, pool.map(attack, chosen), strict=True):
            survivors += bool(problem)
            print(f"{'SURVIVED' if problem else 'killed':9} {fault.name}  [{fault.killer}]")
            if problem:
                print(problem)
        if broken := baseline.result():
            print(f"a named test fails without any fault:\n{broken}")
            return 1
    seconds = time.monotonic() - began
    print(f"{len(chosen) - survivors} of {len(chosen)} seeded faults found in {seconds:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
