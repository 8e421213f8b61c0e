"""Faults on order: what IMDS does wrong for the next few requests, and whether it still acted."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from bridge.simulator.imds import Reply, Request, error

# Ends in the middle, and in the middle of a character, too.
GARBAGE: Final = b'{"DocumentIncarnation": 7, "Events": [{"EventId": "\xc3'

# A request that is answered badly was still taken, as with a lost answer; one that is turned
# away with a status or cut off was not. `taken` says otherwise.
TAKEN: Final = {
    "status": False,
    "reset": False,
    "delay": True,
    "empty": True,
    "garbage": True,
    "drop": True,
}


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """As POST /control/faults takes it and GET /control/state shows it."""

    kind: Literal["status", "delay", "empty", "garbage", "drop", "reset"]
    # None: every VM.
    vm: str | None = None
    # None: both.
    method: Literal["GET", "POST"] | None = None
    endpoint: Literal["scheduledevents", "instance"] = "scheduledevents"
    # For kind "status" alone, and needed there.
    status: Annotated[int, Meta(ge=200, le=599)] | None = None
    # Real seconds before the answer, or before the end without one; kind "delay" needs it.
    delay_s: Annotated[float, Meta(gt=0, le=3600)] | None = None
    count: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    taken: bool | None = None

    def __post_init__(self) -> None:
        if (self.kind == "status") != (self.status is not None):
            raise ValueError("`status` goes with kind `status`, and only with it - at `$.status`")
        if self.kind == "delay" and self.delay_s is None:
            raise ValueError("kind `delay` needs a `delayS` - at `$.delayS`")

    @property
    def is_taken(self) -> bool:
        return TAKEN[self.kind] if self.taken is None else self.taken

    def hits(self, vm: str, request: Request) -> bool:
        return (
            self.vm in (None, vm)
            and self.method in (None, request.method)
            and self.endpoint == request.endpoint
        )

    def spoil(self, reply: Reply | None) -> Reply | None:
        """What goes out in place of the true reply; None: nothing does."""
        match self.kind:
            case "status":
                assert self.status is not None
                return error(self.status, f"Simulated fault: status {self.status}")
            case "empty":
                return Reply(status=200)
            case "garbage":
                return Reply(status=200, body=GARBAGE)
            case "delay":
                return reply
            case "drop" | "reset":
                return None
