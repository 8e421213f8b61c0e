"""A bar chart as SVG, by hand: one group a figure, one bar a contestant, the agent in colour."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

LABEL, BAR, ROW, GAP, VALUE = 150, 420, 18, 34, 80


class Group(NamedTuple):
    title: str
    unit: str
    bars: Mapping[str, float]


def bars(groups: Sequence[Group], highlight: str) -> str:
    """Each group has a scale of its own, from zero to its largest bar."""
    lines, y = [], 10
    for group in groups:
        lines.append(text(0, y + 12, f"{group.title} ({group.unit})", "title"))
        y += 20
        largest = max(group.bars.values())
        for name, value in group.bars.items():
            width = max(1.0, BAR * value / largest)
            kind = "ours" if name == highlight else "theirs"
            lines.append(text(LABEL - 8, y + 13, name, "name"))
            lines.append(
                f'<rect class="{kind}" x="{LABEL}" y="{y + 2}" width="{width:.1f}" height="{ROW - 4}"/>'
            )
            lines.append(text(LABEL + width + 6, y + 13, f"{value:.3g}", "value"))
            y += ROW
        y += GAP - ROW
    width = LABEL + BAR + VALUE
    return "\n".join([_HEAD.format(width=width, height=y), *lines, "</svg>", ""])


def text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>sebridge beside its peers; shorter is better</title>
<style>
  text {{ font: 12px sans-serif; fill: #24292f }}
  .title {{ font-weight: bold }}
  .name {{ text-anchor: end }}
  .ours {{ fill: #0b6bcb }}
  .theirs {{ fill: #c5ccd3 }}
  @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .theirs {{ fill: #57606a }} }}
</style>"""
