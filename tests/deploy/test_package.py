"""The zip itself: what the guest agent and Azure's registration expect to find in it."""

import json
import platform
import re
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bridge.version import VERSION
from tests.deploy.conftest import REPOSITORY, Build
from tests.support.guest_agent import NAME

# Installs of real wheels: seconds on a quiet machine, a minute on a busy one.
pytestmark = pytest.mark.timeout(240)

COMMANDS = ("install", "enable", "disable", "update", "uninstall")
BOOLEANS = (
    "reportHeartbeat",
    "rebootAfterInstall",
    "continueOnUpdateFailure",
    "supportsMultipleExtensions",
)


@pytest.fixture
def zipped(package: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(package)


@pytest.fixture
def manifest(zipped: zipfile.ZipFile) -> dict[str, Any]:
    loaded: list[dict[str, Any]] = json.loads(zipped.read("HandlerManifest.json"))
    (entry,) = loaded
    return entry


def test_handler_manifest_has_what_the_agent_reads(
    zipped: zipfile.ZipFile, manifest: dict[str, Any]
) -> None:
    """All five commands, each a file in the zip; booleans that are no strings."""
    handler = manifest["handlerManifest"]

    for operation in COMMANDS:
        file, *arguments = handler[f"{operation}Command"].split()
        assert file in zipped.namelist()
        assert ["extension", operation] == arguments
    assert {bool} == {type(handler[name]) for name in BOOLEANS}
    assert "UpdateWithInstall" == handler["updateMode"]


def test_version_has_one_source(zipped: zipfile.ZipFile, package: Path) -> None:
    """File name, registration and wheel all say what bridge/version.py says."""
    namespace = {"m": "http://schemas.microsoft.com/windowsazure"}
    image = ET.fromstring(zipped.read("manifest.xml"))

    assert f"{NAME}__{VERSION}.0.zip" == package.name
    assert f"{VERSION}.0" == image.findtext("m:Version", namespaces=namespace)
    assert f"wheels/scheduled_events_bridge-{VERSION}-py3-none-any.whl" in zipped.namelist()
    named = (
        image.findtext(f"m:{tag}", namespaces=namespace) for tag in ("ProviderNameSpace", "Type")
    )
    assert NAME == ".".join(str(text) for text in named)


def test_name_can_be_taken_apart_by_the_agent() -> None:
    """It splits at the last hyphen, and registration forbids underscores."""
    assert re.fullmatch(r"[A-Za-z]+\.[A-Za-z]+", NAME)


def test_zip_holds_plain_files_only(zipped: zipfile.ZipFile) -> None:
    """A link would arrive as a text file, so there is none."""
    kinds = {stat.S_IFMT(entry.external_attr >> 16) for entry in zipped.infolist()}

    assert kinds <= {0, stat.S_IFREG}
    assert all(not entry.filename.startswith(("/", "..")) for entry in zipped.infolist())


def test_zip_has_wheels_for_its_platforms_and_no_registry(zipped: zipfile.ZipFile) -> None:
    """Everything that is compiled is there for the platform; nothing says where to download."""
    names = zipped.namelist()
    expected = f"{platform.machine()}-cp{sys.version_info[0]}{sys.version_info[1]}\n"

    assert expected == zipped.read("platforms").decode()
    for compiled in ("msgspec", "uvloop", "aiohttp", "cryptography"):
        (wheel,) = (name for name in names if name.startswith(f"wheels/{compiled}-"))
        assert platform.machine() in wheel
    assert b"://" not in zipped.read("wheels/requirements.txt")


def test_same_source_makes_the_same_zip(build: Build, package: Path, tmp_path: Path) -> None:
    """A package can be checked by building it again."""
    again = build(REPOSITORY, tmp_path)

    assert package.read_bytes() == again.read_bytes()
