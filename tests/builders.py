"""Values for tests: each builder gives a good one, and takes keywords for what the test is about."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from bridge.core.commands import COMMAND_TYPE, Command
from bridge.core.document import Document, ScheduledEvent

NOW = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)
NOT_BEFORE = NOW + timedelta(minutes=15)
EVENT_ID = "602D9444-D2CD-49C7-8624-8643E7171297"
VM_NAME = "web_3"
# What str.isprintable() allows, for names in properties; any text that JSON can carry.
PRINTABLE = st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], include_characters=" ")
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def scheduled_event(**overrides: Any) -> ScheduledEvent:
    """A Reboot of `web_3` that the platform has scheduled a quarter of an hour ahead."""
    fields: dict[str, Any] = {
        "event_id": EVENT_ID,
        "event_type": "Reboot",
        "resource_type": "VirtualMachine",
        "resources": (VM_NAME,),
        "event_status": "Scheduled",
        "not_before": NOT_BEFORE,
        "event_source": "Platform",
        "duration_in_seconds": 60,
    }
    fields |= overrides
    fields.setdefault("raw", {"EventId": fields["event_id"], "EventStatus": fields["event_status"]})
    return ScheduledEvent(**fields)


def document(*scheduled_events: ScheduledEvent, incarnation: int = 7) -> Document:
    return Document(incarnation=incarnation, scheduled_events=scheduled_events)


def azure_entry(event_id: str = EVENT_ID, **fields: Any) -> dict[str, Any]:
    """One entry of IMDS's document, in Azure's own words, far ahead of any clock."""
    return {
        "EventId": event_id,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": [VM_NAME],
        "EventStatus": "Scheduled",
        "NotBefore": "Mon, 19 Sep 2033 18:29:47 GMT",
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
        **fields,
    }


def command(**overrides: Any) -> Command:
    """A command to approve `scheduled_event()`, one minute old."""
    fields: dict[str, Any] = {
        "id": "c-1",
        "source": "/ops/oncall",
        "key": "chg-4711",
        "fingerprint": "f-1",
        "event_id": EVENT_ID,
        "time": NOW - timedelta(minutes=1),
    }
    return Command(**(fields | overrides))


def command_fields(data: Mapping[str, Any] | None = None, **attributes: Any) -> dict[str, Any]:
    """A structured command as a dictionary; `data` is merged into the good one."""
    fields: dict[str, Any] = {
        "specversion": "1.0",
        "id": "c-1",
        "source": "/ops/oncall",
        "type": COMMAND_TYPE,
        "data": {"eventId": EVENT_ID, **(data or {})},
    }
    return fields | attributes


def command_bytes(data: Mapping[str, Any] | None = None, **attributes: Any) -> bytes:
    return msgspec.json.encode(command_fields(data, **attributes))
