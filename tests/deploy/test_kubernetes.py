"""The DaemonSet, as it is and with the host-network overlay, under the API's own schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bridge import configfile

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
OVERLAY = FOLDER / "overlays/host-network/kustomization.yaml"
VERSION = kubernetes_validate.latest_version()


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def pod_of(daemonset: dict[str, Any]) -> Any:
    return daemonset["spec"]["template"]["spec"]


def resources() -> Iterator[tuple[str, Any]]:
    base = load(FOLDER / "base/kustomization.yaml")
    for name in base["resources"]:
        yield name, load(FOLDER / "base" / name)
    yield "host network", on_host_network()


def on_host_network() -> Any:
    """The DaemonSet after the overlay's JSON patch."""
    daemonset = load(FOLDER / "base/daemonset.yaml")
    (patch,) = load(OVERLAY)["patches"]
    for operation in yaml.safe_load(patch["patch"]):
        *path, last = operation["path"].strip("/").split("/")
        place = daemonset
        for key in path:
            place = place[int(key) if isinstance(place, list) else key]
        assert (last in place) == (operation["op"] == "replace"), operation
        place[last] = operation["value"]
    return daemonset


@pytest.fixture(params=["base", "host network"])
def daemonset(request: pytest.FixtureRequest) -> Any:
    if request.param == "base":
        return load(FOLDER / "base/daemonset.yaml")
    return on_host_network()


@pytest.mark.parametrize("resource", [r for _, r in resources()], ids=[n for n, _ in resources()])
def test_resource_is_valid(resource: Any) -> None:
    """Strictly: unknown fields are errors."""
    kubernetes_validate.validate(resource, VERSION, strict=True)


def test_validation_can_fail() -> None:
    """A misspelt field is found, so the test above means something."""
    broken = on_host_network()
    pod_of(broken)["hostNetwrok"] = True

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


def test_every_file_is_part_of_the_kustomization() -> None:
    """A manifest that nobody applies would be a lie."""
    base = load(FOLDER / "base/kustomization.yaml")
    named = {*base["resources"], *base["configMapGenerator"][0]["files"]}

    assert named == {p.name for p in (FOLDER / "base").iterdir()} - {"kustomization.yaml"}
    assert ["../../base"] == load(OVERLAY)["resources"]


def test_agent_runs_on_every_node_until_the_end(daemonset: Any) -> None:
    """Tainted and drained nodes are the ones that need it."""
    pod = pod_of(daemonset)

    assert [{"operator": "Exists"}] == pod["tolerations"]
    assert "system-node-critical" == pod["priorityClassName"]
    assert pod["terminationGracePeriodSeconds"] > 10


def test_agent_may_do_nothing_it_does_not_need(daemonset: Any) -> None:
    """No root, no capability, no writable root, no token of the API."""
    pod = pod_of(daemonset)
    (agent,) = pod["containers"]
    (init,) = pod["initContainers"]

    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "RuntimeDefault" == pod["securityContext"]["seccompProfile"]["type"]
    expected = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert expected == agent["securityContext"]
    assert {"drop": ["ALL"], "add": ["CHOWN"]} == init["securityContext"]["capabilities"]


def test_ledger_lies_on_the_node(daemonset: Any) -> None:
    """What was approved must be known to the next pod, too."""
    pod = pod_of(daemonset)
    (state,) = (v for v in pod["volumes"] if v["name"] == "state")
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "state")
    config = configfile.load(str(FOLDER / "base/config.toml"), {})

    assert "DirectoryOrCreate" == state["hostPath"]["type"]
    assert Path(mount["mountPath"]) == Path(config.store.path).parent


def test_probes_ask_where_the_agent_listens(daemonset: Any) -> None:
    """On the host's network the port is on the loopback address, and the kubelet asks there."""
    pod = pod_of(daemonset)
    agent = pod["containers"][0]
    host, _, port = agent["env"][0]["value"].partition(":")
    probes = [agent[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]

    assert "SEBRIDGE_HTTP__LISTEN" == agent["env"][0]["name"]
    assert ["/healthz", "/healthz", "/readyz"] == [probe["path"] for probe in probes]
    assert {int(port)} == {probe["port"] for probe in probes}
    on_host = pod.get("hostNetwork", False)
    assert ("127.0.0.1" if on_host else "0.0.0.0") == host
    assert {"127.0.0.1" if on_host else None} == {probe.get("host") for probe in probes}
