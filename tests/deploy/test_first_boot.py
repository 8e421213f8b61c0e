"""VM application, Custom Script and cloud-init: the commands in the files, really run."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.service.layout import ROOT_VARIABLE, Layout
from bridge.service.process import Process
from bridge.version import VERSION

# Installs of real wheels: seconds on a quiet machine, a minute on a busy one.
pytestmark = pytest.mark.timeout(240)

DEPLOY = Path(__file__).parents[2] / "deploy"
CLOUD_INIT = DEPLOY / "cloud-init/sebridge.yaml"
# Of the modules that cloud-init documents, those that such a file may use.
CLOUD_INIT_KEYS = {"packages", "package_update", "write_files", "runcmd", "bootcmd", "users"}


@pytest.fixture
def config(free_port: int) -> str:
    return f"""
imds.endpoint = "http://127.0.0.1:9"
mqtt.port = 9
http.listen = "127.0.0.1:{free_port}"
"""


def run(vm: Layout, folder: Path, shell: str, script: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, ROOT_VARIABLE: str(vm.root)}
    command = [shell, "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def is_running(vm: Layout) -> bool:
    process = Process.parse(vm.pid_file.read_text()) if vm.pid_file.exists() else None
    return process is not None and process.is_alive


def with_state(vm: Layout, config: str) -> str:
    return f'{config}store.path = "{vm.state}/state.db"\n'


def test_vm_application_installs_updates_and_removes(
    vm: Layout, package: Path, config: str, tmp_path: Path
) -> None:
    """Azure puts both files into a folder, named as the application, and runs the commands there."""
    folder = tmp_path / "sebridge/1.0.0"
    folder.mkdir(parents=True)
    shutil.copy(package, folder / "sebridge")
    (folder / "sebridge-config").write_text(with_state(vm, config))
    install, remove = ((DEPLOY / "vm-application" / n).read_text() for n in ("install", "remove"))

    installed = run(vm, folder, "bash", install)
    assert 0 == installed.returncode, installed.stderr
    assert is_running(vm)

    updated = run(vm, folder, "bash", install)
    assert "the agent runs already" in updated.stdout

    removed = run(vm, folder, "bash", remove)
    assert f"{vm.state} is kept" in removed.stdout
    assert not is_running(vm)
    assert (vm.state / "state.db").exists()


def test_custom_script_installs_and_may_run_again(
    vm: Layout, package: Path, config: str, tmp_path: Path
) -> None:
    """The extension downloads the files into one folder and runs the command there."""
    settings = json.loads((DEPLOY / "custom-script/settings.json").read_text())["protectedSettings"]
    names = [uri.rpartition("/")[2] for uri in settings["fileUris"]]
    assert [f"{package.stem}.zip", "config.toml", "install.sh"] == names
    shutil.copy(package, tmp_path)
    shutil.copy(DEPLOY / "custom-script/install.sh", tmp_path)
    (tmp_path / "config.toml").write_text(with_state(vm, config))

    for expected in ("is started", "runs already"):
        done = run(vm, tmp_path, "sh", settings["commandToExecute"])

        assert 0 == done.returncode, done.stderr
        assert expected in done.stdout


@pytest.fixture(scope="module")
def cloud_config() -> Any:
    text = CLOUD_INIT.read_text()
    assert text.startswith("#cloud-config\n")
    return yaml.safe_load(text)


def test_cloud_init_file_has_known_keys_only(cloud_config: dict[str, Any]) -> None:
    """cloud-init itself passes over an unknown key without a word."""
    assert set(cloud_config) <= CLOUD_INIT_KEYS


@pytest.mark.skipif(shutil.which("cloud-init") is None, reason="cloud-init is not installed")
def test_cloud_init_file_is_valid() -> None:
    """By cloud-init's own schema."""
    command = ["cloud-init", "schema", "--config-file", str(CLOUD_INIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr


def test_cloud_init_commands_install_and_start(
    vm: Layout, package: Path, config: str, tmp_path: Path, cloud_config: dict[str, Any]
) -> None:
    """What runs at the first boot, with a download from the disk instead of the network."""
    ((shell, option, script),) = cloud_config["runcmd"]
    assert package.name in script
    assert ("sh", "-ec") == (shell, option)
    (file,) = cloud_config["write_files"]
    assert Path(file["path"]) == Layout().configuration
    vm.settings.mkdir(parents=True)
    vm.configuration.write_text(with_state(vm, config))
    digest = subprocess.check_output(["sha256sum", str(package)], text=True).split()[0]
    script = script.replace(
        "https://ACCOUNT.blob.core.windows.net/sebridge", f"file://{package.parent}"
    )

    refused = run(vm, tmp_path, "sh", f"set -e; {script}")
    assert 0 != refused.returncode
    assert not is_running(vm)

    done = run(vm, tmp_path, "sh", f"set -e; {script.replace('CHECKSUM', digest)}")
    assert 0 == done.returncode, done.stderr
    assert is_running(vm)


@pytest.mark.parametrize(
    "path", ["cloud-init/sebridge.yaml", "custom-script/settings.json"], ids=str
)
def test_files_name_the_version_of_this_source(path: str) -> None:
    """A copied line must fetch what `make extension` builds."""
    assert f"__{VERSION}.0.zip" in (DEPLOY / path).read_text()
