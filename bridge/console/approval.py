"""From a click to a command. The page names the event and what it saw of it; the rest is ours.

Topic, token and expectations come from the server's own state. One key is one approval, however
often the button is pressed.
"""

import re
import uuid
from collections import OrderedDict
from datetime import datetime

import msgspec
from msgspec import Struct

from bridge import keys
from bridge.config import Console
from bridge.console.rows import Request, Telling
from bridge.console.state import FleetState
from bridge.core import approval_command
from bridge.errors import SinkRejected, SinkUnavailable
from bridge.feeds import Feed

_KEY = re.compile(r"[A-Za-z0-9-]{8,64}")
_REASON_CHARS_MAX = 1024
_KEYS_MAX = 1_000


class Click(Struct, frozen=True, forbid_unknown_fields=True):
    """What the page sends."""

    event: str  # key of the event
    revision: str  # id of the CloudEvent that the person was looking at
    key: str  # made by the page for each confirmation
    reason: str = ""


class Refused(Exception):
    """The click did not become a command; `status` is for HTTP, the text for the person."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Desk:
    """Where clicks are checked and commands leave."""

    def __init__(self, config: Console, state: FleetState, feed: Feed) -> None:
        self._config = config
        self._state = state
        self._feed = feed
        self._sign = keys.signer(config.key_file)
        self._keys: OrderedDict[str, str] = OrderedDict()  # key: event it was used for

    async def approve(self, body: bytes, *, source: str, by: str, now: datetime) -> None:
        """Returns once the broker has the command; the outcome comes as a message, later."""
        if self._config.read_only:
            raise Refused(403, "This console is read-only.")
        click = _decode(body)
        if self._keys.get(click.key) == click.event:
            return
        telling = self._checked(click, now)
        command_id = str(uuid.uuid4())
        command = approval_command.encode(
            telling.data,
            command_id=command_id,
            source=source,
            key=click.key,
            reason=click.reason,
            now=now,
            valid_s=self._config.approval_valid_s,
        )
        self._keys[click.key] = click.event
        try:
            await self._feed.send(
                telling.data.approval.topic, telling.data.vm.name, self._sign(command)
            )
        except (SinkUnavailable, SinkRejected) as error:
            del self._keys[click.key]
            status = 503 if isinstance(error, SinkUnavailable) else 502
            raise Refused(status, f"The broker did not take the command: {error}") from error
        while len(self._keys) > _KEYS_MAX:
            self._keys.popitem(last=False)
        request = Request(by=by, at=now, key=click.key, command_id=command_id, reason=click.reason)
        self._state.record_request(click.event, request, now)

    def _checked(self, click: Click, now: datetime) -> Telling:
        event = self._state.event(click.event)
        if event is None:
            raise Refused(404, "This event is not known any more.")
        if event.lead.notice.attributes.id != click.revision:
            raise Refused(409, "The event has changed since you looked: look again.")
        obstacle = self._state.approval_obstacle(event, now)
        if obstacle:
            raise Refused(409, f"It cannot be approved from here: {obstacle}.")
        return event.lead


def _decode(body: bytes) -> Click:
    try:
        click = msgspec.json.decode(body, type=Click)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(400, f"The request is not an approval: {error}") from error
    if not _KEY.fullmatch(click.key) or len(click.reason) > _REASON_CHARS_MAX:
        raise Refused(
            400, f"The key is no key, or the reason exceeds {_REASON_CHARS_MAX} characters."
        )
    return click
