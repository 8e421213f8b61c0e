"""The MQTT transport and a broker's certificate: a bad one is refused, there is no way around it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.config import Mqtt, MqttTls
from bridge.errors import SinkUnavailable
from bridge.transports import Outgoing
from bridge.transports.mqtt import MqttTransport
from tests.support.certificates import DAY, Authority
from tests.support.mosquitto import Mosquitto
from tests.support.running import running

# paho leaves the socket of a failed handshake to the garbage collector.
unclosed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROW = Outgoing(
    sequence=1,
    channel="events",
    event_id="e",
    cloudevent=(
        b'{"specversion":"1.0","id":"1","source":"/vm","type":"t","time":"2026-01-01T00:00:00Z",'
        b'"datacontenttype":"application/json","data":{}}'
    ),
)


@asynccontextmanager
async def transport_to(
    folder: Path, ca_file: Path, authority: Authority, **issue: Any
) -> AsyncIterator[MqttTransport]:
    """A transport that trusts `ca_file`, and a broker whose certificate `authority` issued."""
    issued = authority.issue("broker", **issue)
    lines = ["allow_anonymous true"]
    lines += [f"certfile {issued.cert_file}", f"keyfile {issued.key_file}"]
    with Mosquitto(folder, lines) as broker:
        transport = MqttTransport(
            Mqtt(
                host="127.0.0.1",
                port=broker.port,
                reconnect_s_max=0.2,
                publish_timeout_s=1.0,
                tls=MqttTls(enabled=True, ca_file=str(ca_file)),
            ),
            root="sebridge/v1/group/vm",
            client_id="agent",
            will=lambda: b"{}",
            pending=tuple,
        )
        async with running(transport):
            yield transport


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


async def test_good_certificate_is_taken(tmp_path: Path) -> None:
    """Issued by the authority in `ca_file`, for this name, valid now."""
    authority = Authority(tmp_path)
    async with transport_to(tmp_path, authority.ca_file, authority, ends=9 * DAY) as transport:
        await until(lambda: transport.connected)
        await transport.publish([ROW])


@unclosed
@pytest.mark.parametrize(
    "issue",
    [
        {"starts": -9 * DAY, "ends": -DAY},
        {"host": "other.example", "ends": 9 * DAY},
    ],
    ids=["expired", "other-name"],
)
async def test_bad_certificate_is_refused(tmp_path: Path, issue: dict[str, Any]) -> None:
    """No connection, a problem that says why, and the row stays in the outbox."""
    authority = Authority(tmp_path)
    async with transport_to(tmp_path, authority.ca_file, authority, **issue) as transport:
        await until(lambda: "certificate" in transport.problem.casefold())
        with pytest.raises(SinkUnavailable):
            await transport.publish([ROW])
        assert not transport.connected


@unclosed
async def test_unknown_authority_is_refused(tmp_path: Path) -> None:
    """A certificate that somebody else issued, or nobody, is worth nothing."""
    mine, theirs = Authority(tmp_path, "Mine"), Authority(tmp_path, "Theirs")
    async with transport_to(tmp_path, mine.ca_file, theirs, ends=9 * DAY) as transport:
        await until(lambda: "certificate" in transport.problem.casefold())
        assert not transport.connected
