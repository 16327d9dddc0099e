"""Two traces side by side, as a person reads them; signs say what is where, not colours."""

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Any, Final

from kp_middleware.cli.output.screen import padded
from kp_middleware.cli.output.table import cell
from kp_middleware.views.comparison import Comparison, Fact, Gap, Pair, Part, differences_in_context
from kp_middleware.views.wording import cut, one_line, short_bar

_NAME: Final = 20
_LEAST: Final = 12
_MOST: Final = 36
_DIFFERENCE: Final = 6
_ROOM_FOR_TWO: Final = 80
_MOST_STEP: Final = 56
_SIGNS: Final = {"same": "=", "left": "<", "right": ">"}


def comparison_lines(comparison: Comparison, width: int) -> Iterator[str]:
    """Facts, scores and steps; no line longer than the width, as long as that is 60 or more."""
    column = min(max((width - _NAME - _DIFFERENCE - 8) // 2, _LEAST), _MOST)
    yield f"    {'':<{_NAME}}{padded('left <', column)}  right >"
    yield from (_fact(fact, column) for fact in comparison.facts)
    yield ""
    yield from (_part(part, column) for part in comparison.scores)
    yield ""
    yield from _steps(comparison.steps, width)


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
    if name == "threshold":
        return short_bar(value)
    return cell(value, name).removeprefix("kp:trace:")


def _part(part: Part, column: int) -> str:
    left = _sum(part.left, part.left_working, column)
    right = _sum(part.right, part.right_working, column)
    sign = "=" if part.left == part.right else "≠"
    name = part.part.replace("_", " ")
    both = f"  {sign} {name:<{_NAME}}{padded(left, column)}  {padded(right, column)}"
    difference = "" if part.difference is None else f"{part.difference:+.3f}"
    return f"{both}  {difference}".rstrip()


def _sum(amount: float | None, working: str, column: int) -> str:
    """How it comes about only where there is room for it: half a number would be another."""
    if amount is None:
        return "-"
    told = f"{amount:.3f}  {working.partition('  (')[0]}"
    return told if len(told) <= column else f"{amount:.3f}"


def _steps(pairs: Sequence[Pair], width: int) -> Iterator[str]:
    shown = differences_in_context(pairs)
    if width < _ROOM_FOR_TWO:
        yield "= in both, < only left, > only right"
        yield from (cut(_step(pair), width) for pair in shown)
        return
    yield "= in both, ≠ another step, < only left, > only right"
    for is_same, group in groupby(shown, key=_is_same):
        told = _same if is_same else _different
        yield from told([*group], width)


def _is_same(pair: Pair | Gap) -> bool:
    return isinstance(pair, Gap) or pair.place == "same"


def _same(pairs: Sequence[Pair | Gap], width: int) -> Iterator[str]:
    for pair in pairs:
        yield _step(pair) if isinstance(pair, Gap) else _row(pair, pair, width)


def _different(pairs: Sequence[Pair | Gap], width: int) -> Iterator[str]:
    """What is only left beside what is only right, as far as there is both."""
    steps = [pair for pair in pairs if isinstance(pair, Pair)]
    left = [step for step in steps if step.place == "left"]
    right = [step for step in steps if step.place == "right"]
    for ours, theirs in zip_longest(left, right):
        yield _row(ours, theirs, width)


def _row(left: Pair | None, right: Pair | None, width: int) -> str:
    """A line of two steps, which are the same, or one of them."""
    room = min((width - 6) // 2, _MOST_STEP)
    if left is None or right is None:
        sign = _SIGNS["right"] if left is None else _SIGNS["left"]
    else:
        sign = _SIGNS["same"] if left is right else "≠"
    first = "" if left is None else _cell(left, left.left)
    second = "" if right is None else _cell(right, right.right)
    return f"  {sign} {padded(first, room)}  {cut(second, room)}".rstrip()


def _cell(pair: Pair, step_id: int | None) -> str:
    return f"{step_id:>5}  {_what(pair)}"


def _what(pair: Pair) -> str:
    return f"{pair.type}  {one_line(pair.tool)}" if pair.tool else pair.type


def _step(pair: Pair | Gap) -> str:
    if isinstance(pair, Gap):
        return f"  … {pair.pairs:,} the same"
    left, right = (f"{'' if step is None else step:>5}" for step in (pair.left, pair.right))
    return f"  {_SIGNS[pair.place]} {left} {right}  {_what(pair)}"
