"""The view for CI, pipes and dumb terminals: each line once, as it comes."""

from datetime import datetime
from typing import TextIO

from bridge.demo.screen import Heading, Style, tell
from bridge.demo.stage import Stage

_STYLE = Style(colour=False)
_WIDTH = 100


class Plain:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told = 0
        self._asked: set[str] = set()

    def open(self, heading: Heading) -> None:
        self._write("scheduled-events-bridge demo")
        self._write(heading.lapse)
        for name, what in heading.places:
            self._write(f"{name:<8} {what}")

    def close(self) -> None:
        pass

    def draw(self, heading: Heading, stage: Stage, _now: datetime) -> None:
        new = stage.said - self._told
        self._told = stage.said
        for line in list(stage.lines)[-new:] if new else []:
            for text in tell(line, _WIDTH, _STYLE):
                self._write(text)
        for pending in stage.awaiting():
            if pending.event_id not in self._asked:
                self._asked.add(pending.event_id)
                self._write(f"To approve the {pending.event_type} of {pending.vm}:")
                self._write(f"  {heading.approve.format(event_id=pending.event_id)}")

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()
