"""From the extension's settings to a TOML file and a set of secret files.

Public settings are the TOML's keys as JSON. Protected settings have the same shape, with the secret
itself where the TOML has a path: `mqtt.password` is for `mqtt.password_file`, `mqtt.tls.key` for
`mqtt.tls.key_file`. A list, as in `commands.trusted_keys`, is for an option that lists files.
Neither knows the options: the agent's own check refuses what it does not know.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bridge.errors import ConfigError
from bridge.extension.settings import Settings
from bridge.service.layout import Layout

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = "# Written by the VM extension from its settings: change them there.\n"
Table = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Configuration:
    text: str
    secrets: dict[str, str] = dataclasses.field(repr=False)


def build(settings: Settings, layout: Layout, secret_path: Callable[[str], Path]) -> Configuration:
    options: Table = json.loads(json.dumps(settings.public))  # a copy of our own to fill
    _default(options, "store", "path", str(layout.state / "state.db"))
    _default(options, "service", "heartbeat_file", str(layout.heartbeat))
    secrets: dict[str, str] = {}
    for keys, value in _leaves((), settings.protected):
        if isinstance(value, list):
            names = [f"{'.'.join(keys)}.{number}" for number in range(len(value))]
            _set(options, keys, [str(secret_path(name)) for name in names])
            secrets |= {n: _text(keys, v) for n, v in zip(names, value, strict=True)}
        else:
            name = ".".join(keys)
            _set(options, (*keys[:-1], f"{keys[-1]}_file"), str(secret_path(name)))
            secrets[name] = _text(keys, value)
    return Configuration(text=_HEADER + to_toml(options), secrets=secrets)


def to_toml(table: Table) -> str:
    """TOML of what JSON can say; null, which TOML cannot say, is an error."""
    return "".join(f"{line}\n" for line in _lines((), table))


def _lines(path: tuple[str, ...], table: Table) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and (plain or not table):
        yield f"\n[{'.'.join(_key(part) for part in path)}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value((*path, key), value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _lines((*path, key), value)


def _key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else _string(text)


def _value(path: tuple[str, ...], value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case list():
            return f"[{', '.join(_value(path, item) for item in value)}]"
        case dict():
            pairs = (f"{_key(k)} = {_value((*path, k), v)}" for k, v in value.items())
            return f"{{ {', '.join(pairs)} }}"
        case _:
            raise ConfigError(f"{'.'.join(path)}: null is no value; leave the key out")


def _string(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's, but DEL must be escaped, too."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("a setting holds half of a surrogate pair") from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _leaves(path: tuple[str, ...], table: Table) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        # Keys become file names.
        if not _BARE_KEY.fullmatch(key):
            raise ConfigError("protectedSettings: a key may hold letters, digits, _ and - only")
        if isinstance(value, dict):
            yield from _leaves((*path, key), value)
        else:
            yield (*path, key), value


def _text(path: tuple[str, ...], value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"protectedSettings: {'.'.join(path)} must be a text that is not empty")
    return value


def _default(options: Table, section: str, key: str, value: str) -> None:
    table = options.setdefault(section, {})
    if isinstance(table, dict):
        table.setdefault(key, value)


def _set(options: Table, path: tuple[str, ...], value: Any) -> None:
    *sections, key = path
    table = options
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{'.'.join(path)}: {section} is not a table in publicSettings")
    if key in table:
        raise ConfigError(f"{'.'.join(path)} is set in publicSettings and in protectedSettings")
    table[key] = value
