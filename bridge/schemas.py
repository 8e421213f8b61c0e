"""JSON Schemas of every message, made from the structs: `python -m bridge.schemas docs/schemas`.

The structs say which fields there are and their comments say what they mean; here is only what a
struct cannot say: that empty fields are absent, and which lists of values are closed. Nothing in
the running agent imports this.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from bridge.core import approvals, cloudevents, commands, diff
from bridge.core.cloudevents import EventData, OutcomeData, StatusData

Schema = dict[str, Any]

_DIALECT = "http://json-schema.org/draft-07/schema#"  # the one that AsyncAPI 3.0 requires of tools
_REFERENCE = "#/definitions/{name}"
# What Python calls unprintable, as far as an expression without Unicode classes can tell.
_INVISIBLE = (
    "[\\u0000-\\u001f\\u007f-\\u00a0\\u00ad\\u1680\\u2000-\\u200f\\u2028-\\u202f"
    "\\u205f-\\u206f\\u3000\\ue000-\\uf8ff\\ufeff]"
)
_PLAIN = {"not": {"pattern": _INVISIBLE}}


def _in_any_case(text: str) -> str:
    return "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in text)


_JSON_TYPE = (
    rf"^\s*($|;|{_in_any_case('application/json')}\s*(;|$)|[^;]*\+{_in_any_case('json')}\s*(;|$))"
)

Plain = Annotated[str, Meta(max_length=commands.NAME_CHARS_MAX, extra_json_schema=_PLAIN)]
Name = Annotated[Plain, Meta(min_length=1)]
Text = Annotated[str, Meta(max_length=commands.REASON_CHARS_MAX)]
Moment = Annotated[
    str,
    Meta(
        max_length=commands.NAME_CHARS_MAX,
        pattern=commands.RFC_3339,
        extra_json_schema={"format": "date-time", **_PLAIN},
    ),
]
Override = Literal["leader", "in-doubt", "history"]


class Expect(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    event_type: Plain | None = None  # Azure's EventType, in any case
    resources: tuple[str, ...] | None = None  # every VM the event names, in any order


class CommandData(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    event_id: Name  # the EventId to approve, in any case
    vm: Plain | None = None  # refused by every other VM
    expect: Expect | None = None  # refused if the event is not, or no longer, this one
    token: Plain | None = None  # `approval.token` of the newest message of the event
    reason: Text | None = None  # for the audit
    override: tuple[Override, ...] | None = None  # checks to leave out, by name


class Command(Struct, kw_only=True):
    """As it stands on the wire; `bridge.core.commands` decodes it by hand, to name each mistake."""

    specversion: Literal["1.0"]
    id: Name  # unique for the source
    source: Name  # who asks
    type: Literal["io.sebridge.approve.v1"]
    time: Moment | None = None  # refused when older than commands.max_age_s
    expirytime: Moment | None = None  # refused from then on
    idempotencykey: Plain | None = None  # one key, one answer; absent: source#id
    dssematerial: str | None = None  # the signature: a DSSE envelope in base64
    datacontenttype: Annotated[str, Meta(pattern=_JSON_TYPE)] | None = None
    data: CommandData


def build() -> dict[str, Schema]:
    """Every schema by the name of its file."""
    kinds = get_args(diff.Kind)
    types = {cloudevents.EVENT_TYPE.format(kind): kind for kind in kinds}
    outcomes = {type_: status for status, type_ in cloudevents.OUTCOME_TYPES.items()}
    return {
        "event.v1.json": _event_schema(types),
        "outcome.v1.json": _outcome_schema(outcomes),
        "status.v1.json": _status_schema(),
        "command.v1.json": _command_schema(),
    }


def _event_schema(types: Mapping[str, str]) -> Schema:
    schema = _message("A change of a scheduled event", EventData, types)
    definitions = schema["definitions"]
    _refine(definitions["EventData"], "transition", enum=list(types.values()))
    azure = {"type": "object", "required": ["EventId"], "properties": {"EventId": _nonempty()}}
    for field in ("event", "previous"):
        _refine(definitions["EventData"], field, **azure)
    _refine(definitions["EventData"], "notBefore", format="date-time", pattern=commands.RFC_3339)
    states = ["none", "foreign", *get_args(approvals.State)]
    _refine(definitions["ApprovalInfo"], "state", enum=states)
    schema["required"] += ["subject", "sequence", "correlationid"]
    schema["properties"]["causationid"] = False
    ends = {"completed", "canceled", "ended"}
    schema["allOf"] = [
        _if_type(type_, "transition", kind, ["ended"] if kind in ends else [])
        for type_, kind in types.items()
    ]
    return schema


def _outcome_schema(types: Mapping[str, str]) -> Schema:
    schema = _message("What became of a command", OutcomeData, types)
    _refine(schema["definitions"]["OutcomeData"], "reason", enum=list(get_args(approvals.Reason)))
    schema["required"] += ["sequence"]
    explained = {"rejected", "in-doubt"}
    schema["allOf"] = [
        _if_type(type_, "status", status, ["reason"] if status in explained else [])
        for type_, status in types.items()
    ]
    return schema


def _status_schema() -> Schema:
    schema = _message(
        "The agent is online, blind or offline", StatusData, [cloudevents.STATUS_TYPE]
    )
    # It describes the moment: it has no place in the order and belongs to no event.
    for absent in ("subject", "sequence", "correlationid", "causationid"):
        schema["properties"][absent] = False
    data = schema["definitions"]["StatusData"]
    _refine(data, "approvals", enum=["enforce", "shadow", "refused"])
    _refine(data, "commands", enum=["signed", "unsigned", "none"])
    _refine(data, "lastPoll", format="date-time", pattern=commands.RFC_3339)
    return schema


def _command_schema() -> Schema:
    (root,), definitions = msgspec.json.schema_components([Command], ref_template=_REFERENCE)
    _describe(definitions, Path(__file__))
    for definition in definitions.values():
        for field in definition["properties"].values():
            field.pop("default", None)  # null means absent, which needs no saying
    schema = definitions.pop(root["$ref"].rpartition("/")[2])
    schema["properties"]["data_base64"] = False
    return _document("A command to approve a scheduled event", schema, definitions)


def _message(title: str, data: type[Struct], types: Iterable[str]) -> Schema:
    """The envelope of a CloudEvent that the agent sends, around one kind of data."""
    _, definitions = msgspec.json.schema_components(
        [cloudevents.CloudEvent, data], ref_template=_REFERENCE
    )
    _describe(definitions, Path(cloudevents.__file__), Path(diff.__file__))
    for definition in definitions.values():
        _leave_out_what_is_empty(definition)
    envelope = definitions.pop("CloudEvent")
    _refine(envelope, "specversion", const="1.0")
    _refine(envelope, "type", enum=list(types))
    _refine(envelope, "time", format="date-time", pattern=commands.RFC_3339)
    _refine(envelope, "sequence", pattern="^[0-9]{20}$")
    _refine(envelope, "datacontenttype", const=cloudevents.JSON_CONTENT_TYPE)
    _refine(envelope, "data", **{"$ref": _REFERENCE.format(name=data.__name__)})
    # Defaults in the struct, because the store or the caller fills them in.
    envelope["required"] += ["id", "partitionkey"]
    return _document(title, envelope, definitions)


def _document(title: str, schema: Schema, definitions: Schema) -> Schema:
    said = f"{title}: a CloudEvent 1.0 as structured JSON. Ignore what you do not know."
    return {
        "$schema": _DIALECT,
        **schema,
        "title": title,
        "description": said,
        "definitions": definitions,
    }


def _leave_out_what_is_empty(definition: Schema) -> None:
    """`omit_defaults`: an optional field has a value that says something, or is not there."""
    for field in definition["properties"].values():
        options = [o for o in field.pop("anyOf", ()) if o != {"type": "null"}]
        for option in options:
            field.update(option)
        field.pop("default", None)
        if field.get("type") == "string":
            field["minLength"] = 1
        elif field.get("type") == "array":
            field["minItems"] = 1


def _refine(definition: Schema, field: str, **more: Any) -> None:
    definition["properties"][field].pop("minLength", None)
    definition["properties"][field].update(more)


def _nonempty() -> Schema:
    return {"type": "string", "minLength": 1}


def _if_type(type_: str, field: str, value: str, required: list[str]) -> Schema:
    says = {"properties": {field: {"const": value}}, "required": [field, *required]}
    return {
        "if": {"properties": {"type": {"const": type_}}},
        "then": {"properties": {"data": says}},
    }


def _describe(definitions: dict[str, Schema], *sources: Path) -> None:
    """Take each field's comment for its description: one text, in one place."""
    for source in sources:
        lines = source.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name in definitions:
                _describe_fields(definitions[node.name], node, lines)


def _describe_fields(definition: Schema, node: ast.ClassDef, lines: list[str]) -> None:
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    for item, name in zip(fields, definition["properties"], strict=True):
        _, hash_, comment = lines[(item.end_lineno or item.lineno) - 1].partition("  # ")
        if hash_:
            definition["properties"][name]["description"] = comment.strip()


def render(schema: Schema) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else "docs/schemas")
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in build().items():
        (folder / name).write_bytes(render(schema))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
