"""The image and the compose file: linted, checked, and really built where buildah is at hand."""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge import configfile
from bridge.simulator import command as simulator

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "Dockerfile"
COMPOSE = REPOSITORY / "deploy/compose/compose.yaml"
# A small Debian with Python; stands in for the base image of the registry.
BASE = REPOSITORY / "build/container/base.tar"


def test_dockerfile_is_clean() -> None:
    """hadolint has nothing to say."""
    command = [str(Path(sys.executable).with_name("hadolint")), str(DOCKERFILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stdout + done.stderr)


def test_image_is_small_safe_and_watched() -> None:
    """Base as an argument, nothing of the build in it, no root, a health check."""
    text = DOCKERFILE.read_text()
    final = text.rpartition("\nFROM ")[2]

    assert re.match(r"(#.*\n)*ARG BASE=", text)
    assert 2 == text.count("\nFROM ${BASE}")
    assert "USER 65532:65532" in final
    assert "HEALTHCHECK" in final
    assert "pip" not in final


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text())["services"]


def test_compose_starts_what_the_program_understands(compose: Any) -> None:
    """Arguments, configuration and host names in the file are those of this version."""
    parser = argparse.ArgumentParser()
    simulator.add_arguments(parser)
    _, *arguments = compose["simulator"]["command"]
    parser.parse_args(arguments)
    environment = compose["agent"]["environment"]
    config = configfile.load(str(COMPOSE.with_name("agent.toml")), environment)

    assert config.mqtt.host in compose
    assert config.imds.endpoint.startswith("http://simulator:8080/vm/")
    assert config.http.address()[1] == 9464


def test_compose_needs_no_writable_root(compose: Any) -> None:
    """The same limits as in a cluster; the state is a volume."""
    for name in ("agent", "simulator"):
        assert compose[name]["read_only"] is True
        assert ["ALL"] == compose[name]["cap_drop"]
    assert "state:/var/lib/sebridge" in compose["agent"]["volumes"]
    for service in compose.values():
        files = [v.split(":")[0] for v in service.get("volumes", []) if v.startswith("./")]
        assert all((COMPOSE.parent / file).is_file() for file in files)
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


class Buildah:
    """A builder with a store of its own, without a daemon."""

    def __init__(self, folder: Path) -> None:
        self._options = ["--root", str(folder / "root"), "--runroot", str(folder / "run")]
        self._environment = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, command: str, *arguments: str) -> str:
        done = subprocess.run(
            ["buildah", *self._options, command, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    tool = Buildah(tmp_path)
    yield tool
    tool("rm", "--all")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    script = REPOSITORY / "deploy/extension/build.py"
    target = f"{platform.machine()}-cp311"  # the Python of bookworm
    subprocess.run([sys.executable, str(script), "--fetch-only", target], check=True)
    for cached in (REPOSITORY / "build/wheels").glob(f"{target}-*"):
        shutil.copytree(cached, folder, dirs_exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    version = re.search(
        r"^setuptools==(\S+)", (REPOSITORY / "requirements-dev.txt").read_text(), re.MULTILINE
    )
    assert version
    subprocess.run([*pip, f"setuptools=={version[1]}"], check=True)
    return folder


needs_builder = pytest.mark.skipif(
    not (shutil.which("buildah") and BASE.exists() and os.geteuid() == 0),
    reason="needs root and what `make base-images` makes",
)


@needs_builder
@pytest.mark.timeout(300)
def test_image_builds_and_runs_without_root(
    buildah: Buildah, wheels: Path, free_port: int, tmp_path: Path
) -> None:
    """The Dockerfile as it stands makes an image whose agent starts, and whose check finds it."""
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(BASE), "/")
    buildah("run", container, "--", "ln", "-sf", "python3", "/usr/bin/python")
    buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
    buildah("commit", "--quiet", container, "localhost/base:1")
    buildah(
        "build", "--quiet", "--pull-never", "--format", "docker", "--tag", "sebridge",
        "--volume", f"{wheels}:/wheels:ro", "--build-arg", "BASE=localhost/base:1",
        "--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels",
        str(REPOSITORY),
    )  # fmt: skip
    agent = buildah("from", "--pull-never", "localhost/sebridge")
    listen = f"SEBRIDGE_HTTP__LISTEN=127.0.0.1:{free_port}"
    buildah("config", "--env", listen, "--env", "SEBRIDGE_IMDS__ENDPOINT=http://127.0.0.1:9", agent)
    check = yaml.safe_load(re.search(r"HEALTHCHECK .*? CMD (\[.*\])", DOCKERFILE.read_text())[1])  # type: ignore[index]
    config = tmp_path / "config.toml"
    config.write_text("mqtt.port = 9\n")
    config.chmod(0o644)
    buildah("copy", agent, str(config), "/etc/sebridge/config.toml")

    assert "65532" == buildah("run", agent, "--", "python", "-c", "import os; print(os.getuid())")
    script = (
        "import subprocess, sys, time\n"
        "agent = subprocess.Popen(['sebridge', 'run', '--config', '/etc/sebridge/config.toml'])\n"
        f"check = {check!r}\n"
        "deadline = time.monotonic() + 30\n"
        "while subprocess.run(check, stderr=subprocess.DEVNULL).returncode:\n"
        "    assert agent.poll() is None and time.monotonic() < deadline\n"
        "    time.sleep(0.2)\n"
        "agent.terminate()\n"
        "sys.exit(agent.wait())\n"
    )
    buildah("run", agent, "--", "python", "-c", script)
