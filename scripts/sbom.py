"""A CycloneDX 1.6 bill of materials from requirements.txt and pyproject.toml.

Usage: sbom.py OUTPUT. No clock and no chance: the same files give the same bytes.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?:\s*;\s*(?P<marker>[^\\]+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "sebridge.sbom")


def main() -> int:
    output = Path(sys.argv[1])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(bill(), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def bill() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    application = {
        "type": "application",
        "name": project["name"],
        "version": _version(),
        "bom-ref": project["name"],
        "licenses": [{"license": {"id": project["license"]}}],
    }
    components = [_component(*entry) for entry in pins(requirements)]
    direct = _direct(project)
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": application},
        "components": components,
        "dependencies": [
            {
                "ref": application["bom-ref"],
                "dependsOn": [c["bom-ref"] for c in components if c["name"] in direct],
            }
        ],
    }
    digest = json.dumps(content, sort_keys=True)
    return {**content, "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}"}


def pins(requirements: str) -> list[tuple[str, str, str, list[str]]]:
    """Name, version, marker and hashes of every pinned distribution."""
    found = []
    for block in re.split(r"\n(?=\S)", requirements.strip()):
        match = _PIN.match(block)
        if match is None:
            sys.exit(f"not a pinned requirement: {block.splitlines()[0]!r}")
        marker = (match["marker"] or "").strip()
        found.append((normal(match["name"]), match["version"], marker, _HASH.findall(block)))
    return sorted(found)


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _component(name: str, version: str, marker: str, hashes: list[str]) -> dict[str, Any]:
    address = f"pkg:pypi/{name}@{version}"
    component: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": address,
        "bom-ref": address,
        # One for each file of the release; an installation must match one of them.
        "hashes": [{"alg": "SHA-256", "content": each} for each in sorted(hashes)],
    }
    if marker:
        component["properties"] = [{"name": "python:marker", "value": marker}]
    return component


def _direct(project: dict[str, Any]) -> set[str]:
    wanted = [*project["dependencies"], *project["optional-dependencies"]["eventhubs"]]
    return {normal(re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0]) for entry in wanted}


def _version() -> str:
    text = (ROOT / "bridge" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^VERSION = "([^"]+)"', text, re.MULTILINE)
    return match[1] if match else sys.exit("bridge/version.py names no VERSION")


if __name__ == "__main__":
    sys.exit(main())
