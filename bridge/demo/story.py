"""What happens in the demo, and when: data only. Nobody's clock is read here.

Two scale sets, because spot VMs get no Terminate. `web` runs in time lapse; `batch` does not, since
half a minute of notice for an eviction is short enough.
"""

from typing import Final

from msgspec import Struct

from bridge.simulator.model import FREEZE, PREEMPT, REBOOT, REDEPLOY, TERMINATE
from bridge.simulator.settings import Settings

SHORTEN: Final = 10.0
RESOURCE_GROUP: Final = "demo"

WEB: Final = Settings(
    scale_set="web",
    instances="1:1,4;2:2,5;3:3",
    policy="OldestVM",
    terminate_notification="PT15M",
    shorten=SHORTEN,
    resource_group=RESOURCE_GROUP,
)
BATCH: Final = Settings(
    scale_set="batch", instances="1:6;2:7", spot=True, resource_group=RESOURCE_GROUP
)
SCALE_SETS: Final = (WEB, BATCH)

AUTO_RULE: Final = "freezes go at once"
# Whose audit trail the screen offers: the rule approves there early in the story.
AUDITED: Final = "web_3"
# What the screen asks its viewer about: a rule speaks for Freeze, and Preempt is over too soon.
FOR_PEOPLE: Final = (REBOOT, REDEPLOY, TERMINATE)


class ScaleIn(Struct, frozen=True, kw_only=True):
    count: int


class Announce(Struct, frozen=True, kw_only=True):
    event_type: str
    vm: str


class Cancel(Struct, frozen=True, kw_only=True):
    """Azure takes back what it announced for this VM."""

    vm: str


class Crash(Struct, frozen=True, kw_only=True):
    """SIGKILL for the agent; its service manager starts it again."""

    vm: str
    down_s: float


class Beat(Struct, frozen=True, kw_only=True):
    # Real seconds after all agents are online.
    at_s: float
    action: ScaleIn | Announce | Cancel | Crash
    # `{names}` are the VMs that a scale-in has picked.
    says: str


STORY: Final = (
    Beat(
        at_s=2,
        action=ScaleIn(count=2),
        says="Autoscale removes two VMs. Zones 1 and 2 have the most, the policy is OldestVM:"
        " {names}. They go together: when both are approved, or at NotBefore.",
    ),
    Beat(
        at_s=12,
        action=Announce(event_type=FREEZE, vm="web_3"),
        says="Host maintenance will pause web_3. A rule of the agents approves freezes at once.",
    ),
    Beat(
        at_s=24,
        action=Announce(event_type=REBOOT, vm="web_4"),
        says="The host of web_4 needs a reboot. No rule speaks for it: you decide.",
    ),
    Beat(
        at_s=36,
        action=Announce(event_type=PREEMPT, vm="batch_6"),
        says="The spot VM batch_6 is wanted back in 30 seconds. Nobody can stop that.",
    ),
    Beat(
        at_s=50,
        action=Crash(vm="web_4", down_s=10),
        says="The agent on web_4 is killed (SIGKILL). An approval sent to it now waits in the"
        " broker until it is back.",
    ),
    Beat(
        at_s=66,
        action=Announce(event_type=REDEPLOY, vm="web_5"),
        says="web_5 is to move to another host. Let us see whether it does.",
    ),
    Beat(
        at_s=82,
        action=Cancel(vm="web_5"),
        says="The move of web_5 is called off.",
    ),
)
