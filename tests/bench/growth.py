"""The fleet's growth curve as SVG: seconds until all are published, and approved, by size."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.bench.plot import text

LEFT, TOP, WIDTH, HEIGHT = 46.0, 34.0, 480.0, 220.0
STEPS = 6  # of the scale on the left


class Curve(NamedTuple):
    name: str
    kind: str
    seconds: Sequence[float]


def curves(sizes: Sequence[int], found: Sequence[Curve]) -> str:
    step = _round_step(max(max(curve.seconds) for curve in found) / STEPS)
    bottom = TOP + HEIGHT

    def x(size: float) -> float:
        return LEFT + WIDTH * size / max(sizes)

    def y(seconds: float) -> float:
        return bottom - HEIGHT * seconds / (step * STEPS)

    lines = [_HEAD]
    for number in range(STEPS + 1):
        height = y(number * step)
        lines.append(
            f'<line class="grid" x1="{LEFT:g}" y1="{height:.1f}" x2="{LEFT + WIDTH:g}" y2="{height:.1f}"/>'
        )
        lines.append(text(LEFT - 8, height + 4, f"{number * step:g}", "y"))
    lines += [text(x(size), bottom + 18, f"{size:,}", "x") for size in sizes]
    lines.append(text(LEFT + WIDTH / 2, bottom + 38, "agents", "x"))
    for curve in found:
        lines += _drawn(sizes, curve, x, y)
    return "\n".join([*lines, "</svg>", ""])


def _drawn(
    sizes: Sequence[int], curve: Curve, x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    places = [(x(size), y(seconds)) for size, seconds in zip(sizes, curve.seconds, strict=True)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    last_x, last_y = places[-1]
    return [
        f'<polyline class="line {curve.kind}" points="{points}"/>',
        *(f'<circle class="dot-{curve.kind}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in places),
        text(last_x + 8, last_y + 4, f"{curve.name}, {curve.seconds[-1]:.1f}", "name"),
    ]


def _round_step(least: float) -> float:
    """1, 2 or 5 and noughts."""
    steps = (digit * 10.0**power for power in range(-2, 6) for digit in (1, 2, 5))
    return next(step for step in steps if step >= least)


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 636 300" role="img">
<title>Seconds from a Terminate on every VM until all are published and all approved, by number of agents</title>
<style>
  text { font: 12px sans-serif; fill: #24292f }
  .title { font-weight: bold }
  .y { text-anchor: end }
  .x { text-anchor: middle }
  .grid { stroke: #c5ccd3; stroke-width: 0.5 }
  .line { fill: none; stroke-width: 2 }
  .approved { stroke: #0b6bcb }
  .published { stroke: #6e7781; stroke-dasharray: 5 3 }
  .dot-approved { fill: #0b6bcb }
  .dot-published { fill: #6e7781 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .grid { stroke: #57606a }
    .approved { stroke: #4ea1ff } .dot-approved { fill: #4ea1ff }
    .published { stroke: #9aa4ae } .dot-published { fill: #9aa4ae }
  }
</style>
<text class="title" x="0" y="14">Every VM gets a Terminate: seconds until all are published, and approved</text>"""
