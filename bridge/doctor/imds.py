"""Is it IMDS that answers at `imds.endpoint`, and what does it say to the agent's own questions?

The requests are the agent's: asking for the document switches Scheduled Events on for this VM, as
the first poll would. They are few and slow, because a running agent shares their budget.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec

from bridge.clock import Clock
from bridge.config import Imds
from bridge.core import document
from bridge.core.http_answer import excerpt
from bridge.doctor.finding import Finding, failed, ok, warning
from bridge.errors import ImdsUnavailable
from bridge.imds import BODY_BYTES_MAX, INSTANCE_VERSIONS, Identity, ImdsClient, hint
from bridge.imds_wire import HEADERS, INSTANCE

_ENDPOINT_S = 3.0
_IDENTITY_S = 3.0
_DOCUMENT_S = 5.0
_REQUESTS_PER_S = 3.0  # with the agent's own polls below the 5 that IMDS allows
# What a proxy adds, and IMDS never sends.
_PROXY_HEADERS = ("Via", "X-Cache", "X-Squid-Error", "Proxy-Authenticate", "Proxy-Connection")
_BETWEEN = "find the proxy or firewall that answers in IMDS's place, and let the VM bypass it"
# The agent copes with these by itself.
_PASSING = frozenset({410, 429})


class Seen(msgspec.Struct, kw_only=True):
    """What later checks want to know."""

    identity: Identity | None = None
    clock_offset_s: float | None = None  # how far this VM's clock is ahead of the host's


async def check(config: Imds, clock: Clock, seen: Seen) -> AsyncGenerator[Finding, None]:
    finding = await _check_endpoint(config, clock, seen)
    yield finding
    if finding.result == "failed":
        return
    client = ImdsClient(
        msgspec.structs.replace(
            config,
            timeout_s=min(config.timeout_s, _IDENTITY_S),
            first_timeout_s=_DOCUMENT_S,
            requests_per_s_max=min(config.requests_per_s_max, _REQUESTS_PER_S),
        ),
        clock,
    )
    try:
        yield await _check_identity(config, client, seen)
        yield await _check_document(config, client, seen)
    finally:
        await client.close()


async def _check_endpoint(config: Imds, clock: Clock, seen: Seen) -> Finding:
    name = "imds endpoint"
    url = f"{config.endpoint.rstrip('/')}{INSTANCE}?api-version={INSTANCE_VERSIONS[0]}"
    try:
        async with (
            asyncio.timeout(_ENDPOINT_S),
            aiohttp.ClientSession(headers=HEADERS, trust_env=False) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            body = await response.content.read(BODY_BYTES_MAX)
            seen.clock_offset_s = _offset_s(response.headers.get("Date", ""), clock.now())
            return _judge(name, config.endpoint, response.status, response.headers, body)
    except TimeoutError:
        why = f"no answer from {config.endpoint} within {_ENDPOINT_S:g} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        why = f"no answer from {config.endpoint}: {error or type(error).__name__}"
    remedy = "only an Azure VM has IMDS; check imds.endpoint, the route to it, and firewalls"
    return failed(name, why, remedy)


def _judge(
    name: str, endpoint: str, status: int, headers: Mapping[str, str], body: bytes
) -> Finding:
    """Anything that IMDS never does was done by somebody else."""
    if 300 <= status < 400:
        where = headers.get("Location", "nowhere")
        return failed(name, f"{endpoint} redirects to {where}; IMDS never does", _BETWEEN)
    added = [f"{header}: {headers[header]}" for header in _PROXY_HEADERS if header in headers]
    if added or status in {407, 511}:
        why = "; ".join(added) or f"HTTP {status}"
        return failed(name, f"a proxy answers at {endpoint} ({why})", _BETWEEN)
    if body.lstrip()[:1] == b"<":
        page = excerpt(body, characters_max=60)
        return failed(name, f"a web page answers at {endpoint} ({page})", _BETWEEN)
    server = headers.get("Server", "")
    return ok(name, f"{endpoint} answers{f' ({server})' if server else ''}")


def _offset_s(date: str, now: datetime) -> float | None:
    try:
        return (now - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


async def _check_identity(config: Imds, client: ImdsClient, seen: Seen) -> Finding:
    name = "who am I"
    try:
        seen.identity = identity = await client.get_identity()
    except ImdsUnavailable as error:
        return _unavailable(name, error)
    vm, group = identity.vm, identity.resource_group
    text = f"{vm.name} in {group or 'no resource group'}"
    text += f" ({', '.join(part for part in (vm.location, vm.scale_set, vm.vm_id) if part)})"
    if config.vm_name:
        text += ", named by imds.vm_name"
    if not vm.vm_id:
        remedy = "set mqtt.client_id: without a vmId the agents of a fleet would share one"
        return warning(name, f"{text}; IMDS gives no vmId", remedy)
    return ok(name, text)


async def _check_document(config: Imds, client: ImdsClient, seen: Seen) -> Finding:
    name = "scheduled events"
    try:
        body = await client.get_document()
    except ImdsUnavailable as error:
        if isinstance(error.__cause__, TimeoutError):
            remedy = "the first request switches Scheduled Events on: try again in two minutes"
            return warning(name, f"no answer within {_DOCUMENT_S:g} s", remedy)
        return _unavailable(name, error)
    version = client.api_version
    if not body.strip():
        return ok(name, f"api-version {version}; an empty answer, which says nothing yet")
    try:
        current = document.decode(body)
    except document.MalformedDocument as error:
        return failed(name, f"not a document: {error}", "check imds.endpoint")
    text = f"api-version {version}, incarnation {current.incarnation}, {_pending(current, seen)}"
    if version != config.api_version:
        remedy = f'set imds.api_version = "{version}" to save a refused request at each start'
        return warning(name, f"{text}; {config.api_version} is refused", remedy)
    return ok(name, text)


def _pending(current: document.Document, seen: Seen) -> str:
    own = seen.identity.vm.name if seen.identity else ""
    mine = sum(scheduled_event.names(own) for scheduled_event in current.scheduled_events)
    return f"{len(current.scheduled_events)} pending, {mine} for this VM"


def _unavailable(name: str, error: ImdsUnavailable) -> Finding:
    if error.status is None or error.status == 200:
        return failed(name, str(error), "check imds.endpoint and who answers there")
    build = warning if error.status in _PASSING else failed
    return build(name, f"IMDS answers HTTP {error.status}", hint(error.status))
