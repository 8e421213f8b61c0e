"""docs/asyncapi.yaml: whole in itself, and of one mind with the code, the schemas and events.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft7Validator

from bridge.config import EventHubs, Mqtt
from bridge.core import topics

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT: dict[str, Any] = yaml.safe_load((DOCS / "asyncapi.yaml").read_text(encoding="utf-8"))
CHANNELS: dict[str, Any] = DOCUMENT["channels"]
OPERATIONS: dict[str, Any] = DOCUMENT["operations"]
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(found := value.get("$ref"), str):
            yield found
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def resolve(reference: str) -> Any:
    """What a reference points at; KeyError or an I/O error when it points nowhere."""
    place, _, pointer = reference.partition("#")
    found: Any = msgspec.json.decode((DOCS / place).read_bytes()) if place else DOCUMENT
    for part in pointer.split("/")[1:]:
        found = found[part]
    return found


def schema_of(message: str) -> dict[str, Any]:
    payload = MESSAGES[message]["payload"]
    found: dict[str, Any] = resolve(payload["schema"]["$ref"]) if "schema" in payload else payload
    return found


def test_every_reference_leads_somewhere() -> None:
    """Nothing in the document points at what is not there."""
    found = list(references(DOCUMENT))

    assert len(found) > 20
    for reference in found:
        assert resolve(reference), reference


def test_every_schema_is_used() -> None:
    """No message has a schema that the document does not show."""
    used = {reference for reference in references(DOCUMENT) if not reference.startswith("#")}

    assert {f"./schemas/{path.name}" for path in (DOCS / "schemas").iterdir()} == used


def test_required_parts_are_there() -> None:
    """AsyncAPI 3.0 asks for a version and an info; a reader asks for a word on everything."""
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert {"title", "version", "description"} <= DOCUMENT["info"].keys()
    assert all({"host", "protocol"} <= server.keys() for server in DOCUMENT["servers"].values())
    for channel in CHANNELS.values():
        assert {"address", "description", "messages"} <= channel.keys()
    for message in MESSAGES.values():
        assert {"name", "title", "contentType", "payload"} <= message.keys()


@pytest.mark.parametrize("name", CHANNELS)
def test_address_and_parameters_agree(name: str) -> None:
    """Each parameter of an address is explained, and none besides."""
    inside = re.findall(r"\{(\w+)\}", CHANNELS[name]["address"])

    assert sorted(inside) == sorted(CHANNELS[name].get("parameters", ()))


def addresses_at(server: str) -> dict[str, str]:
    wanted = [{"$ref": f"#/servers/{server}"}]
    return {name: c["address"] for name, c in CHANNELS.items() if c["servers"] == wanted}


def test_hubs_are_those_of_the_configuration() -> None:
    """The other addresses are the default names of the two hubs."""
    hubs = EventHubs()

    assert {"eventsHub": hubs.events_hub, "commandsHub": hubs.commands_hub} == addresses_at(
        "eventhubs"
    )
    assert len(addresses_at("eventhubs") | addresses_at("broker")) == len(CHANNELS)


def test_channels_are_the_topics_of_the_program() -> None:
    """The addresses are those that the MQTT transport uses below the default root."""
    root = Mqtt().topic_root

    addresses = addresses_at("broker")

    plain = {name: f"{root}/{name}" for name in ("events", "outcomes", "status", "commands")}
    pending = topics.pending(root, "EVENT").replace("EVENT", "{event_id}")
    assert {**plain, "pending": pending} == addresses


def table(heading: str) -> list[list[str]]:
    text = (DOCS / "events.md").read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    rows = [line for line in text.partition("\n#")[0].splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows[2:]]


@pytest.mark.parametrize("row", table("Topics"), ids=lambda row: str(row[0]))
def test_operations_agree_with_the_table_of_topics(row: list[str]) -> None:
    """Direction and retain flag are those that events.md promises; QoS is 1 throughout."""
    topic, retained, direction, _ = row
    channel = topic.split("/")[1]
    (operation,) = (
        operation
        for operation in OPERATIONS.values()
        if operation["channel"] == {"$ref": f"#/channels/{channel}"}
    )

    assert ("send" if direction.startswith("out") else "receive") == operation["action"]
    assert (retained == "yes") == operation["bindings"]["mqtt"]["retain"]
    assert operation["bindings"]["mqtt"]["qos"] == 1


def test_every_channel_has_one_operation() -> None:
    """What is described is also done."""
    used = sorted(operation["channel"]["$ref"] for operation in OPERATIONS.values())

    assert sorted(f"#/channels/{name}" for name in CHANNELS) == used


def test_last_will_is_the_status() -> None:
    """The broker speaks for an agent that vanished, where the agent would."""
    will = DOCUMENT["servers"]["broker"]["bindings"]["mqtt"]["lastWill"]

    assert CHANNELS["status"]["address"] == will["topic"]
    assert (1, True) == (will["qos"], will["retain"])


def test_session_is_what_the_configuration_says() -> None:
    """Defaults in the document are the defaults of `[mqtt]`."""
    binding = DOCUMENT["servers"]["broker"]["bindings"]["mqtt"]
    defaults = Mqtt()

    assert f"{defaults.host}:{defaults.port}" == DOCUMENT["servers"]["broker"]["host"]
    assert defaults.keepalive_s == binding["keepAlive"]
    assert defaults.session_expiry_s == binding["sessionExpiryInterval"]
    assert binding["cleanSession"] is False


@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "cleared"])
def test_examples_follow_their_schema(name: str) -> None:
    """Each message shows at least one example, and it is valid."""
    validator = Draft7Validator(schema_of(name))

    assert MESSAGES[name]["examples"]
    for example in MESSAGES[name]["examples"]:
        validator.validate(example["payload"])


@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "cleared"])
def test_correlation_points_at_an_attribute(name: str) -> None:
    """A correlation id is looked up in the payload, where there is such a field."""
    correlation = MESSAGES[name].get("correlationId")
    if correlation:
        field = correlation["location"].removeprefix("$message.payload#/")
        assert field in schema_of(name)["properties"]
