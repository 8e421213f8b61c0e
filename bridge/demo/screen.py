"""The terminal view: what is on the stage as lines of text, and how they get to the terminal.

`render` is pure. Only lines that differ are written again, so that a command on the screen can be
marked with the mouse while the time next to it goes on. ANSI only, and no colour where unwanted.
"""

import os
import shutil
import textwrap
from datetime import datetime
from typing import Final, TextIO

from msgspec import Struct

from bridge.demo.stage import Line, Pending, Row, Stage
from bridge.demo.words import minutes

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_AGENT_STYLES: Final = {"online": _GREEN, "gone": _DIM, "starting": _DIM}
_BAR: Final = 10
_HURRY_S: Final = 20.0
_TURNS_MAX: Final = 3
# On a lower terminal the story needs the room more than the second command does.
_ROOMY: Final = 32
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"


class Heading(Struct, frozen=True, kw_only=True):
    """What does not change: where things are, and what to type."""

    lapse: str
    places: tuple[tuple[str, str], ...]
    approve: str  # with {event_id}


class Style(Struct, frozen=True, kw_only=True):
    colour: bool = True
    unicode: bool = True

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text


def render(
    heading: Heading, stage: Stage, now: datetime, style: Style, size: tuple[int, int]
) -> list[str]:
    """The whole screen, (columns, rows): places, VMs, what to do, and the end of the story."""
    width, height = size
    roomy = height >= _ROOMY
    title = f"scheduled-events-bridge demo   {minutes(stage.elapsed_s())}   Ctrl-C ends it"
    top = [style.paint(title[:width], _BOLD), style.paint(heading.lapse[:width], _YELLOW)]
    for name, what in heading.places if roomy else heading.places[:2]:
        first, *more = fold(what, width - 9)
        top += [f"{style.paint(f'{name:<8}', _CYAN)} {first}", *(" " * 9 + line for line in more)]
    top += ["", style.paint(f"{'VM':<9}{'zone':<6}{'agent':<10}scheduled event"[:width], _DIM)]
    top += [_row(row, style) for row in stage.rows(now)]
    turns_max = _TURNS_MAX if roomy else 1
    top += ["", *_turns(heading, stage.awaiting(), style, width, turns_max), ""]
    story = [text for line in stage.lines for text in tell(line, width, style)]
    room = max(0, height - len(top))
    lines = (top + story[len(story) - min(room, len(story)) :])[:height]
    return lines + [""] * (height - len(lines))


def tell(line: Line, width: int, style: Style) -> list[str]:
    """One line of the story, folded below itself."""
    start = f"{minutes(line.at_s):>5}  {line.who:<9}"
    folded = textwrap.wrap(line.text, max(20, width - len(start))) or [""]
    who_style = _YELLOW if line.who == "Azure" else _CYAN
    first = f"{minutes(line.at_s):>5}  {style.paint(f'{line.who:<9}', who_style)}{folded[0]}"
    return [first, *(" " * len(start) + more for more in folded[1:])]


def _row(row: Row, style: Style) -> str:
    agent = style.paint(f"{row.agent:<10}", _AGENT_STYLES.get(row.agent, _RED))
    text = f"{row.vm:<9}{row.zone:<6}{agent}"
    if not row.event_type:
        return text.rstrip()
    if row.left_s is None:
        return f"{text}{row.event_type:<10}{style.paint(row.note, _BOLD)}"
    code = _RED if row.left_s < _HURRY_S else _YELLOW
    left = style.paint(f"{_bar(row.share, style)} {minutes(row.left_s):>5}", code)
    return f"{text}{row.event_type:<10}{left}  {row.note}"


def _bar(share: float, style: Style) -> str:
    full, empty = ("█", "░") if style.unicode else ("#", ".")
    filled = round(share * _BAR)
    return full * filled + empty * (_BAR - filled)


def fold(command: str, width: int) -> list[str]:
    """A shell command in one line, or in two that can still be pasted."""
    place = command.rfind(" --config ")
    if len(command) <= width or place < 0:
        return [command]
    return [f"{command[:place]} \\", f"   {command[place:]}"]


def _turns(
    heading: Heading, waiting: list[Pending], style: Style, width: int, turns_max: int
) -> list[str]:
    """No times in here: these lines are to be copied, so they must stand still."""
    if not waiting:
        return [style.paint("Nothing waits for you.", _DIM)]
    how_many = f" ({len(waiting)} wait for you)" if len(waiting) > turns_max else ""
    text = f"Your turn{how_many}. Paste into another terminal, in this folder:"
    lines = [style.paint(text, _BOLD)]
    for pending in waiting[:turns_max]:
        lines.append(f"# {pending.event_type} of {pending.vm}")
        lines += fold(heading.approve.format(event_id=pending.event_id), width)
    return lines


class Screen:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown: list[str] = []
        self._size = (0, 0)
        self._is_open = False
        unicode = "utf" in (out.encoding or "").lower()
        self.style = Style(colour="NO_COLOR" not in os.environ, unicode=unicode)

    def open(self, _heading: Heading) -> None:
        self._is_open = True
        self._write(_ENTER)

    def close(self) -> None:
        if self._is_open:
            self._write(_LEAVE)

    def draw(self, heading: Heading, stage: Stage, now: datetime) -> None:
        size = shutil.get_terminal_size()
        if size != self._size:
            self._size, self._shown = size, []
            self._write("\x1b[2J")
        lines = render(heading, stage, now, self.style, size)
        before = self._shown or ["\0"] * size.lines
        changed = (
            f"\x1b[{number};1H\x1b[2K{line}"
            for number, (old, line) in enumerate(zip(before, lines, strict=True), start=1)
            if old != line
        )
        # Without wrapping: a line that is too long must not push the others down.
        self._write("\x1b[?7l" + "".join(changed) + "\x1b[?7h")
        self._shown = lines

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def is_terminal(out: TextIO) -> bool:
    return out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
