"""The MQTT broker, one layer after the other: name, port, TLS, token, login, topics.

The first layer that fails ends the list: what is above it cannot be told.
"""

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

from bridge.clock import Clock
from bridge.config import Mqtt
from bridge.configfile import read_secret
from bridge.doctor import tls
from bridge.doctor.finding import Finding, failed, ok, warning
from bridge.doctor.session import Lost, Session
from bridge.doctor.topics import check_topics
from bridge.doctor.waiting import in_thread
from bridge.errors import ConfigError, SinkUnavailable
from bridge.imds import Identity
from bridge.mqtt_client import FAILURE_MIN, UNSUPPORTED_PROTOCOL, Version
from bridge.transports import TokenProvider

_NAME_S, _PORT_S, _TLS_S, _TOKEN_S, _LOGIN_S = 3.0, 3.0, 4.0, 5.0, 4.0
_LOGIN = "broker login"
_REACH = "check mqtt.host and mqtt.port, and that no firewall or security group blocks them"
_LOGIN_REMEDIES = {
    UNSUPPORTED_PROTOCOL: 'set mqtt.protocol = "auto", or enable that version in the broker',
    133: "let the broker accept this client id: the agent's own, with -doctor behind it",
    134: "check mqtt.username and mqtt.password_file against the broker's users",
    135: "let the broker's rules admit this user, certificate or identity",
    136: "the broker is up and not ready: try again",
    137: "the broker is busy: try again",
    140: "the broker does not take tokens: check mqtt.auth",
    151: "raise the sessions that one identity may have, or stop the agent and try again",
}


async def check(
    config: Mqtt,
    clock: Clock,
    *,
    identity: Identity | None,
    token_provider: TokenProvider | None,
    take_commands: bool,
) -> AsyncGenerator[Finding, None]:
    now = clock.now()
    async for finding in _check_way(config, now):
        yield finding
        if finding.result == "failed":
            return
    token = ""
    if token_provider is not None:
        try:
            async with asyncio.timeout(_TOKEN_S):
                token, expires_at = await token_provider()
        except (SinkUnavailable, TimeoutError) as error:
            text = str(error) or f"no answer within {_TOKEN_S:g} s"
            remedy = "assign the identity to this VM, and name it in mqtt.identity_client_id"
            yield failed("broker token", text, remedy)
            return
        left_s = expires_at - now.timestamp()
        yield ok("broker token", f"given by the managed identity, valid for {left_s / 60:.0f} min")
    session, finding = await _log_in(config, identity, token)
    yield finding
    if session is not None:
        try:
            async for finding in check_topics(
                config, session, identity=identity, now=now, take_commands=take_commands
            ):
                yield finding
        finally:
            await session.close()


async def _check_way(config: Mqtt, now: datetime) -> AsyncGenerator[Finding, None]:
    """Everything below MQTT itself."""
    if config.password_file:
        try:
            read_secret(config.password_file, "mqtt.password_file")
        except ConfigError as error:
            yield failed("broker password", str(error), "let this user read the file")
            return
    if config.tls.enabled:
        for finding in tls.check_files(config, now):
            yield finding
    addresses, finding = await _resolve(config)
    yield finding
    address, finding = await _connect(config, addresses)
    yield finding
    if config.tls.enabled:
        try:
            async with asyncio.timeout(_TLS_S):
                yield await tls.check_handshake(config, address, now)
        except TimeoutError:
            remedy = "check mqtt.port: a port without TLS waits for the client to speak"
            yield failed(tls.NAME, f"no handshake within {_TLS_S:g} s", remedy)


async def _resolve(config: Mqtt) -> tuple[list[str], Finding]:
    name = "broker name"
    try:
        found = await in_thread(
            lambda: socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM),
            seconds=_NAME_S,
        )
    except TimeoutError:
        why = f"{config.host}: the resolver gives no answer within {_NAME_S:g} s"
        return [], failed(name, why, "check /etc/resolv.conf and the name server")
    except OSError as error:
        why = f"{config.host}: {error.strerror or error}"
        return [], failed(name, why, "check mqtt.host and the name server")
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    return addresses, ok(name, f"{config.host} is {', '.join(addresses)}")


async def _connect(config: Mqtt, addresses: list[str]) -> tuple[str, Finding]:
    """The first address that takes a connection, as the agent tries them."""
    name, problems = "broker port", []
    try:
        async with asyncio.timeout(_PORT_S):
            for address in addresses:
                try:
                    _, writer = await asyncio.open_connection(address, config.port)
                except OSError as error:
                    problems.append(f"{address}: {os.strerror(error.errno or 0)}")
                else:
                    writer.close()
                    return address, ok(name, f"{address} takes connections at {config.port}")
    except TimeoutError:
        problems.append(f"no answer within {_PORT_S:g} s")
    return "", failed(name, f"port {config.port}: {'; '.join(problems)}", _REACH)


async def _log_in(
    config: Mqtt, identity: Identity | None, token: str
) -> tuple[Session | None, Finding]:
    """MQTT 5, and where that is refused 3.1.1, as the agent does it."""
    versions: tuple[Version, ...] = (
        ("5", "3.1.1") if config.protocol == "auto" else (config.protocol,)
    )
    finding = None
    for version in versions[:1] if token else versions:
        session = Session(
            config, client_id=_client_id(config, identity), version=version, token=token
        )
        code, finding = await _try(config, session, version)
        if finding.result == "ok":
            return session, _judge_version(config, version, finding)
        await session.close()
        if code not in {UNSUPPORTED_PROTOCOL, None}:
            break
    assert finding
    return None, finding


def _client_id(config: Mqtt, identity: Identity | None) -> str:
    """Near the agent's, for access rules; never the same, which would throw the agent out."""
    vm = identity.vm if identity else None
    own = config.client_id or f"sebridge-{(vm.vm_id or vm.name) if vm else uuid.uuid4().hex}"
    return f"{own}-doctor"


async def _try(config: Mqtt, session: Session, version: Version) -> tuple[int | None, Finding]:
    """The CONNACK's code, None when there was none."""
    try:
        code: Any = await session.open(_LOGIN_S)
    except (TimeoutError, Lost, OSError, ValueError) as error:
        how = "does not answer" if isinstance(error, TimeoutError) else "hangs up"
        remedy = "check that mqtt.port and mqtt.tls fit the broker; its log says why"
        return None, failed(_LOGIN, f"the broker {how} after CONNECT (MQTT {version})", remedy)
    if code.value >= FAILURE_MIN:
        remedy = _LOGIN_REMEDIES.get(code.value, "the broker's log says why")
        return code.value, failed(_LOGIN, f"refused: {code} (MQTT {version})", remedy)
    who = f"user {config.username}" if config.username else f"auth {config.auth}"
    return 0, ok(_LOGIN, f"MQTT {version}, {who}")


def _judge_version(config: Mqtt, version: Version, finding: Finding) -> Finding:
    if version == "3.1.1" and config.content_mode == "binary":
        remedy = "enable MQTT 5 in the broker; until then messages are structured"
        return warning(_LOGIN, f"{finding.text}; content_mode binary needs MQTT 5", remedy)
    return finding
