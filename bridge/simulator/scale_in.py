"""Which VMs a scale-in deletes. Pure.

"Use custom scale-in policies with scale sets": zones are balanced first, by deleting from the
zones with the most VMs; among those the policy chooses; protected instances are never chosen.
"""

from collections import Counter
from collections.abc import Sequence

from bridge.simulator.model import Vm


def select(vms: Sequence[Vm], policy: str, count: int) -> tuple[Vm, ...]:
    """Up to `count` VMs in the order in which they are deleted; fewer when protection says so."""
    remaining = list(vms)
    selected: list[Vm] = []
    while len(selected) < count:
        candidates = _candidates(remaining)
        if not candidates:
            break
        # Default goes by the highest instance id once zones are balanced; fault domains, its
        # best-effort second step, cannot be seen from inside a VM and are not simulated.
        pick = min if policy == "OldestVM" else max
        victim = pick(candidates, key=lambda vm: vm.instance_id)
        remaining.remove(victim)
        selected.append(victim)
    return tuple(selected)


def _candidates(vms: Sequence[Vm]) -> list[Vm]:
    """The unprotected VMs of the fullest zones that have any.

    Protected VMs count for their zone's size: balance is about what runs, not what may go.
    """
    unprotected = [vm for vm in vms if not vm.protected]
    if not unprotected:
        return []
    sizes = Counter(vm.zone for vm in vms)
    fullest = max(sizes[vm.zone] for vm in unprotected)
    return [vm for vm in unprotected if sizes[vm.zone] == fullest]
