"""Ed25519 over the canonical form of core/signing.py: keys from files, signing and verifying.

The only module that imports cryptography, and itself imported only where keys are configured. A
command counts as signed if one of its signatures is good, by a key that is trusted and not
revoked. The list of revoked keys is read again for every signed command; while it cannot be
read, nothing is believed. No key, signature or envelope is ever logged.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from bridge.config import Commands
from bridge.core import signing
from bridge.core.commands import Parts
from bridge.core.signing import Envelope, Signature, Unverified
from bridge.errors import ConfigError

_KEY_ID = re.compile(r"[0-9a-f]{64}")
_FILE_BYTES_MAX = 1_048_576


class Verifier:
    def __init__(self, keys: Mapping[str, Ed25519PublicKey], revoked_keys_file: str = "") -> None:
        self._keys = keys
        self._revoked_keys_file = revoked_keys_file

    @classmethod
    def load(cls, config: Commands) -> "Verifier":
        """Read everything once, so that a mistake shows at the start."""
        keys = (load_public_key(path) for path in config.trusted_keys)
        if config.revoked_keys_file:
            revoked_keys(config.revoked_keys_file)
        return cls({key_id(key): key for key in keys}, config.revoked_keys_file)

    def verify(self, parts: Parts) -> Parts | Unverified:
        """What was signed of a message, and by which key; or why it cannot be believed."""
        envelope = signing.unseal(parts.attributes)
        if isinstance(envelope, Unverified):
            return envelope
        good = [each.key_id for each in envelope.signatures if self._is_good(each, envelope)]
        if not good:
            return Unverified("no good signature by a trusted key")
        try:
            revoked = revoked_keys(self._revoked_keys_file)
        except ConfigError as error:
            return Unverified(str(error))
        signed_by = next((name for name in good if name not in revoked), "")
        if not signed_by:
            return Unverified(f"key {good[0]} is revoked")
        found = signing.covered(parts, envelope.payload)
        if isinstance(found, Unverified):
            return found
        return msgspec.structs.replace(found, signed_by=signed_by)

    def _is_good(self, candidate: Signature, envelope: Envelope) -> bool:
        key = self._keys.get(candidate.key_id)
        if key is None:
            return False
        try:
            key.verify(candidate.signature, signing.pae(envelope.payload))
        except InvalidSignature:
            return False
        return True


def key_id(key: Ed25519PublicKey) -> str:
    """SHA-256 of the public key in DER, as `openssl pkey -pubin -outform DER` writes it."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return sha256(der).hexdigest()


def sign(command: bytes, *private_keys: Ed25519PrivateKey) -> bytes:
    """A command in structured JSON, signed with each key; times are cut to whole seconds."""
    fields = msgspec.json.decode(command, type=dict[str, msgspec.Raw])
    data = fields.pop("data")
    attributes = {name: msgspec.json.decode(value) for name, value in fields.items()}
    for name in attributes.keys() & {"time", "expirytime"}:
        attributes[name] = signing.whole_seconds(attributes[name])
    material = seal(Parts(attributes=attributes, data=bytes(data)), *private_keys)
    return msgspec.json.encode({**attributes, signing.ATTRIBUTE: material, "data": data})


def seal(parts: Parts, *private_keys: Ed25519PrivateKey) -> str:
    """The value of `dssematerial` for a message in either content mode."""
    extensions = [name for name in signing.EXTENSIONS if parts.attributes.get(name)]
    payload = signing.statement(parts, extensions)
    signatures = (
        Signature(key_id(key.public_key()), key.sign(signing.pae(payload))) for key in private_keys
    )
    return signing.seal(Envelope(payload, tuple(signatures)))


def load_public_key(path: str) -> Ed25519PublicKey:
    key = _load(path, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{path} does not hold an Ed25519 public key: see `sebridge keys new`")
    return key


def load_private_key(path: str) -> Ed25519PrivateKey:
    key = _load(path, lambda pem: load_pem_private_key(pem, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} does not hold an Ed25519 private key: see `sebridge keys new`")
    return key


def revoked_keys(path: str) -> frozenset[str]:
    """Key ids, one a line; `#` begins a comment. A line that is no key id spoils the file."""
    if not path:
        return frozenset()
    text = _read(path).decode(errors="replace")
    lines = [line.partition("#")[0].strip().lower() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        if line and not _KEY_ID.fullmatch(line):
            raise ConfigError(f"{path}, line {number}: not a key id of 64 hexadecimal digits")
    return frozenset(filter(None, lines))


def _load(path: str, parse: Callable[[bytes], object]) -> object:
    pem = _read(path)
    try:
        return parse(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None  # the library's reasons would tell a person less than ours


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than {_FILE_BYTES_MAX} bytes")
    return content
