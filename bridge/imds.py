"""Reading from IMDS: the Scheduled Events document, and who this VM is.

Only GETs live here. The POST that approves has its own connection (`bridge.start_request`),
because an HTTP client that retries, follows or pools would break "never twice".
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from bridge import imds_wire
from bridge.clock import Clock
from bridge.config import Imds
from bridge.core.cloudevents import Vm
from bridge.core.http_answer import BodyTooLarge, excerpt
from bridge.core.strict_json import NotJson, decode_object
from bridge.errors import ImdsUnavailable, StoreError
from bridge.imds_connection import KeptConnection
from bridge.imds_wire import INSTANCE, SCHEDULED_EVENTS

BODY_BYTES_MAX = 4 * 1024 * 1024
OLDER_DOCUMENT_VERSIONS = ("2019-08-01", "2019-01-01")
# Another list than the one above: IMDS versions /metadata/instance apart.
INSTANCE_VERSIONS = ("2021-12-13", "2020-09-01", "2019-06-01")
# How often in a row IMDS must refuse a version that it took before.
REFUSALS_BELIEVED = 3

_HINTS = {
    400: "it refuses every api-version we know; check imds.api_version and imds.endpoint",
    403: "a guest proxy denies it; allow this service's user in the metadata access rules",
    404: "check imds.endpoint; on a real VM this passes, it is asked again",
    410: "IMDS is being updated; it is asked again within 70 s",
    429: "too many requests on this VM; raise imds.poll_interval_s or find the other clients",
}


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who this VM is; kept in the store, so that a start without IMDS knows its topics."""

    vm: Vm
    resource_group: str = ""
    subscription_id: str = ""

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> "Identity":
        try:
            return msgspec.json.decode(raw, type=cls)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StoreError(f"the stored identity cannot be read: {error}") from error


class TokenBucket:
    """One token deep: requests are spaced, never bunched. Going into debt is allowed."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._spacing_s = 1.0 / per_s
        self._clock = clock
        self._free_at_s = 0.0

    def take(self) -> float:
        """Take a token; returns how long a polite caller waits before using it."""
        now_s = self._clock.elapsed_s()
        wait_s = max(0.0, self._free_at_s - now_s)
        self._free_at_s = max(self._free_at_s, now_s) + self._spacing_s
        return wait_s


class _Ladder:
    """Versions to try, newest first; where one was accepted, we stay.

    A 400 to a version that was accepted before is a fault and not an answer: a lower version has
    fewer fields, and their absence would look like a change. Only when it goes on is it believed.
    """

    def __init__(self, versions: Sequence[str]) -> None:
        self._versions = tuple(versions)
        self._rung = 0
        self._was_accepted = False
        self._refusals = 0  # in a row, of this version

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def current(self) -> str:
        return self._versions[self._rung]

    def accept(self) -> None:
        self._was_accepted, self._refusals = True, 0

    def refuse(self) -> bool:
        """Whether to try the next version at once."""
        self._refusals += 1
        if self._was_accepted and self._refusals < REFUSALS_BELIEVED:
            return False
        self._rung = (self._rung + 1) % len(self._versions)
        self._was_accepted, self._refusals = False, 0
        return True

    def restart(self) -> None:
        self._rung = 0


class ImdsClient:
    """GETs, one at a time, within a budget that other programs on the VM share."""

    def __init__(self, config: Imds, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._endpoint = config.endpoint.rstrip("/")
        older = [v for v in OLDER_DOCUMENT_VERSIONS if v < config.api_version]
        self._document_ladder = _Ladder([config.api_version, *older])
        self._instance_ladder = _Ladder(INSTANCE_VERSIONS)
        self._bucket = TokenBucket(config.requests_per_s_max, clock)
        self._one_at_a_time = asyncio.Lock()
        self._address = imds_wire.parse(config.endpoint)
        self._connection = KeptConnection(self._address, on_repeat=self.spend_token)
        self._has_answered = False
        self.statuses: Counter[str] = Counter()

    @property
    def api_version(self) -> str:
        """The Scheduled Events version in force; the POST uses it, too."""
        return self._document_ladder.current

    def spend_token(self) -> None:
        """Count a request made elsewhere (the POST): it never waits, but the next GET does."""
        self._bucket.take()

    async def get_document(self) -> bytes:
        """The body of a 200, empty or not; anything else is ImdsUnavailable."""
        # IMDS switches the feature on at the first request, which may take two minutes.
        timeout_s = self._config.timeout_s if self._has_answered else self._config.first_timeout_s
        body = await self._get(SCHEDULED_EVENTS, self._document_ladder, timeout_s)
        self._has_answered = True
        return body

    async def get_identity(self) -> Identity:
        # Once a start, so it takes nothing from the budget: the first poll follows at once.
        body = await self._get(
            INSTANCE, self._instance_ladder, self._config.timeout_s, budgeted=False
        )
        return _identity(body, self._config.vm_name)

    async def close(self) -> None:
        self._connection.close()

    async def _get(
        self, path: str, ladder: _Ladder, timeout_s: float, *, budgeted: bool = True
    ) -> bytes:
        refusals = 0
        async with self._one_at_a_time:
            while True:
                if budgeted:
                    await asyncio.sleep(self._bucket.take())
                try:
                    body = await self._get_once(path, ladder.current, timeout_s)
                except ImdsUnavailable as error:
                    if error.status != 400:
                        raise
                    if not ladder.refuse():
                        raise ImdsUnavailable(
                            f"GET {self._endpoint}{path}: HTTP 400 to api-version "
                            f"{ladder.current}, which it took before; it is asked again"
                        ) from error
                    refusals += 1
                    if refusals == len(ladder):
                        ladder.restart()
                        raise
                else:
                    ladder.accept()
                    return body

    async def _get_once(self, path: str, version: str, timeout_s: float) -> bytes:
        what = f"GET {self._endpoint}{path}?api-version={version}"
        try:
            answer = await self._connection.get(
                self._address.target(path, version),
                connect_timeout_s=min(timeout_s, self._config.timeout_s),
                timeout_s=timeout_s,
                body_bytes_max=BODY_BYTES_MAX,
            )
        except (OSError, ValueError) as error:
            status = 200 if isinstance(error, BodyTooLarge) else None
            self.statuses[str(status or "error")] += 1
            raise ImdsUnavailable(_no_answer(what, error, timeout_s), status=status) from error
        self.statuses[str(answer.status)] += 1
        if answer.status == 200:
            return answer.body
        assert answer.status is not None
        raise ImdsUnavailable(
            f"{what}: HTTP {answer.status}: {hint(answer.status)}{_said(answer.body)}",
            status=answer.status,
            retry_after_s=self._retry_after_s(answer.header("Retry-After")),
        )

    def _retry_after_s(self, value: str) -> float | None:
        value = value.strip()
        if re.fullmatch(r"[0-9]{1,9}", value):
            return float(value)
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            return max(0.0, (parsedate_to_datetime(value) - self._clock.now()).total_seconds())
        return None


def _no_answer(what: str, error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"{what}: no answer within {timeout_s:g} s; check the route to imds.endpoint"
    why = str(error) or type(error).__name__
    return f"{what}: {why}; check imds.endpoint and that no firewall blocks it"


def hint(status: int) -> str:
    if 300 <= status < 400:
        return "IMDS never redirects and it was not followed; find what stands in between"
    return _HINTS.get(status, "it is asked again later")


def _said(body: bytes) -> str:
    text = excerpt(body)
    return f" ({text})" if text else ""


def _identity(body: bytes, vm_name: str) -> Identity:
    try:
        value = decode_object(body, bytes_max=BODY_BYTES_MAX)
    except NotJson as error:
        raise ImdsUnavailable(f"{INSTANCE}: {error}; check imds.endpoint", status=200) from error
    nested = value.get("compute")
    compute: dict[str, Any] = nested if isinstance(nested, dict) else value

    def text(key: str) -> str:
        found = compute.get(key)
        return found if isinstance(found, str) else ""

    name = vm_name or text("name")
    if not name:
        raise ImdsUnavailable(f"{INSTANCE} has no name; set imds.vm_name", status=200)
    vm = Vm(
        name=name,
        vm_id=text("vmId"),
        resource_id=text("resourceId") or _composed_id(compute, text("name") or name),
        scale_set=text("vmScaleSetName"),
        zone=text("zone"),
        location=text("location"),
    )
    return Identity(
        vm=vm, resource_group=text("resourceGroupName"), subscription_id=text("subscriptionId")
    )


def _composed_id(compute: dict[str, Any], name: str) -> str:
    subscription = compute.get("subscriptionId")
    group = compute.get("resourceGroupName")
    if not subscription or not group:
        return ""
    prefix = f"/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute"
    scale_set = compute.get("vmScaleSetName") or ""
    owner, _, instance = name.rpartition("_")
    # Flexible instances are plain VMs, and only they carry virtualMachineScaleSet.id.
    flexible_of = compute.get("virtualMachineScaleSet")
    flexible = isinstance(flexible_of, dict) and bool(flexible_of.get("id"))
    uniform = scale_set and owner == scale_set and re.fullmatch(r"[0-9]+", instance)
    if uniform and not flexible:
        return f"{prefix}/virtualMachineScaleSets/{scale_set}/virtualMachines/{instance}"
    return f"{prefix}/virtualMachines/{name}"
