"""What the guest agent reads from us: the status of a sequence number, and the heartbeat.

Both are arrays of one object, written whole or not at all. The agent takes any status but these
four lower-case words for an error, and a status file that is missing for work that goes on.
"""

import json
from datetime import UTC, datetime
from typing import Literal

from bridge.extension.environment import HandlerEnvironment
from bridge.service import files, heartbeat
from bridge.service.layout import Layout

Status = Literal["transitioning", "success", "warning", "error"]


def write_status(
    environment: HandlerEnvironment,
    sequence: int,
    operation: str,
    status: Status,
    message: str,
    *,
    code: int = 0,
) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    content = {
        "version": "1.0",
        "timestampUTC": now,
        "status": {
            "name": "scheduled-events-bridge",
            "operation": operation,
            "configurationAppliedTime": now,
            "status": status,
            "code": code,
            "formattedMessage": heartbeat.formatted(message),
        },
    }
    path = environment.status / f"{sequence}.status"
    files.write(path, json.dumps([content]), 0o600)


def say_not_ready(environment: HandlerEnvironment, message: str, code: int = 0) -> None:
    """A file of its own, so that an agent which still runs cannot write `Ready` over it."""
    files.write(environment.heartbeat, heartbeat.render("NotReady", message, code), 0o600)


def show_agents_heartbeat(environment: HandlerEnvironment, layout: Layout) -> None:
    """From now on the guest agent reads what the running agent writes.

    A link, because the agent's user can write nothing below the guest agent's own folder.
    """
    files.link(environment.heartbeat, layout.heartbeat)
