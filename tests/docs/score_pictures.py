"""The pictures of docs/scoring.md, drawn from what the scorer says of made runs.

.venv/bin/python tests/docs/score_pictures.py docs/pictures
"""

import sys
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined

from kp_middleware import ReasoningTrace, Score, Scorer, Step, Tool

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 330, 34, 206
COLOURS = ("#2f6fb7", "#b85c00", "#1b8a5a", "#7d4fb3")
PICTURE = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string("""\
<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{{ width }}"
  viewBox="0 0 {{ width }} {{ height }}">
<title>{{ title }}</title>
<style>
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1d2430 }
.quiet { fill: #5d6673 } .grid { stroke: #d5d8d2 } .paper { fill: #ffffff }
polyline { fill: none; stroke-width: 2.5; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8ec } .quiet { fill: #a3abb8 } .grid { stroke: #3a4150 } .paper { fill: #171b22 }
}
</style>
<rect width="{{ width }}" height="{{ height }}" class="paper"/>
<text x="{{ left }}" y="18" font-weight="600">{{ title }}</text>
{% for text, y in up %}
<line x1="{{ left }}" y1="{{ y }}" x2="{{ right }}" y2="{{ y }}" class="grid"/>
<text x="{{ left - 8 }}" y="{{ y + 4 }}" text-anchor="end" class="quiet">{{ text }}</text>
{% endfor %}
{% for text, x in across %}
<text x="{{ x }}" y="{{ bottom + 18 }}" text-anchor="middle" class="quiet">{{ text }}</text>
{% endfor %}
<text x="{{ middle }}" y="{{ bottom + 36 }}" text-anchor="middle" class="quiet">{{ below }}</text>
{% for name, points, colour, y in curves %}
<polyline points="{{ points }}" stroke="{{ colour }}"/>
<text x="{{ right + 8 }}" y="{{ y }}" style="fill: {{ colour }}">{{ name }}</text>
{% endfor %}
</svg>
""")
KINDS = ("thought", "tool_call", "observation", "error_recovery")


class Curve(NamedTuple):
    """One line: its name, and a point for each step from left to right."""

    name: str
    points: list[tuple[float, float]]


def score(steps: int, *, kinds: int = 1, tools: int = 0, **outcome: float | bool) -> Score:
    """Of a run with so many steps, kinds of step and different tools."""
    made = [
        Step(
            step_id=number,
            type=KINDS[min(number, kinds - 1)],
            **({"tool": Tool(name=f"tool {number % tools}")} if tools else {}),
        )
        for number in range(steps)
    ]
    return Scorer().score(ReasoningTrace.of("x", made, **outcome))


def complexity() -> str:
    """Kinds of step count most, length hardly."""
    names = ("one kind", "two kinds", "three kinds", "four, a recovery too")
    curves = [
        Curve(name, [(n, score(n, kinds=kinds).signals.complexity) for n in range(kinds, 41)])
        for kinds, name in enumerate(names, 1)
    ]
    return chart("Complexity by the number of steps", "steps", (0, 40), curves)


def novelty() -> str:
    """The farther from the nearest run, the more."""
    line = [(hundredth / 100, 1 - hundredth / 100) for hundredth in range(0, 101, 100)]
    title = "Novelty by the similarity of the nearest earlier run"
    return chart(title, "cosine similarity", (0, 1), [Curve("1 − similarity", line)])


def tool_diversity() -> str:
    """A third of the steps with tools of their own is all there is to have."""
    curves = [
        Curve(
            f"{tools} tool{'s' * (tools > 1)}",
            [(n, score(n, tools=tools).signals.tool_diversity) for n in range(tools, 41)],
        )
        for tools in (8, 4, 2, 1)
    ]
    return chart("Tool diversity by the number of steps", "steps", (0, 40), curves)


def outcome_confidence() -> str:
    """A failure leaves 0.3 of what the agent believed."""
    curves = [
        Curve(
            name,
            [
                (c / 10, score(2, confidence=c / 10, success=success).signals.outcome_confidence)
                for c in range(11)
            ],
        )
        for name, success in (("success", True), ("failure", False))
    ]
    return chart("Outcome confidence by what the agent said", "confidence", (0, 1), curves)


PICTURES = (complexity, novelty, tool_diversity, outcome_confidence)


def chart(title: str, below: str, span: tuple[int, int], curves: list[Curve]) -> str:
    """Lines between 0 and 1, each named at its end."""

    def across(value: float) -> float:
        return LEFT + (value - span[0]) / (span[1] - span[0]) * (RIGHT - LEFT)

    def up(value: float) -> float:
        return BOTTOM - value * (BOTTOM - TOP)

    ends = apart([up(curve.points[-1][1]) + 4 for curve in curves])
    return PICTURE.render(
        title=title,
        below=below,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        bottom=BOTTOM,
        middle=(LEFT + RIGHT) / 2,
        up=[(f"{value:g}", up(value)) for value in (0, 0.5, 1)],
        across=[(f"{value:g}", across(value)) for value in (span[0], sum(span) / 2, span[1])],
        curves=[
            (curve.name, " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve.points), *ends)
            for curve, *ends in zip(curves, COLOURS, (f"{at:.1f}" for at in ends), strict=False)
        ],
    )


def apart(places: list[float], least: float = 15) -> list[float]:
    """The same places, moved so far that no two names overlap."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved, last = list(places), -least
    for which in order:
        last = moved[which] = max(places[which], last + least)
    return moved


def draw(folder: Path) -> None:
    """All of them, into this folder."""
    for picture in PICTURES:
        (folder / f"{picture.__name__}.svg").write_text(f"{picture()}\n", encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
