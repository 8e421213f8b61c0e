"""Logs on stderr: one JSON object a line for machines, aligned text for people.

Values that come from outside are escaped, so a Description cannot forge a line.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from bridge.config import Log
from bridge.core.cloudevents import rfc3339
from bridge.core.plain_text import printable

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# More than this of one value tells nobody more, and somebody outside may have chosen its length.
_CHARS_MAX = 4096


def configure(config: Log) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    # Libraries tell of every request and frame at these levels.
    for chatty in ("aiohttp.access", "asyncio", "azure", "uamqp", "paho"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("sebridge."),
            "message": _cut(record.getMessage()),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _one_line(line)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={_plain(value)}" for name, value in _extra(record).items())
        name = record.name.removeprefix("sebridge.")
        text = (
            f"{_time(record)} {record.levelname:<7} {name:<9} {_plain(_cut(record.getMessage()))}"
        )
        exception = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{text} {extra}".rstrip() + exception


def _one_line(fields: dict[str, Any]) -> str:
    """JSON as it is, or in ASCII if it holds what a terminal obeys or a reader takes for a line."""
    try:
        text = msgspec.json.encode(fields, enc_hook=str).decode()
    except UnicodeEncodeError:  # half of a pair of surrogates, from a file name for example
        text = ""
    return text if text and text.isprintable() else json.dumps(fields, default=str)


def _time(record: logging.LogRecord) -> str:
    return rfc3339(datetime.fromtimestamp(record.created, UTC))


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: _cut(value) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if name not in _STANDARD and value not in (None, "")
    }


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS_MAX else f"{text[:_CHARS_MAX]}…"


def _plain(value: object) -> str:
    return printable(str(value))
