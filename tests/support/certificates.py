"""A certificate authority for tests: real certificates, good and bad, in a folder."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Issued(NamedTuple):
    cert_file: Path
    key_file: Path


class Authority:
    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca_file = folder / f"{name.replace(' ', '-')}.pem"
        now = datetime.now(UTC)
        builder = _builder(self._name, self._name, self._key, now - DAY, now + 365 * DAY)
        certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).sign(self._key, hashes.SHA256())
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, host: str = "127.0.0.1", starts: timedelta = -DAY, ends: timedelta
    ) -> Issued:
        """A certificate and its key; `starts` and `ends` are counted from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key, now + starts, now + ends)
        certificate = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(host)]), critical=False
        ).sign(self._key, hashes.SHA256())
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        issued.key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return issued


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
