"""The records behind the console's picture of the fleet. They hold; `view` interprets."""

from collections import deque
from datetime import datetime

from msgspec import Struct, field

from bridge.core import notices
from bridge.core.notices import Attributes, EventNotice, Notice, OutcomeNotice, StatusNotice

# More than one or two outcomes of an event are repetitions and refusals.
OUTCOMES_MAX = 20


class FleetVm(Struct, kw_only=True):
    agent: str
    name: str = ""
    scale_set: str = ""
    zone: str = ""
    location: str = ""
    status: str = ""  # online, offline, blind; silent: nothing heard for too long
    since: datetime  # of the status
    heard_at: datetime
    version: str = ""
    approvals: str = ""  # enforce, shadow or refused
    commands: str = ""  # signed, unsigned or none

    def describe(self, status: StatusNotice) -> bool:
        """Take over what the status says beside itself; True if anything is new."""
        said = (
            status.vm.name,
            status.vm.scale_set,
            status.vm.zone,
            status.vm.location,
            status.version,
            status.approvals,
            status.commands,
        )
        names = ("name", "scale_set", "zone", "location", "version", "approvals", "commands")
        known = tuple(getattr(self, name) for name in names)
        for name, value in zip(names, said, strict=True):
            setattr(self, name, value)
        return known != said


class Telling(Struct, kw_only=True):
    """One VM's newest word about an event."""

    agent: str
    notice: Notice
    data: EventNotice
    payload: bytes  # the CloudEvent as received
    gone: bool = False  # its retained message was cleared, without a word on how it ended

    @property
    def is_over(self) -> bool:
        return self.gone or self.data.is_over

    @property
    def is_sendable(self) -> bool:
        return notices.may_be_sent(self.agent, self.notice)

    def is_newer_than(self, other: Notice) -> bool:
        mine, its = self.notice.attributes, other.attributes
        return mine.source == its.source and bool(its.sequence) and mine.sequence > its.sequence


class Request(Struct, frozen=True, kw_only=True):
    """An approval that left from here."""

    by: str
    at: datetime
    key: str
    command_id: str
    reason: str


class FleetEvent(Struct, kw_only=True):
    first_seen_at: datetime
    tellings: dict[str, Telling] = {}
    outcomes: deque[tuple[Attributes, OutcomeNotice]] = field(
        default_factory=lambda: deque(maxlen=OUTCOMES_MAX)
    )
    request: Request | None = None
    over_at: datetime | None = None

    @property
    def lead(self) -> Telling:
        """Whose word counts: the leader's; of several the newest, and one that still goes on."""
        return max(self.tellings.values(), key=_weight)

    @property
    def is_disputed(self) -> bool:
        """Two machines cannot both lead an event: one of them is not telling the truth."""
        leaders = {t.notice.attributes.source for t in self.tellings.values() if t.data.leader}
        return len(leaders) > 1


def _weight(telling: Telling) -> tuple[bool, bool, str]:
    return telling.data.leader, not telling.gone, telling.notice.attributes.time
