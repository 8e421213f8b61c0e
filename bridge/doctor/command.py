"""The command: prints each finding as it is known, and turns the worst into an exit code."""

import msgspec

from bridge import configfile
from bridge.doctor import examine
from bridge.doctor.finding import Finding, failed, line
from bridge.errors import ConfigError

FINE, FAILED, BAD_CONFIGURATION = 0, 1, 2


async def run(path: str, *, as_json: bool) -> int:
    try:
        config = configfile.load(path)
    except ConfigError as error:
        remedy = "correct it; config/bridge.example.toml explains every key"
        _print(failed("configuration", str(error), remedy), as_json=as_json)
        return BAD_CONFIGURATION
    code = FINE
    async for finding in examine(config, path):
        _print(finding, as_json=as_json)
        if finding.result == "failed":
            code = FAILED
    return code


def _print(finding: Finding, *, as_json: bool) -> None:
    print(msgspec.json.encode(finding).decode() if as_json else line(finding), flush=True)
