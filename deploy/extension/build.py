"""Builds the package for VMs: the zip of the VM extension and of the VM application.

    build.py [--output FOLDER] [PLATFORM…]

A platform is MACHINE-cpXY, such as x86_64-cp312, or `here` for the one of this very Python.

Wheels are fetched at build time, by hash, so that a VM needs no package registry. The zip holds
plain files only: the guest agent unpacks neither links nor modes. Built twice from the same
commit, it is the same zip.
"""

import argparse
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
REPOSITORY = SOURCE.parents[1]
NAME = "Sebridge.ScheduledEventsBridge"
PLATFORMS = tuple(
    f"{machine}-cp3{minor}" for machine in ("x86_64", "aarch64") for minor in (11, 12, 13)
)
# PEP 600: what glibc 2.28 (RHEL 8, Debian 10) and newer can load.
MANYLINUX = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
LOCKED = (REPOSITORY / "requirements.txt", SOURCE / "requirements-pip.txt")
EPOCH = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the package for VMs.")
    parser.add_argument("platforms", nargs="*", default=PLATFORMS, metavar="PLATFORM")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build/extension")
    parser.add_argument("--cache", type=Path, default=REPOSITORY / "build/wheels")
    parser.add_argument("--source", type=Path, default=REPOSITORY, help="where bridge/ is")
    parser.add_argument("--fetch-only", action="store_true", help="fill the cache")
    args = parser.parse_args()
    platforms = [own_platform() if name == "here" else name for name in args.platforms]
    fetched = [fetch(args.cache, target) for target in platforms]
    if not args.fetch_only:
        print(build(args.source, args.output, platforms, fetched))  # noqa: T201 - its answer


def own_platform() -> str:
    return f"{platform.machine()}-cp{sys.version_info.major}{sys.version_info.minor}"


def fetch(cache: Path, target: str) -> Path:
    """Every wheel for one platform, each checked against the hashes in the repository."""
    locked = b"".join(path.read_bytes() for path in LOCKED)
    folder = cache / f"{target}-{hashlib.sha256(locked).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    machine, _, version = target.partition("-cp")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp"]
    command += [f"--python-version={version}"]
    command += [f"--platform={manylinux}_{machine}" for manylinux in MANYLINUX]
    command += [f"--requirement={path}" for path in LOCKED]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        fresh = Path(name, target)
        subprocess.run([*command, f"--dest={fresh}"], check=True)
        fresh.rename(folder)
    return folder


def build(source: Path, output: Path, platforms: list[str], fetched: list[Path]) -> Path:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = folder / "wheels"
        wheels.mkdir()
        for path in (wheel for cached in fetched for wheel in cached.iterdir()):
            shutil.copy(path, wheels)
        own = build_own_wheel(source, wheels)
        version = own.name.split("-")[1]
        (wheels / "requirements.txt").write_text(requirements(own, version), encoding="utf-8")
        (folder / "platforms").write_text("".join(f"{p}\n" for p in platforms), encoding="utf-8")
        shutil.copytree(SOURCE / "bin", folder / "bin")
        shutil.copy(SOURCE / "HandlerManifest.json", folder)
        manifest = (SOURCE / "manifest.xml").read_text(encoding="utf-8")
        manifest = manifest.replace("@VERSION@", f"{version}.0")
        (folder / "manifest.xml").write_text(manifest, encoding="utf-8")
        output.mkdir(parents=True, exist_ok=True)
        return pack(folder, output / f"{NAME}__{version}.0.zip")


def build_own_wheel(source: Path, wheels: Path) -> Path:
    """From a copy: setuptools leaves a build folder in the source, and reuses an old one."""
    with tempfile.TemporaryDirectory() as name:
        for entry in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(source / entry, name)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / "bridge", Path(name, "bridge"), ignore=ignore)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-build-isolation", f"--wheel-dir={wheels}"]
        subprocess.run([*command, name], check=True)
    (own,) = wheels.glob("scheduled_events_bridge-*.whl")
    return repack(own)


def repack(wheel: Path) -> Path:
    """The same wheel without the time it was built at."""
    with tempfile.TemporaryDirectory() as name:
        zipfile.ZipFile(wheel).extractall(name)
        return pack(Path(name), wheel)


def requirements(own: Path, version: str) -> str:
    """What the VM installs: everything locked in the repository, and our own wheel, by hash."""
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    locked = LOCKED[0].read_text(encoding="utf-8")
    assert re.search(r"--hash=sha256:", locked), "requirements.txt must carry hashes"
    return f"{locked}scheduled-events-bridge=={version} --hash=sha256:{digest}\n"


def pack(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            is_packed = path.suffix == ".whl"
            entry.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, path.read_bytes())
    return archive


if __name__ == "__main__":
    main()
