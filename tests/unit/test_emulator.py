"""The emulator's files agree with the options: the same hubs, and one script that says why it skips."""

import json
import os
import subprocess
from pathlib import Path

import yaml

from bridge.config import EventHubs

FOLDER = Path(__file__).parents[2] / "deploy" / "emulator"


def test_config_makes_the_default_hubs() -> None:
    """An agent with default names finds its hubs in the emulator."""
    config = json.loads((FOLDER / "Config.json").read_text())
    (namespace,) = config["UserConfig"]["NamespaceConfig"]
    hubs = {entity["Name"]: int(entity["PartitionCount"]) for entity in namespace["Entities"]}

    assert hubs == {EventHubs().events_hub: 2, EventHubs().commands_hub: 2}


def test_compose_file_mounts_the_config_and_listens_locally() -> None:
    """The emulator knows one public key, so it must not be reachable from elsewhere."""
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    emulator = services["emulator"]

    assert all(port.startswith("127.0.0.1:") for port in emulator["ports"])
    assert emulator["volumes"][0].startswith("./Config.json:")
    assert set(emulator["depends_on"]) <= set(services)


def test_script_without_an_engine_skips_with_the_reason(tmp_path: Path) -> None:
    """`make test-emulator` on a machine without containers is no failure."""
    for tool in ("bash", "dirname", "env"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")

    done = subprocess.run(
        [FOLDER / "test"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("skipped: no container engine")
