"""Who may do what: shared access keys with rights, and the tokens that $cbs has taken.

SAS tokens are verified as the service documents it: base64(HMAC-SHA256(key, url-encoded resource +
newline + expiry)). The expiry is checked when the token arrives, not later on open links.
"""

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qs, quote_plus, urlsplit

Right = Literal["Send", "Listen"]
ALL_RIGHTS: frozenset[Right] = frozenset(("Send", "Listen"))
_SAS_PREFIX = "SharedAccessSignature "


class AccessDeniedError(Exception):
    """A token that the service would answer with status 401."""


@dataclass(frozen=True)
class Grant:
    """What one accepted token allows on one connection."""

    path: str
    rights: frozenset[Right]

    def covers(self, path: str, right: Right) -> bool:
        is_below = self.path in ("", path) or path.startswith(self.path + "/")
        return is_below and right in self.rights


@dataclass
class Access:
    #: Key name to key and rights.
    keys: dict[str, tuple[str, frozenset[Right]]] = field(default_factory=dict)
    #: Entra ID access tokens taken at their word, with all rights.
    bearer_tokens: set[str] = field(default_factory=set)

    def check(self, token: str, token_type: str, audience: str) -> Grant:
        """Return what the token allows; raise AccessDeniedError if it is not good."""
        if token_type == "jwt":
            if token not in self.bearer_tokens:
                raise AccessDeniedError("InvalidIssuer: Token issuer is invalid.")
            return Grant(node_path(audience), ALL_RIGHTS)
        rights, resource = self._check_signature(token)
        if not Grant(node_path(resource), rights).covers(node_path(audience), next(iter(rights))):
            raise AccessDeniedError("InvalidAudience: The audience does not match the token.")
        return Grant(node_path(audience), rights)

    def _check_signature(self, token: str) -> tuple[frozenset[Right], str]:
        parts = parse_qs(token.removeprefix(_SAS_PREFIX))
        try:
            resource, signature, expiry, name = (
                parts[key][0] for key in ("sr", "sig", "se", "skn")
            )
            key, rights = self.keys[name]
            is_expired = int(expiry) < time.time()
        except (KeyError, ValueError) as error:
            raise AccessDeniedError("MalformedToken: unknown key name or broken token.") from error
        signed = f"{quote_plus(resource)}\n{expiry}".encode()
        digest = hmac.new(key.encode(), signed, hashlib.sha256).digest()
        if not hmac.compare_digest(base64.b64encode(digest).decode(), signature):
            raise AccessDeniedError("InvalidSignature: The token has an invalid signature.")
        if is_expired:
            raise AccessDeniedError("ExpiredToken: The token is expired.")
        return rights, resource


def node_path(address: str) -> str:
    """Return the path of a full address (`amqps://host/hub/...`) or of a bare one, in lower case."""
    path = urlsplit(address).path if "://" in address else address
    return path.strip("/").lower()
