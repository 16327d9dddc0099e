"""Two traces side by side, as a person reads them; signs say what is where, not colours."""

from collections.abc import Iterator
from typing import Any, Final

from kp_middleware.inspection.explanation.alignment import Gap, Pair, without_sameness
from kp_middleware.inspection.explanation.comparison import Comparison, Fact, Part
from kp_middleware.inspection.output.screen import cut, padded
from kp_middleware.inspection.output.wording import one_line

_NAME: Final = 20
_LEAST: Final = 12
_MOST: Final = 36
_DIFFERENCE: Final = 6
_SIGNS: Final = {"same": "=", "left": "<", "right": ">"}


def comparison_lines(comparison: Comparison, width: int) -> Iterator[str]:
    """Facts, scores and steps; no line longer than the width, as long as that is 60 or more."""
    column = min(max((width - _NAME - _DIFFERENCE - 8) // 2, _LEAST), _MOST)
    yield f"    {'':<{_NAME}}{padded('left <', column)}  right >"
    yield from (_fact(fact, column) for fact in comparison.facts)
    yield ""
    yield from (_part(part, column) for part in comparison.scores)
    yield ""
    yield "= in both, < only left, > only right"
    for pair in without_sameness(comparison.steps):
        yield cut(_step(pair), width)


def _fact(fact: Fact, column: int) -> str:
    left, right = _told(fact.fact, fact.left), _told(fact.fact, fact.right)
    sign = "=" if fact.left == fact.right else "≠"
    name = fact.fact.replace("_", " ")
    return f"  {sign} {name:<{_NAME}}{padded(left, column)}  {cut(right, column)}".rstrip()


def _told(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "success":
        return "yes" if value else "no"
    return one_line(str(value).removeprefix("kp:trace:"))


def _part(part: Part, column: int) -> str:
    left, right = _sum(part.left, part.left_working), _sum(part.right, part.right_working)
    sign = "=" if part.left == part.right else "≠"
    name = part.part.replace("_", " ")
    both = f"  {sign} {name:<{_NAME}}{padded(left, column)}  {padded(right, column)}"
    difference = "" if part.difference is None else f"{part.difference:+.3f}"
    return f"{both}  {difference}".rstrip()


def _sum(amount: float | None, working: str) -> str:
    return "-" if amount is None else f"{amount:.3f}  {working.partition('  (')[0]}"


def _step(pair: Pair | Gap) -> str:
    if isinstance(pair, Gap):
        return f"  … {pair.pairs:,} the same"
    left, right = (f"{'' if step is None else step:>5}" for step in (pair.left, pair.right))
    tool = f"  {one_line(pair.tool)}" if pair.tool else ""
    return f"  {_SIGNS[pair.place]} {left} {right}  {pair.type}{tool}"
