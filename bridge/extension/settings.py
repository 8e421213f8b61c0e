"""`N.settings`: public settings as they are, protected ones decrypted by openssl.

The plaintext exists in this process's memory only; no message repeats any part of it.
"""

import base64
import binascii
import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from bridge.errors import ConfigError, ServiceError
from bridge.extension.environment import HandlerEnvironment

_THUMBPRINT = re.compile(r"[0-9A-Fa-f]{40,128}")
_OPENSSL_S_MAX = 30.0
# smime cannot read everything that Azure sends, cms is missing from old builds: both, in order.
_OPENSSL_COMMANDS = ("cms", "smime")


@dataclasses.dataclass(frozen=True)
class Settings:
    public: dict[str, Any]
    protected: dict[str, Any] = dataclasses.field(repr=False)


def read(environment: HandlerEnvironment, sequence: int) -> Settings:
    """No file, or an empty one, is how the guest agent says that there are no settings."""
    path = environment.configuration / f"{sequence}.settings"
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        content = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceError(f"cannot read {path}: {error}") from error
    if not content.strip():
        return Settings(public={}, protected={})
    handler = _handler_settings(path, content)
    return Settings(
        public=_table(handler.get("publicSettings"), "publicSettings"),
        protected=_decrypt(handler, environment.agent_folder),
    )


def _handler_settings(path: Path, content: str) -> dict[str, Any]:
    try:
        found = json.loads(content)["runtimeSettings"][0]["handlerSettings"]
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path}: not a settings file: {type(error).__name__}") from error
    return _table(found, "handlerSettings")


def _table(value: object, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must be a JSON object")
    return value


def _decrypt(handler: dict[str, Any], certificates: Path) -> dict[str, Any]:
    encrypted = handler.get("protectedSettings")
    if not encrypted:
        return {}
    thumbprint = str(handler.get("protectedSettingsCertThumbprint") or "")
    if not _THUMBPRINT.fullmatch(thumbprint):
        raise ConfigError("protectedSettings come without the thumbprint of their certificate")
    try:
        envelope = base64.b64decode(encrypted, validate=False)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ConfigError("protectedSettings are not base64") from error
    plaintext = _open(envelope, certificates / f"{thumbprint}.crt", certificates)
    try:
        return _table(json.loads(plaintext), "protectedSettings")
    except ValueError:
        # Without its cause: a JSON error quotes the text around the mistake.
        raise ConfigError("protectedSettings are not JSON after decryption") from None


def _open(envelope: bytes, certificate: Path, folder: Path) -> bytes:
    key = folder / f"{certificate.stem}.prv"
    for path in (certificate, key):
        if not path.is_file():
            raise ServiceError(f"{path} is missing: the protected settings cannot be decrypted")
    problems = []
    for command in _OPENSSL_COMMANDS:
        done = _openssl(command, envelope, certificate, key)
        if done.returncode == 0:
            return done.stdout
        problems.append(f"{command}: {_reason(done.stderr)}")
    raise ServiceError(f"openssl cannot decrypt the protected settings: {'; '.join(problems)}")


def _openssl(
    command: str, envelope: bytes, certificate: Path, key: Path
) -> subprocess.CompletedProcess[bytes]:
    arguments = ["openssl", command, "-decrypt", "-inform", "DER"]
    arguments += ["-recip", str(certificate), "-inkey", str(key)]
    try:
        return subprocess.run(
            arguments, input=envelope, capture_output=True, timeout=_OPENSSL_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        # Without its cause: a time-out carries what openssl had printed so far.
        raise ServiceError(f"cannot run openssl: {type(error).__name__}") from None


def _reason(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[0][:200] if lines else "no reason given"
