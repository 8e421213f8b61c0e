"""The rules of IMDS for one request: (fleet, VM, request, now) -> (fleet, reply). Pure.

Must not know of sockets, rates or faults; those are the server's. Where the documentation is
silent the choice is said at its place. An error is JSON with `error`, as IMDS words it.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from bridge.simulator import documents
from bridge.simulator import fleet as fleets
from bridge.simulator.model import Fleet, UnknownScheduledEventError, Vm

SCHEDULED_EVENTS: Final = "scheduledevents"
INSTANCE: Final = "instance"
VERSIONS: Final = "versions"

METHODS: Final = {SCHEDULED_EVENTS: ("GET", "POST"), INSTANCE: ("GET",), VERSIONS: ("GET",)}
API_VERSIONS: Final = {
    SCHEDULED_EVENTS: documents.SCHEDULED_EVENTS_VERSIONS,
    INSTANCE: documents.INSTANCE_VERSIONS,
}
NEWEST_SHOWN: Final = 3


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    # Below /metadata: ("scheduledevents",) or ("instance", "compute", "name").
    path: tuple[str, ...]
    # Every pair of the query string, repeated names included.
    query: tuple[tuple[str, str], ...]
    # The values of the two headers that IMDS looks at; None where absent.
    metadata: str | None
    forwarded_for: str | None
    body: bytes = b""

    @property
    def endpoint(self) -> str:
        return self.path[0] if self.path else ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    allow: str = ""


class StartRequest(msgspec.Struct, frozen=True, rename="pascal"):
    event_id: str


class StartRequests(msgspec.Struct, frozen=True, rename="pascal"):
    # Unknown members are let through: old samples also send DocumentIncarnation.
    start_requests: tuple[StartRequest, ...]


def answer(fleet: Fleet, vm: Vm, request: Request, now: datetime) -> tuple[Fleet, Reply]:
    refusal = refuse(request)
    if refusal is not None:
        return fleet, refusal
    if request.endpoint == VERSIONS:
        return fleet, _json(200, {"apiVersions": list(documents.INSTANCE_VERSIONS)})
    if request.endpoint == INSTANCE:
        return fleet, _instance(fleet, vm, request)
    fleet = fleets.poll(fleet, vm, now)
    if request.method == "POST":
        return _approve(fleet, vm, request, now)
    return fleet, _json(200, documents.scheduled_events(fleet, vm, _api_version(request)))


def refuse(request: Request) -> Reply | None:
    """The general rules, in IMDS's order: headers, query, path, verb, version."""
    if (request.metadata or "").strip().lower() != "true":
        return error(400, "Bad request. Required metadata header not specified")
    if request.forwarded_for is not None:
        return error(400, "Bad request. A request with X-Forwarded-For is not for IMDS")
    names = [name for name, _ in request.query]
    if len(set(names)) < len(names):
        return error(400, "Bad request. Duplicate query parameter names")
    if not _exists(request):
        return error(404, f"Not found. There is no /metadata/{'/'.join(request.path)}")
    return _refuse_method(request) or _refuse_version(request)


def event_ids(body: bytes) -> tuple[str, ...]:
    """The EventIds of a StartRequests body; raises msgspec.DecodeError when it is malformed."""
    try:
        decoded = msgspec.json.decode(body, type=StartRequests)
    except (RecursionError, UnicodeDecodeError) as failure:
        raise msgspec.DecodeError(str(failure)) from failure
    if not decoded.start_requests:
        raise msgspec.ValidationError("StartRequests is empty - at `$.StartRequests`")
    return tuple(request.event_id for request in decoded.start_requests)


def error(status: int, message: str, **more: Any) -> Reply:
    return _json(status, {"error": message, **more})


def _exists(request: Request) -> bool:
    # Only instance metadata can be walked down further.
    return request.endpoint in METHODS and (request.endpoint == INSTANCE or len(request.path) == 1)


def _refuse_method(request: Request) -> Reply | None:
    allowed = METHODS[request.endpoint]
    if request.method in allowed:
        return None
    refusal = error(405, f"Method not allowed. {request.method} is not one of {allowed}")
    return msgspec.structs.replace(refusal, allow=", ".join(allowed))


def _refuse_version(request: Request) -> Reply | None:
    versions = API_VERSIONS.get(request.endpoint)
    if versions is None or _api_version(request) in versions:
        return None
    message = "Bad request. api-version is invalid or was not specified in the request"
    return error(400, message, **{"newest-versions": versions[: -NEWEST_SHOWN - 1 : -1]})


def _api_version(request: Request) -> str:
    return dict(request.query).get("api-version", "")


def _approve(fleet: Fleet, vm: Vm, request: Request, now: datetime) -> tuple[Fleet, Reply]:
    """200 for valid ids, approved before or not; 400 for a malformed payload.

    An id that is not pending in this scope is not documented. It cannot be a "valid event ID", so
    it is a 400, and nothing of that request counts.
    """
    try:
        fleet = fleets.approve(fleet, vm, event_ids(request.body), now)
    except (msgspec.DecodeError, UnknownScheduledEventError) as failure:
        return fleet, error(400, f"Bad request. {failure}")
    return fleet, Reply(status=200)


def _instance(fleet: Fleet, vm: Vm, request: Request) -> Reply:
    """Instance metadata, filtered by route parameters: keys of objects, indexes of arrays."""
    node: Any = documents.instance(fleet, vm, _api_version(request))
    for key in request.path[1:]:
        node = _child(node, key)
        if node is None:
            return error(404, f"Not found. There is no /metadata/{'/'.join(request.path)}")
    as_text = dict(request.query).get("format", "json") == "text"
    if as_text:
        return Reply(status=200, body=_text(node).encode(), content_type="text/plain")
    if isinstance(node, str):
        return error(400, "Bad request. A leaf needs format=text")
    return _json(200, node)


def _child(node: Any, key: str) -> Any:
    if isinstance(node, dict):
        return node.get(key)
    if isinstance(node, list) and key.isascii() and key.isdigit() and int(key) < len(node):
        return node[int(key)]
    return None


def _text(node: Any) -> str:
    """A leaf's value, or one line a child, with a slash where it goes on."""
    if isinstance(node, str):
        return node
    children = node.items() if isinstance(node, dict) else enumerate(node)
    return "\n".join(f"{key}{'' if isinstance(child, str) else '/'}" for key, child in children)


def _json(status: int, body: Any) -> Reply:
    return Reply(status=status, body=msgspec.json.encode(body))
