"""Bicep and ARM JSON: the same template, and what it must say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bridge.version import VERSION
from tests.support.bicep import to_arm
from tests.support.guest_agent import NAME

FOLDER = Path(__file__).parents[2] / "deploy/azure"
ROLES = {
    "2b629674-e913-4c01-ae53-ef4638d8f975": "eventHubsNamespace",  # Data Sender
    "a638d3c7-ab3a-418d-83e6-5f17a39d4fde": "eventHubsNamespace",  # Data Receiver
    "a12b0b94-b317-4dcd-84a8-502ce99884c6": "eventGridNamespace",  # TopicSpaces Publisher
    "4b0f2fd7-60b4-4eca-896f-4435034f8bf5": "eventGridNamespace",  # TopicSpaces Subscriber
}


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "scale-set.json").read_text())
    return loaded


def of_type(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [resource for resource in template["resources"] if resource["type"] == kind]


@pytest.fixture(scope="module")
def scale_set(template: dict[str, Any]) -> dict[str, Any]:
    (found,) = of_type(template, "Microsoft.Compute/virtualMachineScaleSets")
    return found


def test_bicep_and_json_are_the_same_template(template: dict[str, Any]) -> None:
    """Whoever deploys one gets what the other says, expression by expression."""
    assert to_arm(FOLDER / "scale-set.bicep") == template


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("enable: true", "enable: false"),
        ("capacity: instanceCount", "capacity: 3"),
        ("PT15M", "PT20M"),
    ],
)
def test_comparison_sees_a_change(tmp_path: Path, before: str, after: str) -> None:
    """It cannot pass by not looking: a value, an expression, a parameter."""
    text = (FOLDER / "scale-set.bicep").read_text()
    changed = tmp_path / "changed.bicep"
    changed.write_text(text.replace(before, after))

    assert to_arm(changed) != to_arm(FOLDER / "scale-set.bicep")


def test_vms_are_told_before_they_are_deleted(
    template: dict[str, Any], scale_set: dict[str, Any]
) -> None:
    """Azure takes five to fifteen minutes, and only where the profile is on."""
    profile = scale_set["properties"]["virtualMachineProfile"]["scheduledEventsProfile"]
    allowed = template["parameters"]["terminateNotification"]["allowedValues"]

    expected = {"enable": True, "notBeforeTimeout": "[parameters('terminateNotification')]"}
    assert {"terminateNotificationProfile": expected} == profile
    assert all(5 <= int(re.fullmatch(r"PT(\d+)M", value)[1]) <= 15 for value in allowed)  # type: ignore[index]


def test_scale_in_waits_for_the_vms(template: dict[str, Any], scale_set: dict[str, Any]) -> None:
    """Forced deletion would pass over the notice."""
    policy = scale_set["properties"]["scaleInPolicy"]

    assert {"rules": ["[parameters('scaleInRule')]"], "forceDeletion": False} == policy
    allowed = template["parameters"]["scaleInRule"]["allowedValues"]
    assert {"Default", "NewestVM", "OldestVM"} == set(allowed)


def test_identity_may_use_the_brokers_and_no_more(template: dict[str, Any]) -> None:
    """Four roles on data, each on its own namespace; none that manages anything."""
    found = {}
    for assignment in of_type(template, "Microsoft.Authorization/roleAssignments"):
        properties = assignment["properties"]
        role = re.findall(r"'([0-9a-f-]{36})'", properties["roleDefinitionId"])[0]
        found[role] = re.findall(r"parameters\('(\w+)'\)", assignment["scope"])[0]
        assert "userAssignedIdentities" in properties["principalId"]
        assert f"[not(empty(parameters('{found[role]}')))]" == assignment["condition"]

    assert ROLES == found


def test_vms_carry_the_identity_that_has_the_roles(
    template: dict[str, Any], scale_set: dict[str, Any]
) -> None:
    """The agent asks for tokens of this identity."""
    (identity,) = of_type(template, "Microsoft.ManagedIdentity/userAssignedIdentities")
    (carried,) = scale_set["identity"]["userAssignedIdentities"]

    assert "UserAssigned" == scale_set["identity"]["type"]
    assert identity["name"].strip("[]") in carried


def test_secrets_are_only_in_protected_settings(template: dict[str, Any]) -> None:
    """What is secure is never shown: a secure parameter, used in one place."""
    secure = [k for k, p in template["parameters"].items() if p["type"].startswith("secure")]
    (extension,) = of_type(template, "Microsoft.Compute/virtualMachineScaleSets/extensions")

    assert ["extensionProtectedSettings"] == secure
    use = "[parameters('extensionProtectedSettings')]"
    assert use == extension["properties"]["protectedSettings"]
    assert 1 == json.dumps(template).count("parameters('extensionProtectedSettings')")


def test_extension_is_the_one_that_is_built(template: dict[str, Any]) -> None:
    """Publisher, type and version are those of the package."""
    (extension,) = of_type(template, "Microsoft.Compute/virtualMachineScaleSets/extensions")
    properties = extension["properties"]

    assert NAME == f"{properties['publisher']}.{properties['type']}"
    assert VERSION.rpartition(".")[0] == properties["typeHandlerVersion"]


def test_application_that_fails_fails_the_deployment(template: dict[str, Any]) -> None:
    """Otherwise Azure reports success for a VM without an agent."""
    (application,) = template["variables"]["applications"]

    assert application["treatFailureAsDeploymentFailure"] is True
