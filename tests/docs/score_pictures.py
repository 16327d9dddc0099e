"""The pictures of docs/scoring.md, drawn from what the scorer says of made runs.

.venv/bin/python tests/docs/score_pictures.py docs/pictures
"""

import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kp_middleware import ReasoningTrace, Score, Scorer, Step, Tool
from kp_middleware.web.pictures import Markup, element, joined

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 330, 34, 206
COLOURS = ("#2f6fb7", "#b85c00", "#1b8a5a", "#7d4fb3")
STYLE = """
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1d2430 }
.quiet { fill: #5d6673 } .grid { stroke: #d5d8d2 } .paper { fill: #ffffff }
polyline { fill: none; stroke-width: 2.5; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8ec } .quiet { fill: #a3abb8 } .grid { stroke: #3a4150 } .paper { fill: #171b22 }
}
"""
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


def complexity() -> Markup:
    """Kinds of step count most, length hardly."""
    names = ("one kind", "two kinds", "three kinds", "four, a recovery too")
    curves = [
        Curve(name, [(n, score(n, kinds=kinds).signals.complexity) for n in range(kinds, 41)])
        for kinds, name in enumerate(names, 1)
    ]
    return chart("Complexity by the number of steps", "steps", (0, 40), curves)


def novelty() -> Markup:
    """The farther from the nearest run, the more."""
    line = [(hundredth / 100, 1 - hundredth / 100) for hundredth in range(0, 101, 100)]
    title = "Novelty by the similarity of the nearest earlier run"
    return chart(title, "cosine similarity", (0, 1), [Curve("1 − similarity", line)])


def tool_diversity() -> Markup:
    """A third of the steps with tools of their own is all there is to have."""
    curves = [
        Curve(
            f"{tools} tool{'s' * (tools > 1)}",
            [(n, score(n, tools=tools).signals.tool_diversity) for n in range(tools, 41)],
        )
        for tools in (8, 4, 2, 1)
    ]
    return chart("Tool diversity by the number of steps", "steps", (0, 40), curves)


def outcome_confidence() -> Markup:
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


def chart(title: str, below: str, span: tuple[int, int], curves: list[Curve]) -> Markup:
    """Lines between 0 and 1, each named at its end."""

    def across(value: float) -> float:
        return LEFT + (value - span[0]) / (span[1] - span[0]) * (RIGHT - LEFT)

    def up(value: float) -> float:
        return BOTTOM - value * (BOTTOM - TOP)

    marks = [element("text", title, x=LEFT, y=18, font_weight="600")]
    for value in (0, 0.5, 1):
        y = up(value)
        marks += [
            element("line", x1=LEFT, y1=y, x2=RIGHT, y2=y, class_="grid"),
            element("text", f"{value:g}", x=LEFT - 8, y=y + 4, text_anchor="end", class_="quiet"),
        ]
    for value in (span[0], sum(span) / 2, span[1]):
        x = across(value)
        tick = element("text", f"{value:g}", x=x, y=BOTTOM + 18, text_anchor="middle")
        marks.append(Markup(tick.replace("<text", '<text class="quiet"')))
    middle = (LEFT + RIGHT) / 2
    marks.append(
        element("text", below, x=middle, y=BOTTOM + 36, text_anchor="middle", class_="quiet")
    )
    ends = [up(curve.points[-1][1]) + 4 for curve in curves]
    for curve, colour, at in zip(curves, islice(COLOURS, len(curves)), apart(ends), strict=True):
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve.points)
        marks += [
            element("polyline", points=points, stroke=colour),
            element("text", curve.name, x=RIGHT + 8, y=at, style=f"fill: {colour}"),
        ]
    return element(
        "svg",
        element("title", title),
        element("style", Markup(STYLE)),
        element("rect", width=WIDTH, height=HEIGHT, class_="paper"),
        joined(marks),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        width=str(WIDTH),
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
