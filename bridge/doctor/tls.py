"""TLS to the broker: our own files, its certificate, and what is wrong with either."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from bridge.config import Mqtt
from bridge.doctor.finding import Finding, failed, ok, warning
from bridge.mqtt_client import tls_context

NAME = "broker tls"
CERTIFICATE = "client certificate"
EXPIRY_WARNING = timedelta(days=14)
# OpenSSL's X509_V_ERR_ numbers, which tell apart what one message text does not.
_NOT_YET_VALID, _EXPIRED, _SELF_SIGNED, _SELF_SIGNED_IN_CHAIN = 9, 10, 18, 19
_NO_ISSUER, _NO_ISSUER_FOR_LEAF, _OTHER_NAME, _OTHER_ADDRESS = 20, 21, 62, 64
_UNKNOWN_CA = "set mqtt.tls.ca_file to the CA that signed the broker's certificate"
_REMEDIES = {
    _EXPIRED: "renew the broker's certificate; if it is valid, this VM's clock is wrong",
    _NOT_YET_VALID: "this VM's clock is behind, or the certificate starts in the future",
    _OTHER_NAME: "set mqtt.host to a name in the broker's certificate",
    _OTHER_ADDRESS: "set mqtt.host to a name in the broker's certificate",
    _SELF_SIGNED: _UNKNOWN_CA,
    _SELF_SIGNED_IN_CHAIN: _UNKNOWN_CA,
    _NO_ISSUER: _UNKNOWN_CA,
    _NO_ISSUER_FOR_LEAF: _UNKNOWN_CA,
}


def check_files(config: Mqtt, now: datetime) -> Iterator[Finding]:
    """The CA, and the client's certificate and key."""
    files = [f for f in (config.tls.ca_file, config.tls.cert_file, config.tls.key_file) if f]
    try:
        tls_context(config)
    except OSError as error:  # ssl.SSLError is one
        remedy = f"check that this user can read {', '.join(files)}, and that they are PEM files"
        yield failed(NAME, f"its files cannot be used: {error.strerror or error}", remedy)
        return
    if config.tls.cert_file:
        end = x509.load_pem_x509_certificate(Path(config.tls.cert_file).read_bytes())
        yield _judge_end(CERTIFICATE, config.tls.cert_file, end.not_valid_after_utc, now)


async def check_handshake(config: Mqtt, address: str, now: datetime) -> Finding:
    """Raises TimeoutError to its caller, who set the deadline."""
    try:
        _, writer = await asyncio.open_connection(
            address, config.port, ssl=tls_context(config), server_hostname=config.host
        )
    except ssl.SSLCertVerificationError as error:
        remedy = _REMEDIES.get(error.verify_code, _UNKNOWN_CA)
        return failed(NAME, f"certificate refused: {error.verify_message}", remedy)
    except ssl.SSLError as error:
        remedy = "check mqtt.port and mqtt.tls.enabled: does this port speak TLS?"
        return failed(
            NAME, f"no handshake with {config.host}:{config.port}: {error.reason or error}", remedy
        )
    except OSError as error:
        remedy = "check mqtt.port and mqtt.tls.enabled: does this port speak TLS?"
        return failed(NAME, f"{config.host}:{config.port} hung up: {error}", remedy)
    try:
        tls = writer.get_extra_info("ssl_object")
        return _judge_end(NAME, tls.version(), _end_of(tls.getpeercert()), now)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _end_of(certificate: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)


def _judge_end(name: str, what: str, end: datetime, now: datetime) -> Finding:
    text = f"{what}, certificate valid until {end:%Y-%m-%d}"
    remedy = "renew it"
    if end < now:
        return failed(name, f"{what}, certificate expired on {end:%Y-%m-%d}", remedy)
    if end - now < EXPIRY_WARNING:
        return warning(name, text, remedy)
    return ok(name, text)
