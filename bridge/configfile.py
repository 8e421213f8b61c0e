"""From a TOML file and the environment to a `Config`, with errors that name the place."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from bridge.config import Config
from bridge.errors import ConfigError

ENVIRONMENT_PREFIX = "SEBRIDGE_"
_MSGSPEC_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)


def load(path: str | None, environment: Mapping[str, str] | None = None) -> Config:
    """Read, override, check. Without a path the defaults and the environment stand alone."""
    fields = parse(_read(path), path) if path else {}
    return build(fields, path or "environment", os.environ if environment is None else environment)


def parse(raw: bytes, place: str) -> dict[str, Any]:
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {place}: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: not TOML: {error}") from error


def build(fields: dict[str, Any], place: str, environment: Mapping[str, str]) -> Config:
    for variable, value in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and "__" in variable:
            _override(fields, variable, value)
    try:
        return msgspec.convert(fields, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {_explain(error)}") from error


def read_secret(path: str, what: str) -> str:
    """The text of a secret's file, trimmed; its content never appears in a message."""
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: cannot read {path}: {_os_reason(error)}") from error
    if not secret:
        raise ConfigError(f"{what}: {path} is empty")
    return secret


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {_os_reason(error)}") from error


def _os_reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _override(fields: dict[str, Any], variable: str, value: str) -> None:
    """`SEBRIDGE_MQTT__TLS__CA_FILE` sets mqtt.tls.ca_file; lists and tables are JSON."""
    *sections, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
    struct: Any = Config
    table = fields
    for section in sections:
        struct = get_type_hints(struct).get(section) if struct else None
        if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
            raise ConfigError(f"environment variable {variable}: there is no section {section!r}")
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{section} is not a table")
    hints = get_type_hints(struct)
    if key not in hints:
        raise ConfigError(
            f"environment variable {variable}: {'.'.join(sections)} has no key {key!r}"
            f" (known: {', '.join(hints)})"
        )
    table[key] = _parse(variable, value, default=getattr(struct(), key))


def _parse(variable: str, value: str, default: object) -> Any:
    if isinstance(default, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise ConfigError(f"environment variable {variable}: {value!r} is not JSON") from error


def _explain(error: msgspec.ValidationError) -> str:
    """msgspec's message, with the place first and in the file's own words."""
    match = _MSGSPEC_PATH.match(str(error))
    assert match
    what, place = match["what"], (match["path"] or "$").removeprefix("$").removeprefix(".")
    unknown = re.search(r"unknown field `(.+)`", what)
    if unknown:
        name = f"{place}.{unknown[1]}" if place else unknown[1]
        return f"{name}: unknown key; config/bridge.example.toml lists all"
    value = re.fullmatch(r"Invalid enum value (.+)", what)
    if value:
        return f"{place}: {value[1]} is none of {', '.join(map(repr, _choices(place)))}"
    return f"{place}: {what}" if place else what


def _choices(place: str) -> tuple[str, ...]:
    """What may stand at a place such as `events.sinks[0]`."""
    hint: Any = Config
    for name in place.split("."):
        hint = get_type_hints(hint)[name.partition("[")[0]]
        if name.endswith("]"):
            hint = get_args(hint)[0]
    return get_args(hint)
