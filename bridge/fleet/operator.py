"""The other side of the broker: sees what every agent says, and approves every event.

Counts by CloudEvent id, so that what is lost or published under two ids shows.
"""

import asyncio
import time
import uuid
from collections import Counter
from datetime import UTC, datetime

import msgspec
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from bridge.core.cloudevents import Received
from bridge.transports.mqtt.pump import Pump, hang_up

_KEEPALIVE_S = 60
_event = msgspec.json.Decoder(Received)


class Tally:
    """What came for one round, by EventId, and when the last of it did."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix  # of the EventIds that count; answers to older ones still arrive
        self.events: dict[str, set[str]] = {}  # EventId to ids of its CloudEvents
        self.outcomes: dict[str, list[str]] = {}  # EventId to types of its outcomes
        self.last_event_at = 0.0
        self.last_outcome_at = 0.0


class Operator:
    def __init__(self, host: str, port: int, *, approve: bool = True) -> None:
        self._host, self._port = host, port
        self._approve = approve
        self._client_id = f"sebridge-operator-{uuid.uuid4().hex[:8]}"
        self.messages = 0
        self.online: dict[str, float] = {}  # VM to when it last said so
        self.tally = Tally("")
        self._client: Client | None = None

    async def start(self) -> None:
        # The same session after a broker's restart: agents may be back before the operator is.
        client = Client(CallbackAPIVersion.VERSION2, client_id=self._client_id, clean_session=False)
        subscribed = asyncio.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_message = lambda _client, _data, message: self._take(message)
        client.max_queued_messages_set(0)
        client.max_inflight_messages_set(1000)
        await asyncio.to_thread(client.connect, self._host, self._port, _KEEPALIVE_S)
        Pump(client, _KEEPALIVE_S, on_failure=lambda _: None).start()
        client.subscribe("sebridge/v1/+/+/+", qos=1)
        self._client = client
        await asyncio.wait_for(subscribed.wait(), 30)

    def stop(self) -> None:
        if self._client is not None:
            hang_up(self._client)
            self._client = None

    def begin(self, prefix: str) -> Tally:
        self.tally = Tally(prefix)
        return self.tally

    def _take(self, message: MQTTMessage) -> None:
        self.messages += 1
        root, _, channel = message.topic.rpartition("/")
        if not message.payload or channel not in {"events", "outcomes", "status"}:
            return
        event = _event.decode(message.payload)
        now = time.monotonic()
        if channel == "status":
            self._note_status(event, now)
        elif not event.subject.startswith(self.tally.prefix):
            return
        elif channel == "outcomes":
            self.tally.outcomes.setdefault(event.subject, []).append(event.type)
            self.tally.last_outcome_at = now
        elif event.type == "io.sebridge.event.scheduled.v1":
            known = self.tally.events.setdefault(event.subject, set())
            known.add(event.id)
            self.tally.last_event_at = now
            if self._approve and len(known) == 1:
                self._send_approval(root, event.subject)

    def _note_status(self, event: Received, now: float) -> None:
        if b'"status":"online"' in bytes(event.data):
            self.online[event.partitionkey] = now
        else:
            self.online.pop(event.partitionkey, None)

    def _send_approval(self, root: str, event_id: str) -> None:
        assert self._client is not None
        command = {
            "specversion": "1.0",
            "id": uuid.uuid4().hex,
            "source": "/fleet/operator",
            "type": "io.sebridge.approve.v1",
            "time": datetime.now(UTC).isoformat(),
            "data": {"eventId": event_id},
        }
        self._client.publish(f"{root}/commands", msgspec.json.encode(command), qos=1)


def approvals(tally: Tally) -> Counter[str]:
    """How many events have which first outcome."""
    return Counter(types[0] for types in tally.outcomes.values())
