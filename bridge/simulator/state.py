"""GET /control/state: everything, the part that no VM can see included."""

from datetime import datetime
from typing import Any

from bridge.simulator import fleet as fleets
from bridge.simulator.model import Fleet, ScheduledEvent, Vm
from bridge.simulator.world import World


def describe(world: World, now: datetime) -> dict[str, Any]:
    fleet = world.fleet
    return {
        "clock": {"now": now, "speed": world.clock.speed},
        "scaleSet": _scale_set(fleet),
        "vms": [_vm(vm) for vm in fleet.vms],
        "events": [_scheduled_event(fleet, scheduled) for scheduled in fleet.pending],
        "ended": [
            _scheduled_event(fleet, ended.scheduled_event)
            | {"endedAt": ended.ended_at, "because": ended.because}
            for ended in fleet.ended
        ],
        "placementGroups": [
            {"documentIncarnation": scope.incarnation, "polledAt": scope.polled_at}
            for scope in fleet.scopes
        ],
        "requests": world.requests,
        "startRequests": list(world.start_requests),
        "faults": world.faults,
        "scenario": {"name": world.settings.scenario, "stepsLeft": len(world.steps)},
    }


def _scale_set(fleet: Fleet) -> dict[str, Any]:
    return {
        "name": fleet.scale_set,
        "policy": fleet.policy,
        "spot": fleet.spot,
        "terminateNotificationS": fleet.terminate_notification_s,
        "shorten": fleet.shorten,
        "resourceGroup": fleet.resource_group,
        "location": fleet.location,
    }


def _vm(vm: Vm) -> dict[str, Any]:
    return {
        "name": vm.name,
        "instanceId": vm.instance_id,
        "zone": vm.zone,
        "placementGroup": vm.group,
        "protected": vm.protected,
        "state": "running" if vm.is_running else "gone",
        "goneAt": vm.gone_at,
        "endpoint": f"/vm/{vm.name}",
    }


def _scheduled_event(fleet: Fleet, scheduled: ScheduledEvent) -> dict[str, Any]:
    return {
        "eventId": scheduled.event_id,
        "type": scheduled.event_type,
        "resources": scheduled.resources,
        "status": scheduled.status,
        "source": scheduled.source,
        "notBefore": scheduled.not_before_at,
        "approved": scheduled.approved,
        "waitingOn": fleets.waiting_on(fleet, scheduled),
        "startedAt": scheduled.started_at,
        "lastsS": scheduled.lasts_s,
        "durationInSeconds": scheduled.duration_in_seconds,
        "description": scheduled.description,
    }
