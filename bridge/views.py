"""Aligned text for people; `--json` is for programs."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bridge.config import Config
from bridge.core.plain_text import printable

_DASH = "-"
_TRUST = {"unsigned": "unsigned: who may publish one may approve", "none": "not taken"}


def status(status: dict[str, Any]) -> str:
    vm, poll = status["vm"], status["poll"]
    age = f"{poll['ageS']:.1f} s ago" if poll["ageS"] is not None else "never"
    lines = [
        f"VM         {vm['name'] if vm else 'not known yet'}",
        f"last poll  {age}" + (f" ({poll['problem']})" if poll["problem"] else ""),
        f"approvals  {status['mode']}" + ("" if status["durable"] else ", refused: no ledger"),
        f"commands   {_TRUST.get(status['commands'], status['commands'])}",
    ]
    for name, sink in status["sinks"].items():
        state = sink["problem"] or "connected"
        lines.append(f"{name:<10} {state}; {sink['outbox']} to publish, {sink['published']} sent")
    source = status["commandSource"]
    if source["name"] != "none":
        lines.append(f"source     {source['name']}: {source['problem'] or 'connected'}")
    return "\n".join([*lines, "", _pending(status["pending"])])


def audit(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "no command has been received"
    header = (
        "RECEIVED",
        "ANSWERED",
        "EVENT",
        "KEY",
        "BY",
        "STATUS",
        "REASON",
        "RULE",
        "HTTP",
        "WHY",
    )
    return table(header, (_audit_row(row) for row in rows))


def _audit_row(row: dict[str, Any]) -> list[object]:
    """The answer's HTTP status, or that of the POST that the row is about."""
    fields = ("event_id", "key", "source", "status", "reason", "rule")
    status = row["post_http_status"] or row["http_status"]
    times = (_moment(row["received_at"]), _moment(row["answered_at"]))
    return [*times, *(row[field] for field in fields), status, row["why"]]


def configuration(config: Config) -> str:
    """The effective configuration as TOML. Secrets are files, so only their paths can show."""
    lines: list[str] = []
    for section, values in msgspec.to_builtins(config).items():
        lines += _section(section, values)
    return "\n".join(lines)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def _pending(scheduled_events: Sequence[dict[str, Any]]) -> str:
    if not scheduled_events:
        return "no scheduled event is pending"
    header = ("EVENT", "TYPE", "STATUS", "NOT BEFORE", "RESOURCES")
    return table(
        header,
        (
            (
                e.get("EventId"),
                e.get("EventType"),
                e.get("EventStatus"),
                e.get("NotBefore"),
                ", ".join(map(str, e.get("Resources") or ())),
            )
            for e in scheduled_events
        ),
    )


def _moment(text: str | None) -> str | None:
    """To the second, as RFC 3339; the ledger keeps microseconds."""
    return f"{text[:19]}Z" if text else None


def _cell(value: object) -> str:
    return _DASH if value in (None, "") else printable(str(value))


def _section(name: str, values: dict[str, Any]) -> list[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    plain = {key: value for key, value in values.items() if key not in tables and key != "rules"}
    lines = [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in plain.items()), ""]
    for key, value in tables.items():
        lines += _section(f"{name}.{key}", value)
    for rule in values.get("rules", ()):
        lines += [f"[[{name}.rules]]", *(f"{k} = {_toml(v)}" for k, v in rule.items()), ""]
    return lines


def _toml(value: object) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's too."""
    return msgspec.json.encode(value).decode()
