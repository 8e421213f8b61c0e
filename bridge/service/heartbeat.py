"""The heartbeat file in the words of the Azure guest agent, which knows `Ready` and `NotReady`.

The guest agent judges freshness by the file's time: older than ten minutes is `Unresponsive`.
"""

import json
from typing import Literal

_MESSAGE_CHARACTERS_MAX = 1_000

Readiness = Literal["Ready", "NotReady"]


def render(readiness: Readiness, message: str, code: int = 0) -> str:
    content = {"status": readiness, "code": code, "formattedMessage": formatted(message)}
    return json.dumps([{"version": "1.0", "heartbeat": content}])


def formatted(message: str) -> dict[str, str]:
    """A message as heartbeat and status carry it; capital letters in the keys are not read."""
    return {"lang": "en-US", "message": message[:_MESSAGE_CHARACTERS_MAX]}
