"""Tokens of a managed identity, for brokers that take them instead of a password.

A token is asked for when a connection is made and kept by nobody: a broken connection gets a fresh
one, and without IMDS the agent is blind in any case. Only an identity from elsewhere is left to
azure-identity, which is imported on first use, in a thread: that takes a second in which the event
loop must turn.
"""

import asyncio
import importlib
import logging
import os
from typing import Any

from bridge import vm_token
from bridge.errors import SinkUnavailable
from bridge.transports import TokenProvider
from bridge.vm_token import NoToken, Token

# Event Grid namespaces: "Authentication using Microsoft Entra JWT", audience eventgrid.azure.net.
EVENT_GRID_SCOPE = "https://eventgrid.azure.net/.default"
_REMEDY = "assign an identity to this VM; one that is not the VM's own is named by its client id"

# They repeat at WARNING what we report ourselves, in our own words and once.
for _name in ("azure.identity", "azure.core"):
    logging.getLogger(_name).setLevel(logging.ERROR)


def managed_identity_token(
    client_id: str, scope: str, *, timeout_s: float = vm_token.TIMEOUT_S
) -> TokenProvider:
    """`client_id` of a user-assigned identity, or empty for the VM's own."""
    who = vm_token.owner(client_id)

    async def provide() -> tuple[str, float]:
        fetch = _from_elsewhere if vm_token.is_elsewhere() else vm_token.fetch
        try:
            async with asyncio.timeout(timeout_s):
                return await fetch(client_id, scope)
        except TimeoutError as error:
            raise SinkUnavailable(
                f"{who} gives no token within {timeout_s:g} s; check the way to IMDS"
            ) from error
        except NoToken as error:
            raise SinkUnavailable(f"{who} gives no token: {error}; {_REMEDY}") from error

    return provide


async def _from_elsewhere(client_id: str, scope: str) -> Token:
    try:
        identity = await asyncio.to_thread(importlib.import_module, "azure.identity.aio")
        azure_core = importlib.import_module("azure.core.exceptions")
    except ImportError as error:
        raise SinkUnavailable(
            "an identity from outside the VM needs azure-identity: install "
            "scheduled-events-bridge[eventhubs]"
        ) from error
    try:
        async with identity.ManagedIdentityCredential(**_options(client_id)) as credential:
            token = await credential.get_token(scope)
    except (azure_core.AzureError, ValueError) as error:
        raise NoToken(_said(error)) from error
    return Token(token.token, float(token.expires_on))


def _options(client_id: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        # The caller backs off; a second backoff below would only hide the reason.
        "retry_total": 0,
        # What is on this machine must not be asked through a proxy. A pod's identity is not.
        "use_env_settings": "AZURE_FEDERATED_TOKEN_FILE" in os.environ,
    }
    return options | {"client_id": client_id} if client_id else options


def _said(error: Exception) -> str:
    """The beginning of what may be a page, and what lies behind it."""
    said = " ".join(str(error).split())[:300].rstrip(".")
    behind = str(error.__cause__ or "")
    return said if not behind or behind in said else f"{said} ({behind[:100]})"
