"""A token of this VM's managed identity: one GET to IMDS, never through a proxy.

azure-identity would ask the same question and bring 27 MB along, so it is used only where the
environment names another place that gives identities: AKS to a pod, Azure Arc, App Service.
"""

import os
import re
from typing import Any, NamedTuple
from urllib.parse import urlencode

from bridge import imds_wire
from bridge.core.http_answer import Answer, excerpt
from bridge.core.strict_json import NotJson, decode_object
from bridge.imds_connection import KeptConnection

TIMEOUT_S = 10.0
_TOKENS = "/metadata/identity/oauth2/token"
_API_VERSION = "2018-02-01"
_ANSWER_BYTES_MAX = 64 * 1024
# As azure-identity has it: where IMDS is, if not at its usual address.
_HOST_VARIABLE = "AZURE_POD_IDENTITY_AUTHORITY_HOST"
_IMDS = "http://169.254.169.254"
_ELSEWHERE = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_FEDERATED_TOKEN_FILE")


class NoToken(Exception):
    """IMDS gave none; the message says why, and never what it gave instead."""


class Token(NamedTuple):
    text: str
    expires_at: float  # seconds since 1970


def is_elsewhere() -> bool:
    """Whether something else than IMDS gives identities here."""
    return any(os.environ.get(name) for name in _ELSEWHERE)


def owner(client_id: str) -> str:
    """For messages."""
    return f"the managed identity {client_id}" if client_id else "the VM's managed identity"


async def fetch(client_id: str, scope: str, *, timeout_s: float = TIMEOUT_S) -> Token:
    """For the identity with this client id, or the VM's own. Raises NoToken or TimeoutError."""
    query = {"resource": scope.removesuffix("/.default")}
    if client_id:
        query["client_id"] = client_id
    try:
        return _token(await _get(urlencode(query), timeout_s))
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise NoToken(f"no answer from IMDS: {error}") from error


async def _get(query: str, timeout_s: float) -> Answer:
    address = imds_wire.parse((os.environ.get(_HOST_VARIABLE) or _IMDS).strip("/"))
    connection = KeptConnection(address, on_repeat=lambda: None)
    try:
        return await connection.get(
            f"{address.target(_TOKENS, _API_VERSION)}&{query}",
            connect_timeout_s=timeout_s,
            timeout_s=timeout_s,
            body_bytes_max=_ANSWER_BYTES_MAX,
        )
    finally:
        connection.close()


def _token(answer: Answer) -> Token:
    if answer.status == 400:
        said = excerpt(answer.body)
        raise NoToken(f"the identity has not been assigned to this resource ({said})")
    if answer.status != 200:
        raise NoToken(f"IMDS answers HTTP {answer.status}: {excerpt(answer.body)}")
    try:
        fields = decode_object(answer.body, bytes_max=_ANSWER_BYTES_MAX)
    except NotJson:
        raise NoToken("IMDS answers with what is no token") from None
    text, expires_at = fields.get("access_token"), _seconds(fields.get("expires_on"))
    if not isinstance(text, str) or not text or expires_at is None:
        raise NoToken("IMDS answers without access_token or expires_on")
    return Token(text, expires_at)


def _seconds(value: Any) -> float | None:
    """IMDS writes numbers as strings."""
    return float(value) if re.fullmatch(r"[0-9]{1,12}", str(value)) else None
