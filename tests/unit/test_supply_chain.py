"""What is installed: few things, each pinned by its hash, each in the bill of materials."""

import json
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = ("requirements.txt", "requirements-dev.txt")

# The part of the CycloneDX 1.6 schema that a bill like ours can break.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "bomFormat", "specVersion", "serialNumber", "version", "metadata", "components",
        "dependencies",
    ],
    "properties": {
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {
            "pattern": "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
        },
        "version": {"type": "integer", "minimum": 1},
        "metadata": {
            "type": "object",
            "required": ["component"],
            "additionalProperties": False,
            "properties": {"component": {"$ref": "#/$defs/component"}},
        },
        "components": {
            "type": "array",
            "uniqueItems": True,
            "minItems": 1,
            "items": {"$ref": "#/$defs/component"},
        },
        "dependencies": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ref"],
                "additionalProperties": False,
                "properties": {
                    "ref": {"type": "string", "minLength": 1},
                    "dependsOn": {"type": "array", "uniqueItems": True, "minItems": 1},
                },
            },
        },
    },
    "$defs": {
        "component": {
            "type": "object",
            "required": ["type", "name", "version", "bom-ref"],
            "additionalProperties": False,
            "properties": {
                "type": {"enum": ["application", "library"]},
                "name": {"type": "string", "minLength": 1},
                "version": {"type": "string", "minLength": 1},
                "bom-ref": {"type": "string", "minLength": 1},
                "purl": {"pattern": "^pkg:pypi/[a-z0-9-]+@[^@ ]+$"},
                "licenses": {"type": "array", "minItems": 1},
                "hashes": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["alg", "content"],
                        "additionalProperties": False,
                        "properties": {
                            "alg": {"const": "SHA-256"},
                            "content": {"pattern": "^[0-9a-f]{64}$"},
                        },
                    },
                },
                "properties": {"type": "array", "minItems": 1},
            },
        }
    },
}  # fmt: skip


def make_bill(path: Path) -> bytes:
    script = ROOT / "scripts" / "sbom.py"
    subprocess.run([sys.executable, str(script), str(path)], check=True)
    return path.read_bytes()


def test_runtime_dependencies_are_six_at_most() -> None:
    """Every one of them could be the next that is poisoned."""
    assert len(PROJECT["dependencies"]) <= 6


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_everything_by_hash_and_names_no_index(name: str) -> None:
    """pip --require-hashes takes these files, and they say nothing about where from."""
    lines = (ROOT / name).read_text().splitlines()
    pins = [line for line in lines if line and not line[0].isspace()]

    assert pins
    for pin in pins:
        assert re.match(r"^[a-z0-9][a-z0-9._-]*==[^\s;]+( ; .+)? \\$", pin), pin
    rest = [line.strip() for line in lines if line and line[0].isspace()]
    assert all(re.match(r"^--hash=sha256:[0-9a-f]{64}( \\)?$", line) for line in rest)
    followed = [after for before, after in pairwise(lines) if before in pins]
    assert all(line.strip().startswith("--hash=") for line in followed)


def test_bill_is_valid_complete_and_always_the_same(tmp_path: Path) -> None:
    """Two runs give the same bytes, and every pinned distribution is in them."""
    raw = make_bill(tmp_path / "a" / "sbom.json")
    bill = json.loads(raw)
    jsonschema.validate(bill, SCHEMA)
    pinned = re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", (ROOT / LOCKS[0]).read_text(), re.MULTILINE)

    assert raw == make_bill(tmp_path / "b.json")
    found = [(component["name"], component["version"]) for component in bill["components"]]
    assert sorted(pinned) == sorted(found)
    references = {component["bom-ref"] for component in bill["components"]}
    (root,) = bill["dependencies"]
    assert root["ref"] == bill["metadata"]["component"]["bom-ref"]
    assert set(root["dependsOn"]) <= references


def test_bill_names_every_direct_dependency(tmp_path: Path) -> None:
    """What pyproject.toml asks for is what the root depends on."""
    bill = json.loads(make_bill(tmp_path / "sbom.json"))
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["eventhubs"]]
    names = {re.split(r"[>=<;\[ ]", entry)[0] for entry in wanted}

    (root,) = bill["dependencies"]
    assert {ref.split("/")[1].split("@")[0] for ref in root["dependsOn"]} == names
