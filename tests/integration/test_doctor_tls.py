"""The doctor and TLS: real certificates, good and bad, and tokens in place of them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.config import MqttTls
from bridge.doctor.finding import Finding
from tests.doctoring import WAY, examine_broker, results
from tests.support.certificates import DAY, Authority
from tests.support.mosquitto import Mosquitto
from tests.support.mqtt5_peer import Mqtt5Peer
from tests.support.scripted_imds import ScriptedImds, answer

ANONYMOUS = "allow_anonymous true"


@contextmanager
def tls_broker(folder: Path, authority: Authority, **issue: Any) -> Iterator[Mosquitto]:
    issued = authority.issue("broker", **issue)
    lines = [ANONYMOUS, f"certfile {issued.cert_file}", f"keyfile {issued.key_file}"]
    with Mosquitto(folder, lines) as server:
        yield server


def tls(authority: Authority, **files: str) -> MqttTls:
    return MqttTls(enabled=True, ca_file=str(authority.ca_file), **files)


@pytest.mark.parametrize(
    ("issue", "result", "text", "remedy"),
    [
        ({"ends": 90 * DAY}, "ok", "TLSv1.3, certificate valid until", ""),
        ({"ends": 5 * DAY}, "warning", "valid until", "renew it"),
        ({"starts": -9 * DAY, "ends": -DAY}, "failed", "has expired", "renew the broker's"),
        ({"starts": DAY, "ends": 9 * DAY}, "failed", "not yet valid", "clock is behind"),
        ({"host": "other.example", "ends": 9 * DAY}, "failed", "mismatch", "set mqtt.host"),
    ],
    ids=["good", "short", "expired", "future", "other name"],
)
async def test_tls_certificate_is_judged(
    tmp_path: Path, issue: dict[str, Any], result: str, text: str, remedy: str
) -> None:
    """Expired, not yet valid and for another name have their own remedies."""
    authority = Authority(tmp_path)
    with tls_broker(tmp_path, authority, **issue) as server:
        found = await examine_broker(server.port, tls=tls(authority))

    finding = found["broker tls"]
    assert (finding.result, text in finding.text, remedy in finding.remedy) == (result, True, True)
    assert ("broker login" in found) is (result != "failed")


async def test_tls_unknown_authority_is_told(tmp_path: Path) -> None:
    """The remedy is the CA's file, not the broker's certificate."""
    with tls_broker(tmp_path, Authority(tmp_path), ends=90 * DAY) as server:
        found = await examine_broker(server.port, tls=tls(Authority(tmp_path, "Other CA")))

    assert found["broker tls"].result == "failed"
    assert "mqtt.tls.ca_file" in found["broker tls"].remedy


async def test_tls_on_a_plain_port_is_told(tmp_path: Path) -> None:
    """And the other way round: a TLS port that is spoken to in plain text."""
    authority = Authority(tmp_path)
    with Mosquitto(tmp_path) as server:
        plain = await examine_broker(server.port, tls=tls(authority))
    with tls_broker(tmp_path, authority, ends=90 * DAY) as server:
        reverse = await examine_broker(server.port)

    assert plain["broker tls"].result == "failed"
    assert "does this port speak TLS?" in plain["broker tls"].remedy
    assert reverse["broker login"].result == "failed"
    assert "mqtt.tls" in reverse["broker login"].remedy


async def test_client_certificate_is_read(tmp_path: Path) -> None:
    """Its own end is told before the broker refuses it without a word."""
    authority = Authority(tmp_path)
    server_files = authority.issue("broker", ends=90 * DAY)
    lines = [
        ANONYMOUS,
        f"cafile {authority.ca_file}",
        f"certfile {server_files.cert_file}",
        f"keyfile {server_files.key_file}",
        "require_certificate true",
    ]
    good = authority.issue("agent", ends=90 * DAY)
    old = authority.issue("old-agent", starts=-9 * DAY, ends=-timedelta(hours=1))
    with Mosquitto(tmp_path, lines) as server:

        async def with_certificate(cert_file: Path, key_file: Path) -> dict[str, Finding]:
            files = {"cert_file": str(cert_file), "key_file": str(key_file)}
            return await examine_broker(server.port, auth="x509", tls=tls(authority, **files))

        fine = await with_certificate(*good)
        expired = await with_certificate(*old)
        mixed = await with_certificate(good.cert_file, old.key_file)

    assert results(fine)["client certificate"] == results(fine)["topic events"] == "ok"
    assert results(expired) == {"client certificate": "failed"}
    assert results(mixed) == {"broker tls": "failed"}
    assert "PEM" in mixed["broker tls"].remedy


async def test_entra_token_is_checked_before_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token, a refused token and a good one are three different lines."""
    authority = Authority(tmp_path)
    fields = {"access_token": "good", "token_type": "Bearer", "resource": "https://eventgrid"}
    expiry = {"expires_on": str(int(time.time()) + 3630)}
    body = json.dumps(fields | expiry).encode()
    given = answer(200, body, Content_Type="application/json")
    steps = [answer(400, b"{}"), given, given]
    async with (
        ScriptedImds(lambda _: steps.pop(0)) as imds,
        Mqtt5Peer(*authority.issue("broker", ends=90 * DAY), tokens=set()) as peer,
    ):
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", imds.endpoint)
        options: dict[str, Any] = {"auth": "entra-jwt", "tls": tls(authority)}
        missing = await examine_broker(peer.port, **options)
        refused = await examine_broker(peer.port, **options)
        peer.tokens.add("good")
        taken = await examine_broker(peer.port, **options)

    assert results(missing) == {**WAY, "broker tls": "ok", "broker token": "failed"}
    assert "not been assigned" in missing["broker token"].text
    assert refused["broker token"].text == "given by the managed identity, valid for 60 min"
    assert "Not authorized" in refused["broker login"].text
    assert results(taken)["broker login"] == results(taken)["topic commands"] == "ok"
    assert {connect.method for connect in peer.connects} == {"OAUTH2-JWT"}
