"""The control API: the hand of Azure, over HTTP. JSON both ways; an error says what and where."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bridge.simulator import fleet as fleets
from bridge.simulator.clock import ClockError
from bridge.simulator.faults import Fault
from bridge.simulator.model import (
    AlreadyStartedError,
    FleetError,
    Plan,
    UnknownScheduledEventError,
)
from bridge.simulator.settings import SPEED_MAX
from bridge.simulator.state import describe
from bridge.simulator.world import FAULTS_MAX, World

WORLD = web.AppKey("world", World)

# A year at once: enough to see the 24 h switch-off and a failure predicted for next week.
ADVANCE_S_MAX = 366 * 24 * 3600
NOT_BEFORE_S_MAX = 30 * 24 * 3600

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Typing errors in a test must not pass for success, so unknown members are refused."""


class ScaleInBody(Body, frozen=True):
    count: Annotated[int, Meta(ge=1, le=1000)]


class ProtectBody(Body, frozen=True):
    vm: str
    protected: bool


class EventBody(Body, frozen=True):
    type: Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
    resources: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    source: Literal["Platform", "User"] | None = None
    # Less than the minimum notice is allowed by hand: Azure itself has given less.
    not_before_s: Annotated[float, Meta(ge=0, le=NOT_BEFORE_S_MAX)] | None = None
    status: Literal["Scheduled", "Started"] = "Scheduled"
    duration_s: Annotated[int, Meta(ge=-1, le=24 * 3600)] | None = None
    description: Annotated[str, Meta(max_length=1000)] | None = None


class ClockBody(Body, frozen=True):
    speed: Annotated[float, Meta(ge=0, le=SPEED_MAX)] | None = None
    advance_s: Annotated[float, Meta(ge=0, le=ADVANCE_S_MAX)] | None = None


def add_routes(app: web.Application) -> None:
    app.router.add_get("/control/state", get_state)
    app.router.add_post("/control/scale-in", post_scale_in)
    app.router.add_post("/control/protect", post_protect)
    app.router.add_post("/control/events", post_event)
    app.router.add_delete("/control/events/{event_id}", delete_event)
    app.router.add_post("/control/clock", post_clock)
    app.router.add_post("/control/faults", post_fault)
    app.router.add_delete("/control/faults", delete_faults)


async def get_state(request: web.Request) -> web.Response:
    world = request.app[WORLD]
    return _json(describe(world, world.advance()))


async def post_scale_in(request: web.Request) -> web.Response:
    world, body = request.app[WORLD], await _body(request, ScaleInBody)
    # Always in this order: advancing may put another fleet in the world's place.
    now = world.advance()
    world.fleet, selected = fleets.scale_in(world.fleet, body.count, now)
    return _json({"selected": selected})


async def post_protect(request: web.Request) -> web.Response:
    world, body = request.app[WORLD], await _body(request, ProtectBody)
    now = world.advance()
    _check_running(world, body.vm, "$.vm")
    world.fleet = fleets.protect(world.fleet, body.vm, body.protected, now)
    return _json({"vm": body.vm, "protected": body.protected})


async def post_event(request: web.Request) -> web.Response:
    world, body = request.app[WORLD], await _body(request, EventBody)
    now = world.advance()
    for index, name in enumerate(body.resources):
        _check_running(world, name, f"$.resources[{index}]")
    plan = Plan(
        event_type=body.type,
        resources=body.resources,
        source=body.source,
        not_before_s=body.not_before_s,
        started=body.status == "Started",
        duration_s=body.duration_s,
        description=body.description,
    )
    world.fleet, event_id = fleets.schedule(world.fleet, plan, now)
    return _json({"eventId": event_id})


async def delete_event(request: web.Request) -> web.Response:
    world, event_id = request.app[WORLD], request.match_info["event_id"]
    now = world.advance()
    world.fleet = fleets.cancel(world.fleet, event_id, now)
    return _json({"canceled": event_id})


async def post_clock(request: web.Request) -> web.Response:
    world, body = request.app[WORLD], await _body(request, ClockBody)
    if body.speed is None and body.advance_s is None:
        raise msgspec.ValidationError("Expected `speed` or `advanceS` - at `$`")
    world.advance()
    if body.advance_s is not None:
        world.clock.advance(body.advance_s)
    if body.speed is not None:
        world.clock.set_speed(body.speed)
    return _json({"now": world.advance(), "speed": world.clock.speed})


async def post_fault(request: web.Request) -> web.Response:
    world, fault = request.app[WORLD], await _body(request, Fault)
    world.advance()
    if fault.vm is not None:
        _check_running(world, fault.vm, "$.vm")
    if len(world.faults) >= FAULTS_MAX:
        raise FleetError(f"{FAULTS_MAX} faults wait for their turn, that is the limit")
    world.faults.append(fault)
    return _json({"faults": world.faults})


async def delete_faults(request: web.Request) -> web.Response:
    request.app[WORLD].faults.clear()
    return _json({"faults": []})


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except UnknownScheduledEventError as failure:
        return _json({"error": str(failure)}, 404)
    except AlreadyStartedError as failure:
        return _json({"error": str(failure)}, 409)
    except (FleetError, ClockError, msgspec.DecodeError) as failure:
        return _json({"error": str(failure)}, 400)
    except web.HTTPException as failure:
        response = _json({"error": f"{failure.reason}: {request.method} {request.path}"})
        response.set_status(failure.status)
        response.headers.extend({k: v for k, v in failure.headers.items() if k == "Allow"})
        return response


async def _body(request: web.Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (RecursionError, UnicodeDecodeError) as failure:
        raise msgspec.DecodeError(f"JSON is malformed: {failure}") from failure


def _check_running(world: World, name: str, where: str) -> None:
    if not any(vm.name == name and vm.is_running for vm in world.fleet.vms):
        raise FleetError(f"no running VM is called {name!r} - at `{where}`")


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )
