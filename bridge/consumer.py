"""The other end of the broker, for operators: `watch` and `approve`."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.config import Mqtt
from bridge.configfile import read_secret
from bridge.core import topics
from bridge.core.cloudevents import rfc3339
from bridge.core.commands import COMMAND_TYPE
from bridge.errors import BridgeError, ConfigError

APPROVED, REJECTED, NO_OUTCOME = 0, 3, 4
# How long retained messages may take to arrive after a subscription.
_FIND_S = 5.0


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    event_id: str
    vm: str = ""
    key: str = ""
    reason: str = ""
    timeout_s: float = 60.0


class _Session:
    """A clean MQTT 3.1.1 session: structured JSON needs no more, and every broker speaks it."""

    def __init__(self, config: Mqtt) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[str] = self._loop.create_future()
        self.messages: asyncio.Queue[MQTTMessage] = asyncio.Queue()
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"sebridge-cli-{uuid.uuid4().hex[:12]}",
            protocol=MQTTProtocolVersion.MQTTv311,
        )
        self.client.on_connect = lambda _c, _u, _f, code, _p: self._hop(
            self._set_connected, str(code) if code.is_failure else ""
        )
        self.client.on_message = lambda _c, _u, message: self._hop(
            self.messages.put_nowait, message
        )

    def _hop(self, function: Any, argument: Any) -> None:
        self._loop.call_soon_threadsafe(function, argument)

    def _set_connected(self, problem: str) -> None:
        if not self._connected.done():
            self._connected.set_result(problem)

    async def open(self) -> None:
        config = self._config
        if config.auth == "entra-jwt":
            # This session is MQTT 3.1.1, and the token is the VM's, not the operator's.
            raise ConfigError(
                "mqtt.auth entra-jwt is for the agent: give this command a "
                "configuration with a certificate or a password of your own"
            )
        if config.username:
            password = read_secret(config.password_file, "mqtt.password_file")
            self.client.username_pw_set(config.username, password)
        if config.tls.enabled:
            tls = config.tls
            self.client.tls_set(tls.ca_file or None, tls.cert_file or None, tls.key_file or None)
        try:
            await asyncio.to_thread(self.client.connect, config.host, config.port, 30)
            self.client.loop_start()
            async with asyncio.timeout(config.connect_timeout_s):
                problem = await self._connected
        except (OSError, TimeoutError) as error:
            raise BridgeError(
                f"mqtt {config.host}:{config.port}: {error or 'no answer'}"
            ) from error
        if problem:
            raise BridgeError(f"mqtt {config.host}:{config.port} refused the login: {problem}")

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@asynccontextmanager
async def _session(config: Mqtt) -> AsyncIterator[_Session]:
    session = _Session(config)
    try:
        await session.open()
        yield session
    finally:
        session.close()


async def watch(config: Mqtt, *, as_json: bool) -> None:
    """Print events, outcomes and status changes of every VM, until interrupted."""
    root = topics.root_filter(config.topic_root)
    async with _session(config) as session:
        session.client.subscribe(
            [(f"{root}/{name}", 1) for name in ("events", "outcomes", "status")]
        )
        while True:
            message = await session.messages.get()
            line = message.payload.decode(errors="replace") if as_json else _line(message.payload)
            print(line, flush=True)


async def approve(config: Mqtt, request: ApprovalRequest) -> int:
    """Find the event, send the command to the VM that may approve it, wait for the outcome."""
    root = topics.root_filter(config.topic_root, vm_name=request.vm)
    async with _session(config) as session:
        session.client.subscribe([(topics.pending(root, request.event_id), 1)])
        pending = await _find(session, request)
        topic = pending["approval"]["topic"]
        session.client.subscribe([(topic.removesuffix("/commands") + "/outcomes", 1)])
        command_id = str(uuid.uuid4())
        session.client.publish(topic, _command(request, pending, command_id), qos=1)
        return await _outcome(session, command_id, request.timeout_s)


async def _find(session: _Session, request: ApprovalRequest) -> dict[str, Any]:
    """The retained message of the event, from its leader if several VMs tell of it."""
    found: dict[str, Any] | None = None
    try:
        async with asyncio.timeout(_FIND_S):
            while found is None or not (found["leader"] or request.vm):
                payload = (await session.messages.get()).payload
                if payload:
                    found = msgspec.json.decode(payload)["data"]
    except TimeoutError:
        if found is None:
            where = f" for {request.vm}" if request.vm else ""
            message = f"no pending event {request.event_id}{where}: see `sebridge watch`"
            raise BridgeError(message) from None
    return found


def _command(request: ApprovalRequest, pending: dict[str, Any], command_id: str) -> bytes:
    now = datetime.now(UTC)
    scheduled_event = pending["event"]
    data = {
        "eventId": scheduled_event["EventId"],
        "vm": pending["vm"]["name"],
        "expect": {
            "eventType": scheduled_event.get("EventType", ""),
            "resources": scheduled_event.get("Resources", []),
        },
        "token": pending["approval"]["token"],
        "reason": request.reason,
    }
    command = {
        "specversion": "1.0",
        "id": command_id,
        "source": "/sebridge/cli",
        "type": COMMAND_TYPE,
        "time": rfc3339(now),
        "expirytime": rfc3339(now + timedelta(seconds=request.timeout_s)),
        "idempotencykey": request.key or command_id,
        "datacontenttype": "application/json",
        "data": data,
    }
    return msgspec.json.encode(command)


async def _outcome(session: _Session, command_id: str, timeout_s: float) -> int:
    """Approved and confirmed are fine; a doubt may still be resolved until the time is up."""
    try:
        # The agent refuses at the command's expiry; its answer needs a moment to arrive.
        async with asyncio.timeout(timeout_s + 2.0):
            while True:
                payload = (await session.messages.get()).payload
                outcome = msgspec.json.decode(payload) if payload else {}
                if outcome.get("causationid") != command_id:
                    continue
                print(_line(payload), flush=True)
                status = outcome["data"]["status"]
                if status != "in-doubt":
                    return REJECTED if status == "rejected" else APPROVED
    except TimeoutError:
        print(f"no outcome within {timeout_s:g} s", file=sys.stderr)
        return NO_OUTCOME


def _line(payload: bytes | bytearray) -> str:
    """One message in one line; what cannot be read is shown as it is."""
    try:
        event = msgspec.json.decode(payload)
        data = event["data"]
        kind = event["type"].removeprefix("io.sebridge.").removesuffix(".v1")
        who = event.get("partitionkey", "")
        if kind.startswith("event."):
            scheduled_event = data["event"]
            what = f"{scheduled_event.get('EventType', ''):<9} {scheduled_event['EventId']}"
            what += f"  not before {data['notBefore']}" if data.get("notBefore") else ""
        elif kind.startswith("approval."):
            words = (data.get("reason"), data.get("detail"), data.get("requestedBy"))
            what = f"{data.get('eventId', '')}  " + "  ".join(word for word in words if word)
        elif kind == "agent.probe":
            what = "a check by sebridge doctor"
        else:
            what = str(data["status"])
        text = f"{event['time']}  {who:<16} {kind:<20} {what}"
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        text = payload.decode(errors="replace")
    return text if text.isprintable() else ascii(text)[1:-1]
