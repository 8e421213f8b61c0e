"""What a simulator is started with, and the fleet that follows from it. Pure.

Values are text as on the command line, so that a test, the demo and a person write the same.
"""

import re
from datetime import datetime
from typing import Final

from msgspec import Struct

from bridge.simulator.model import (
    PLACEMENT_GROUP_VMS_MAX,
    POLICIES,
    SCALE_SET_VMS_MAX,
    TERMINATE_NOTIFICATION_S_MAX,
    TERMINATE_NOTIFICATION_S_MIN,
    Fleet,
    Scope,
    Vm,
)
from bridge.simulator.scenarios import SCENARIOS

# The example of the documentation's scale-in page.
INSTANCES: Final = "1:3,4,5,10;2:2,6,9,11;3:1,7,8"
TERMINATE_NOTIFICATION: Final = "PT5M"
OFF: Final = "off"

SPEED_MAX: Final = 100_000.0
SHORTEN_MAX: Final = 1000.0
FIRST_CALL_DELAY_S_MAX: Final = 600.0
INSTANCE_ID_MAX: Final = 2_000_000_000

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
ZONE: Final = re.compile(r"[A-Za-z0-9]{0,16}", re.ASCII)
INSTANCE_ID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
DURATION: Final = re.compile(r"PT(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})S)?", re.ASCII)


class SettingsError(ValueError):
    """A value that cannot be used; the text names it and says what would do."""


class Settings(Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    # 0: any free one.
    port: int = 0
    scale_set: str = "web"
    # Instance ids by zone: "ZONE:ID,ID;ZONE:ID", or "ID,ID" without zones.
    instances: str = INSTANCES
    policy: str = "Default"
    # ISO 8601, or "off"; empty means PT5M, and off for spot.
    terminate_notification: str = ""
    spot: bool = False
    # Simulated seconds in a real one; 0 stands still, for tests that advance it by hand.
    speed: float = 1.0
    # Divides every notice and duration instead: time lapse for agents and approvals whose clock is
    # the real one, which `speed` would leave behind.
    shorten: float = 1.0
    scenario: str = ""
    # Real seconds that the first request for scheduled events takes; Azure: up to two minutes.
    first_call_delay_s: float = 0.0
    # Real time, a VM; 0: no limit.
    requests_per_s_max: int = 5
    resource_group: str = "simulated"
    location: str = "westeurope"
    # None: the real time at the start.
    start_at: datetime | None = None
    # Empty: a random one, so that EventIds never come back.
    seed: str = ""


def build_fleet(settings: Settings, seed: str, now: datetime) -> Fleet:
    """Check everything that can be checked without opening a port, and make the fleet."""
    _check(settings)
    vms = parse_instances(settings.instances, settings.scale_set)
    return Fleet(
        scale_set=settings.scale_set,
        policy=settings.policy,
        spot=is_spot(settings),
        terminate_notification_s=_terminate_notification_s(settings),
        shorten=settings.shorten,
        vms=vms,
        scopes=(Scope(),) * (vms[-1].group + 1),
        now=now,
        seed=seed,
        resource_group=settings.resource_group,
        location=settings.location,
    )


def is_spot(settings: Settings) -> bool:
    return settings.spot or settings.scenario == "spot-eviction"


def parse_instances(text: str, scale_set: str) -> tuple[Vm, ...]:
    """ "1:3,4;2:2" -> VMs in the order of their ids, in placement groups of up to 100."""
    zones = [pair for part in text.split(";") for pair in _parse_zone(part)]
    ids = [instance_id for instance_id, _ in zones]
    if len(set(ids)) < len(ids):
        raise SettingsError(f"instances {text!r}: an instance id is there twice")
    if len(ids) > SCALE_SET_VMS_MAX:
        raise SettingsError(f"instances: {len(ids)} VMs, a scale set has {SCALE_SET_VMS_MAX}")
    return tuple(
        Vm(
            name=f"{scale_set}_{instance_id}",
            instance_id=instance_id,
            zone=zone,
            group=index // PLACEMENT_GROUP_VMS_MAX,
        )
        for index, (instance_id, zone) in enumerate(sorted(zones))
    )


def parse_duration_s(text: str) -> int:
    """An ISO 8601 duration of hours, minutes and seconds, as notBeforeTimeout has it."""
    match = DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise SettingsError(f"{text!r} is not an ISO 8601 duration such as PT5M")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def parse_listen(text: str) -> tuple[str, int]:
    """HOST:PORT; an IPv6 host stands in brackets, port 0 is any free one."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and re.fullmatch(r"[0-9]{1,5}", port, re.ASCII)):
        raise SettingsError(f"listen {text!r}: expected HOST:PORT such as 127.0.0.1:8080")
    if int(port) > 0xFFFF:
        raise SettingsError(f"listen {text!r}: the port is above 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _parse_zone(part: str) -> list[tuple[int, str]]:
    zone, _, ids = part.strip().rpartition(":")
    if not ZONE.fullmatch(zone):
        raise SettingsError(f"instances: {zone!r} is not a zone")
    return [(_parse_id(text.strip(), part), zone) for text in ids.split(",")]


def _parse_id(text: str, part: str) -> int:
    if not INSTANCE_ID.fullmatch(text) or int(text) > INSTANCE_ID_MAX:
        raise SettingsError(
            f"instances: {text!r} in {part!r} is not an instance id; expected ZONE:ID,ID;ZONE:ID"
        )
    return int(text)


def _terminate_notification_s(settings: Settings) -> int | None:
    spot = is_spot(settings)
    text = settings.terminate_notification or (OFF if spot else TERMINATE_NOTIFICATION)
    if text == OFF:
        return None
    if spot:
        raise SettingsError("terminate notification cannot be enabled on spot VMs")
    seconds = parse_duration_s(text)
    if not TERMINATE_NOTIFICATION_S_MIN <= seconds <= TERMINATE_NOTIFICATION_S_MAX:
        raise SettingsError(f"terminate notification {text}: Azure takes PT5M to PT15M")
    return seconds


def _check(settings: Settings) -> None:
    if not NAME.fullmatch(settings.scale_set):
        raise SettingsError(f"scale set {settings.scale_set!r}: letters, digits, . _ -, up to 63")
    if settings.policy not in POLICIES:
        raise SettingsError(f"policy {settings.policy!r}: expected one of {', '.join(POLICIES)}")
    if settings.scenario and settings.scenario not in SCENARIOS:
        raise SettingsError(
            f"scenario {settings.scenario!r}: expected one of {', '.join(SCENARIOS)}"
        )
    # Written so that NaN is refused, too.
    if not 0 <= settings.speed <= SPEED_MAX:
        raise SettingsError(f"speed {settings.speed}: expected 0 to {SPEED_MAX:.0f}")
    if not 1 <= settings.shorten <= SHORTEN_MAX:
        raise SettingsError(f"shorten {settings.shorten}: expected 1 to {SHORTEN_MAX:.0f}")
    if not 0 <= settings.first_call_delay_s <= FIRST_CALL_DELAY_S_MAX:
        raise SettingsError(
            f"first-call delay {settings.first_call_delay_s}: "
            f"expected 0 to {FIRST_CALL_DELAY_S_MAX:.0f} seconds"
        )
    if settings.requests_per_s_max < 0:
        raise SettingsError(f"requests a second {settings.requests_per_s_max}: expected 0 or more")
