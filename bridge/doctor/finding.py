"""What a check found: a value, never an exception, and how a person reads it."""

from typing import Literal

import msgspec

_NAME_WIDTH = 18
_RESULT_WIDTH = 9


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `sebridge doctor`."""

    name: str  # what was checked
    result: Literal["ok", "warning", "failed"]  # a warning does not stop the agent
    text: str  # what was seen
    remedy: str = ""  # what to do about it


def ok(name: str, text: str) -> Finding:
    return Finding(name=name, result="ok", text=text)


def warning(name: str, text: str, remedy: str) -> Finding:
    return Finding(name=name, result="warning", text=text, remedy=remedy)


def failed(name: str, text: str, remedy: str) -> Finding:
    return Finding(name=name, result="failed", text=text, remedy=remedy)


def line(finding: Finding) -> str:
    """One line, and the remedy below it."""
    head = f"{finding.result:<{_RESULT_WIDTH}}{finding.name:<{_NAME_WIDTH}}"
    text = head + _printable(finding.text)
    if finding.remedy:
        text += f"\n{'':<{_RESULT_WIDTH}}→ {_printable(finding.remedy)}"
    return text


def _printable(text: str) -> str:
    """What a stranger's server wrote must not move the cursor."""
    return "".join(c if c.isprintable() else " " for c in text)
