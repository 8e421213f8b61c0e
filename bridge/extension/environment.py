"""What the guest agent tells a handler: its folders, and which settings are meant."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from bridge.errors import ServiceError

_SETTINGS_NAME = re.compile(r"(\d+)\.settings")


@dataclasses.dataclass(frozen=True)
class HandlerEnvironment:
    root: Path
    configuration: Path
    status: Path
    heartbeat: Path
    log: Path

    @property
    def agent_folder(self) -> Path:
        """Where the guest agent keeps certificates: two levels above `config/`."""
        return self.configuration.parent.parent


def read(root: Path) -> HandlerEnvironment:
    path = root / "HandlerEnvironment.json"
    try:
        folders = json.loads(path.read_text(encoding="utf-8-sig"))[0]["handlerEnvironment"]
        return HandlerEnvironment(
            root=root,
            configuration=Path(folders["configFolder"]),
            status=Path(folders["statusFolder"]),
            heartbeat=Path(folders["heartbeatFile"]),
            log=Path(folders["logFolder"]),
        )
    except OSError as error:
        raise ServiceError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise ServiceError(f"{path} is not what the guest agent writes: {error!r}") from error


def sequence_number(
    environment: HandlerEnvironment, variables: Mapping[str, str] | None = None
) -> int:
    """The variable decides; without it the newest file, since numbers need not increase."""
    text = (os.environ if variables is None else variables).get("ConfigSequenceNumber", "")
    if text.isdecimal():
        return int(text)
    found = [
        (path.stat().st_mtime_ns, int(match[1]))
        for path in environment.configuration.glob("*.settings")
        if (match := _SETTINGS_NAME.fullmatch(path.name))
    ]
    return max(found)[1] if found else 0
