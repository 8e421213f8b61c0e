"""May the agent use its topics? Tried with probes that do the least harm where somebody listens.

Rights belong to topics, so the probes go to the agent's own. They are of a type that no consumer
handles, are never retained, and MQTT 5 brokers drop them after a second; the agent's retained
status stays. On a pending topic an empty retained message clears what was never there.
"""

import uuid
from collections.abc import AsyncGenerator
from datetime import datetime

from bridge.config import Mqtt
from bridge.core import cloudevents, topics
from bridge.core.cloudevents import CloudEvent
from bridge.doctor.finding import Finding, failed, ok, warning
from bridge.doctor.session import Lost, Session
from bridge.imds import Identity
from bridge.mqtt_client import FAILURE_MIN
from bridge.version import VERSION

PROBE_TYPE = "io.sebridge.agent.probe.v1"
PROBE_PENDING = "sebridge-doctor"  # no EventId looks like this

_REMEDIES = {
    0x97: "raise the broker's quota, or try again when it is less busy",
    0x99: "let the broker accept JSON payloads there",
}


async def check_topics(
    config: Mqtt,
    session: Session,
    *,
    identity: Identity | None,
    now: datetime,
    take_commands: bool,
) -> AsyncGenerator[Finding, None]:
    """One after the other, until the broker hangs up: then nobody knows about the rest."""
    if identity is None:
        remedy = "repair the imds lines first: the topics carry the VM's name"
        yield warning("topics", "not checked: it is not known which VM this is", remedy)
        return
    try:
        root = topics.fill_root(
            config.topic_root, resource_group=identity.resource_group, vm_name=identity.vm.name
        )
    except topics.BadTopic as error:
        yield failed("topics", str(error), "change mqtt.topic_root: write the name into it")
        return
    checks = [
        _publish(session, channel, f"{root}/{channel}", probe(identity, now))
        for channel in ("events", "outcomes", "status")
    ]
    if take_commands:
        checks.append(_subscribe(session, f"{root}/commands"))
    # Last, because a broker that takes nothing retained may hang up.
    checks.append(_clear(session, topics.pending(root, PROBE_PENDING)))
    for check in checks:
        if session.lost:
            check.close()
        else:
            yield await check


def probe(identity: Identity, now: datetime) -> bytes:
    data = {"sentBy": "sebridge doctor", "version": VERSION, "vm": identity.vm}
    return cloudevents.encode(
        CloudEvent(
            specversion="1.0",
            id=f"doctor.{uuid.uuid4()}",
            source=cloudevents.source_of(identity.vm),
            type=PROBE_TYPE,
            time=cloudevents.rfc3339(now),
            partitionkey=identity.vm.name,
            datacontenttype=cloudevents.JSON_CONTENT_TYPE,
            data=data,
        )
    )


async def _clear(session: Session, topic: str) -> Finding:
    if session.retain_available:
        return await _publish(session, "pending", topic, b"", retain=True)
    text = "the broker keeps no retained messages: late subscribers do not see what is pending"
    return warning("topic pending", text, "enable retained messages in the broker")


async def _publish(
    session: Session, channel: str, topic: str, payload: bytes, *, retain: bool = False
) -> Finding:
    name = f"topic {channel}"
    right = f"let the agent publish to {topic}{', retained' if retain else ''}"
    try:
        code = await session.publish(topic, payload, retain=retain)
    except Lost as error:
        return failed(name, f"{topic}: {error}", right)
    if code >= FAILURE_MIN:
        return failed(name, f"{topic} refused with code {code}", _REMEDIES.get(code, right))
    if session.version == "3.1.1":
        remedy = f"MQTT 3.1.1 cannot tell a refusal: look in the broker's log, or {right}"
        return warning(name, f"{topic} acknowledged, which in MQTT 3.1.1 proves nothing", remedy)
    return ok(name, f"{topic} may be published")


async def _subscribe(session: Session, topic: str) -> Finding:
    name, right = "topic commands", f"let the agent subscribe to {topic}"
    try:
        code = await session.subscribe(topic)
    except Lost as error:
        return failed(name, f"{topic}: {error}", right)
    if code >= FAILURE_MIN:
        return failed(name, f"{topic} refused with code {code}", right)
    return ok(name, f"{topic} may be subscribed")
