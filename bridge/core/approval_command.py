"""The command that approves an event, made from what its leader published.

It always says what it expects to find (type and VMs) and repeats the token, so that an event that
changed after somebody looked at it is not approved by mistake.
"""

from datetime import datetime, timedelta

import msgspec

from bridge.core.cloudevents import JSON_CONTENT_TYPE, rfc3339
from bridge.core.commands import COMMAND_TYPE
from bridge.core.notices import EventNotice


def encode(
    notice: EventNotice,
    *,
    command_id: str,
    source: str,
    key: str,
    reason: str,
    now: datetime,
    valid_s: float,
) -> bytes:
    scheduled_event = notice.event
    data = {
        "eventId": scheduled_event.event_id,
        "vm": notice.vm.name,
        "expect": {
            "eventType": scheduled_event.event_type,
            "resources": scheduled_event.resources,
        },
        "reason": reason,
    }
    if notice.approval.token:
        data["token"] = notice.approval.token
    command = {
        "specversion": "1.0",
        "id": command_id,
        "source": source,
        "type": COMMAND_TYPE,
        "time": rfc3339(now),
        "expirytime": rfc3339(now + timedelta(seconds=valid_s)),
        "idempotencykey": key,
        "datacontenttype": JSON_CONTENT_TYPE,
        "data": data,
    }
    return msgspec.json.encode(command)
