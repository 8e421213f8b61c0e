"""What the simulated scale set consists of: values only, no behaviour and no clock.

The source of each number is Azure's documentation: "Scheduled Events for Linux VMs" (notice and
duration), "Terminate notification for scale sets" (5 to 15 minutes) and "Placement groups" (100).
"""

from datetime import datetime
from typing import Final

from msgspec import Struct

FREEZE: Final = "Freeze"
REBOOT: Final = "Reboot"
REDEPLOY: Final = "Redeploy"
PREEMPT: Final = "Preempt"
TERMINATE: Final = "Terminate"
EVENT_TYPES: Final = (FREEZE, REBOOT, REDEPLOY, PREEMPT, TERMINATE)

SCHEDULED: Final = "Scheduled"
STARTED: Final = "Started"

PLATFORM: Final = "Platform"
USER: Final = "User"

COMPLETED: Final = "Completed"
CANCELED: Final = "Canceled"

POLICIES: Final = ("Default", "NewestVM", "OldestVM")

# "Minimum notice" of each type; Terminate has what the scale set's profile says.
NOTICE_S: Final = {FREEZE: 900, REBOOT: 900, REDEPLOY: 600, PREEMPT: 30}
TERMINATE_NOTIFICATION_S_MIN: Final = 5 * 60
TERMINATE_NOTIFICATION_S_MAX: Final = 15 * 60

# Started to gone: "10 minutes" is the documentation's guideline for maintenance, 5 is what live
# migration takes. A deletion is over sooner; nothing is documented, so these two are a guess.
LASTS_S: Final = {FREEZE: 300, REBOOT: 600, REDEPLOY: 600, PREEMPT: 30, TERMINATE: 60}

# DurationInSeconds is the expected interruption, not the time Started is shown. Host maintenance
# says 9 in the field; the others say -1, unknown or not applicable.
DURATION_IN_SECONDS: Final = {FREEZE: 9, REBOOT: -1, REDEPLOY: -1, PREEMPT: -1, TERMINATE: -1}

# A deletion is asked for by a user, or by the user's autoscale rule.
SOURCE: Final = {FREEZE: PLATFORM, REBOOT: PLATFORM, REDEPLOY: PLATFORM, PREEMPT: PLATFORM} | {
    TERMINATE: USER
}
DESCRIPTION: Final = {
    FREEZE: "Host server is undergoing maintenance.",
    REBOOT: "Host server is undergoing maintenance.",
    REDEPLOY: "Host server is undergoing an emergency repair.",
    # The documentation's spot sample has an empty one.
    PREEMPT: "",
    TERMINATE: "",
}

PLACEMENT_GROUP_VMS_MAX: Final = 100
SCALE_SET_VMS_MAX: Final = 1000
PENDING_MAX: Final = 2000
ENDED_KEPT_MAX: Final = 200


class FleetError(ValueError):
    """The documentation's rules, or plain sense, do not allow what was asked."""


class UnknownScheduledEventError(FleetError):
    """No pending scheduled event has this EventId."""


class AlreadyStartedError(FleetError):
    """What has started can no longer be canceled."""


class Vm(Struct, frozen=True, kw_only=True):
    # "{scale set}_{instance id}", as in `Resources` and in compute.name.
    name: str
    # Stands for age as well: in the documentation's examples a lower id is an older VM.
    instance_id: int
    # Empty for a scale set without zones.
    zone: str
    # Index of the placement group, the scope in which scheduled events are seen.
    group: int
    protected: bool = False
    gone_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        return self.gone_at is None


class ScheduledEvent(Struct, frozen=True, kw_only=True):
    event_id: str
    event_type: str
    resources: tuple[str, ...]
    source: str
    description: str
    # What the document shows: 0 no interruption, -1 unknown.
    duration_in_seconds: int
    # How long it stays Started.
    lasts_s: float
    group: int
    not_before_at: datetime
    approved: bool = False
    started_at: datetime | None = None

    @property
    def is_started(self) -> bool:
        return self.started_at is not None

    @property
    def status(self) -> str:
        return STARTED if self.is_started else SCHEDULED


class Ended(Struct, frozen=True, kw_only=True):
    """What IMDS never tells: how a scheduled event left the document."""

    scheduled_event: ScheduledEvent
    ended_at: datetime
    because: str


class Scope(Struct, frozen=True, kw_only=True):
    """One placement group's document: its number, and when somebody last asked for it."""

    incarnation: int = 1
    polled_at: datetime | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """A scheduled event to be made; what is None comes from the type's defaults."""

    event_type: str
    resources: tuple[str, ...]
    source: str | None = None
    not_before_s: float | None = None
    started: bool = False
    duration_s: int | None = None
    description: str | None = None


class Fleet(Struct, frozen=True, kw_only=True):
    scale_set: str
    policy: str
    spot: bool
    # None: terminate notification is off, and deletions come without notice.
    terminate_notification_s: int | None
    # Notices and durations are divided by it; the clock stays that of the agents.
    shorten: float = 1.0
    vms: tuple[Vm, ...]
    scopes: tuple[Scope, ...]
    # Up to here everything that was due has happened.
    now: datetime
    # EventIds are derived from it; two runs must not share them, agents remember ids for ever.
    seed: str
    made: int = 0
    pending: tuple[ScheduledEvent, ...] = ()
    ended: tuple[Ended, ...] = ()
    resource_group: str = "simulated"
    location: str = "westeurope"
    subscription_id: str = "00000000-0000-4000-8000-000000000000"
