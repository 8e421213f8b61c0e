"""The VM's managed identity as azure-eventhub wants it: somebody to ask for a token."""

import asyncio
import time
from typing import Any

from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from bridge import vm_token
from bridge.vm_token import NoToken

# What is left of a token must at least outlast the making of a connection.
_MARGIN_S = 300.0


class VmCredential:
    """Keeps a token for half its life; all clients of a namespace share it.

    A client asks again long before the end, so that another half is left to those that IMDS keeps
    waiting.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._token: AccessToken | None = None
        self._renew_at = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        async with self._one_at_a_time:
            kept, now = self._token, time.time()
            if kept and now < self._renew_at:
                return kept
            try:
                self._token = await self._fetch(*scopes)
            except ClientAuthenticationError:
                if kept and now < kept.expires_on:
                    return kept
                raise
            left_s = self._token.expires_on - now
            self._renew_at = now + min(left_s / 2, left_s - _MARGIN_S)
            return self._token

    async def close(self) -> None:
        """Nothing is open between two questions."""

    async def _fetch(self, scope: str) -> AccessToken:
        who = vm_token.owner(self._client_id)
        try:
            text, expires_at = await vm_token.fetch(self._client_id, scope)
        except TimeoutError as error:
            raise ClientAuthenticationError(
                f"{who} gives no token within {vm_token.TIMEOUT_S:g} s"
            ) from error
        except NoToken as error:
            raise ClientAuthenticationError(f"{who} gives no token: {error}") from error
        return AccessToken(text, int(expires_at))
