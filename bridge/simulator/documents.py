"""What a VM reads from its IMDS: the scheduled events document and instance metadata. Pure.

The two have separate lists of api-versions, and each version its own fields; ISO dates compare
as text. Sources: "Scheduled Events for Linux VMs" and "Azure Instance Metadata Service".
"""

import uuid
from collections.abc import Mapping
from email.utils import format_datetime
from typing import Any, Final

from bridge.simulator.model import PREEMPT, TERMINATE, Fleet, ScheduledEvent, Vm

SCHEDULED_EVENTS_VERSIONS: Final = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
# fmt: off
INSTANCE_VERSIONS: Final = (
    "2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01",
    "2018-04-02", "2018-10-01", "2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01",
    "2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01", "2020-06-01", "2020-07-15",
    "2020-09-01", "2020-10-01", "2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01",
    "2021-05-01", "2021-08-01", "2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13",
    "2023-07-01", "2023-11-15", "2024-03-15", "2024-07-17", "2025-04-07",
)
# fmt: on

UNDERSCORE_UNTIL: Final = "2017-08-01"
TYPE_SINCE: Final = {PREEMPT: "2017-11-01", TERMINATE: "2019-01-01"}
FIELD_SINCE: Final = {
    "Description": "2019-04-01",
    "EventSource": "2019-08-01",
    "DurationInSeconds": "2020-07-01",
}
COMPUTE_SINCE: Final = {
    "azEnvironment": "2018-10-01",
    "evictionPolicy": "2020-12-01",
    "osProfile": "2020-07-15",
    "physicalZone": "2023-11-15",
    "placementGroupId": "2017-08-01",
    "priority": "2020-12-01",
    "provider": "2018-10-01",
    "resourceGroupName": "2017-08-01",
    "resourceId": "2019-03-11",
    "subscriptionId": "2017-08-01",
    "tags": "2017-08-01",
    "tagsList": "2019-06-04",
    "vmScaleSetName": "2017-12-01",
    "zone": "2017-12-01",
}

BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def scheduled_events(fleet: Fleet, vm: Vm, api_version: str) -> dict[str, Any]:
    """The document of the VM's placement group, as this api-version shows it."""
    return {
        "DocumentIncarnation": fleet.scopes[vm.group].incarnation,
        "Events": [
            _entry(scheduled, api_version)
            for scheduled in fleet.pending
            if scheduled.group == vm.group
            and api_version >= TYPE_SINCE.get(scheduled.event_type, "")
        ],
    }


def _entry(scheduled: ScheduledEvent, api_version: str) -> dict[str, Any]:
    prefix = "_" if api_version < UNDERSCORE_UNTIL else ""
    not_before_at = scheduled.not_before_at
    entry = {
        "EventId": scheduled.event_id,
        "EventStatus": scheduled.status,
        "EventType": scheduled.event_type,
        "ResourceType": "VirtualMachine",
        "Resources": [prefix + name for name in scheduled.resources],
        "NotBefore": "" if scheduled.is_started else format_datetime(not_before_at, usegmt=True),
        "Description": scheduled.description,
        "EventSource": scheduled.source,
        "DurationInSeconds": scheduled.duration_in_seconds,
    }
    return _known_to(api_version, entry, FIELD_SINCE)


def instance(fleet: Fleet, vm: Vm, api_version: str) -> dict[str, Any]:
    """Instance metadata; "all primitives will be of type string", missing ones are empty."""
    compute = _known_to(api_version, _compute(fleet, vm), COMPUTE_SINCE)
    return {"compute": compute, "network": _network(vm)}


def _known_to(
    api_version: str, fields: Mapping[str, Any], since: Mapping[str, str]
) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if api_version >= since.get(name, "")}


def _compute(fleet: Fleet, vm: Vm) -> dict[str, Any]:
    scale_set_id = (
        f"/subscriptions/{fleet.subscription_id}/resourceGroups/{fleet.resource_group}"
        f"/providers/Microsoft.Compute/virtualMachineScaleSets/{fleet.scale_set}"
    )
    resource_id = f"{scale_set_id}/virtualMachines/{vm.instance_id}"
    return {
        "azEnvironment": "AzurePublicCloud",
        "evictionPolicy": "Delete" if fleet.spot else "",
        "location": fleet.location,
        "name": vm.name,
        "offer": "debian-12",
        "osProfile": {"adminUsername": "azureuser", "computerName": host_name(fleet, vm)},
        "osType": "Linux",
        "physicalZone": f"{fleet.location}-az{vm.zone}" if vm.zone else "",
        "placementGroupId": _stable_id(f"{scale_set_id}/placementGroups/{vm.group}"),
        "platformFaultDomain": "0",
        "platformUpdateDomain": "0",
        "priority": "Spot" if fleet.spot else "Regular",
        "provider": "Microsoft.Compute",
        "publisher": "Debian",
        "resourceGroupName": fleet.resource_group,
        "resourceId": resource_id,
        "sku": "12-gen2",
        "subscriptionId": fleet.subscription_id,
        "tags": "",
        "tagsList": [],
        "version": "latest",
        "vmId": _stable_id(resource_id),
        "vmScaleSetName": fleet.scale_set,
        "vmSize": "Standard_D2s_v5",
        "zone": vm.zone,
    }


def host_name(fleet: Fleet, vm: Vm) -> str:
    """Prefix and base-36 id: on a scale set the host name is not the name in Resources."""
    digits, left = "", vm.instance_id
    while left:
        left, digit = divmod(left, 36)
        digits = BASE_36[digit] + digits
    return fleet.scale_set + digits.rjust(6, "0")


def _network(vm: Vm) -> dict[str, Any]:
    subnet = {"address": "10.0.0.0", "prefix": "16"}
    host = vm.instance_id + 4
    address = f"10.0.{host // 256 % 256}.{host % 256}"
    ipv4 = {
        "ipAddress": [{"privateIpAddress": address, "publicIpAddress": ""}],
        "subnet": [subnet],
    }
    mac = f"000D3A{vm.instance_id % 0x1000000:06X}"
    return {"interface": [{"ipv4": ipv4, "ipv6": {"ipAddress": []}, "macAddress": mac}]}


def _stable_id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))
