"""One run as text: its score as a waterfall and in words, its steps, a comparison."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kp_middleware.cli.console import cell, grid, indented, named, plain
from kp_middleware.core.endings import known_success
from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.comparison import Fact, Pair, Part, compared
from kp_middleware.views.explanation import Explanation
from kp_middleware.views.markdown import chosen_steps, steps_left_out
from kp_middleware.views.trace import (
    STEP_NAMES,
    ScoreLine,
    added_up,
    arithmetic,
    view_step,
    view_trace,
)
from kp_middleware.views.wording import (
    cut,
    distance,
    in_words,
    one_line,
    outcome,
    short_bar,
    width_of,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    Parts: TypeAlias = Iterator[RenderableType]

_NAME: Final = 20
_WIDEST_BAR: Final = 50
_NARROWEST_BAR: Final = 12
_SIGNS: Final = {"same": "=", "left": "<", "right": ">"}
_AROUND: Final = 2  # equal steps shown beside a difference


def run_parts(run: Run, *, steps: int | None, width: int, cost: str = "") -> "Parts":
    """Yield what was asked, how it scored, where it went, and its steps; None: all of them."""
    view = view_trace(run)
    yield plain(cut(one_line(run.objective), 3 * width))
    facts = filter(None, (*view.facts, cost))
    yield from map(plain, _laid_out([view.id, *map(one_line, facts)], width))
    yield ""
    if run.score is not None:
        yield waterfall(added_up(arithmetic(run)), view.threshold, width)
    told = [
        ("  gate: ", view.gate or ""),
        ("  ", view.estimate),
        ("  → ", view.delivery_status),
        ("    without ", in_words(dict(view.redactions))),
        *(("  feedback ", one) for one in view.feedback),
    ]
    yield from (indented(one_line(text), mark) for mark, text in told if text)
    yield ""
    yield from _steps(run, steps, width)
    if view.result:
        yield ""
        yield indented(cut(one_line(view.result), 8 * width), "result: ")


def _laid_out(facts: Sequence[str], width: int) -> list[str]:
    """Return the facts in lines of this width, which break between two of them."""
    lines = [facts[0]]
    for fact in facts[1:]:
        longer = f"{lines[-1]}  {fact}"
        if width_of(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(fact)
    return lines


def why_parts(why: Explanation, objective: str, width: int) -> "Parts":
    """Yield what the score is, why, and what would change the decision."""
    yield plain(cut(one_line(objective), 3 * width))
    yield why.id
    yield ""
    yield plain(_verdict(why))
    if why.gate is not None:
        yield plain(f"Its gate: {one_line(why.gate)}.")
    if why.estimate is not None:
        yield plain(why.estimate)
    for told in why.feedback:
        yield plain(f"Feedback at {one_line(told)}")
    yield ""
    if why.score is None:
        yield "What is known of it"
        yield named(_known(why.known))
        return
    yield "Why"
    yield _sum(why)
    yield ""
    if why.threshold is None or why.other_reason is not None:
        yield plain(f"The score alone did not decide: {one_line(why.other_reason or '')}.")
        return
    yield plain(_question(why, why.threshold))
    yield named(
        [(one.signal, one.remedy) for one in why.signals]
        + [(one.rule, f"without this rule {one.score_without:.3f}") for one in why.rules]
    )


def comparison_parts(left: Run, right: Run, width: int) -> "Parts":
    """Yield facts, scores and steps of two runs; signs say what differs, not colours."""
    comparison = compared(left, right)
    column = min(max((width - _NAME - 18) // 2, 12), 36)
    table = grid(
        {"width": 2, "no_wrap": True, "justify": "right"},
        {"width": 18, "no_wrap": True},
        *[{"width": column, "overflow": "fold"}] * 2,
        {"width": 6, "no_wrap": True},
    )
    table.add_row("", "", "left <", "right >", "")
    for fact in comparison.facts:
        values = (cut(_fact(fact, one), 2 * column) for one in (fact.left, fact.right))
        sign = "=" if fact.left == fact.right else "≠"
        name = "outcome" if fact.fact == "success" else fact.fact.removesuffix("_ms")
        table.add_row(sign, name.replace("_", " "), *map(plain, values), "")
    table.add_row("")
    for part in comparison.scores:
        table.add_row(*_score(part, column))
    yield table
    yield ""
    yield "= in both, ≠ in both but not the same, < only left, > only right"
    for line in _aligned(comparison.steps, left.steps, right.steps):
        yield plain(cut(line, width))


def waterfall(lines: Sequence[ScoreLine], threshold: float | None, width: int) -> "Table":
    """Return a row for each part of a score; its bar begins where the one before it ended."""
    working = min(max(len(line.working) for line in lines), 36 if width >= 100 else 24)
    room = min(width - _NAME - working - 18, _WIDEST_BAR)
    draws = room >= _NARROWEST_BAR
    table = grid(
        {"width": _NAME + 2, "no_wrap": True},
        *[{"no_wrap": True}] * (1 + draws),
        {"overflow": "fold"},
    )
    total = 0.0
    for line in lines:
        is_score = line.part == "score"
        start = 0.0 if is_score else total
        total = start + line.amount
        bar = [_bar(start, total, threshold, room)] if draws else []
        amount = format(line.amount, f"{' ' if is_score else '+'}.3f")
        table.add_row(f"  {line.part.replace('_', ' ')}", *bar, amount, plain(line.working))
    return table


def _bar(start: float, end: float, threshold: float | None, width: int) -> str:
    """Return a bar of the waterfall; what is subtracted is hollow."""
    filled = "█" if end >= start else "░"
    left, right = sorted((_column(start, width), _column(end, width)))
    if left == right and start != end:
        left, right = (left, left + 1) if left < width else (left - 1, left)
    cells = [filled if left <= column < right else " " for column in range(width + 1)]
    if threshold is not None:
        cells[_column(threshold, width)] = "┆"
    return "".join(cells)


def _column(value: float, width: int) -> int:
    return round(min(1.0, max(0.0, value)) * width)


def _steps(run: Run, most: int | None, width: int) -> "Parts":
    first, last = chosen_steps(run, most)
    shown = [view_step(run, step) for step in (*first, *last)]
    names = [one_line(" ".join(dict.fromkeys((step.name, *step.about)))) for step in shown]
    texts = [one_line(step.content or step.output or step.input) for step in shown]
    name = min(max(map(width_of, names), default=0), 2 * _NAME, width // 3)
    text = min(max(map(width_of, texts), default=0), max(width - name - 22, 10))
    rest = steps_left_out(run, len(shown))
    table = _step_table(name, text)
    for place, step in enumerate(shown):
        if rest and place == len(first):
            yield table
            yield indented(f"… {rest}", indent=6)
            table = _step_table(name, text)
        took = one_line(step.duration)
        table.add_row(str(step.number), plain(names[place]), plain(texts[place]), took)
    yield table
    if rest and not last:
        yield indented(f"… {rest}", indent=6)


def _step_table(name: int, text: int) -> "Table":
    return grid(
        {"width": 4, "no_wrap": True, "justify": "right"},
        {"width": name, "no_wrap": True, "overflow": "ellipsis"},
        {"width": text, "no_wrap": True, "overflow": "ellipsis"},
        {"no_wrap": True, "justify": "right"},
    )


def _verdict(why: Explanation) -> str:
    if why.score is None:
        return f"It has no score: {one_line(why.delivery_status)}."
    if why.threshold is None or why.margin is None:
        return f"It scores {why.score:.3f}."
    verb, bar = "reaches" if why.cleared else "is below", short_bar(why.threshold)
    told = f"It scores {why.score:.3f}: that {verb} {bar} by {distance(why.margin)}."
    score, then = why.recorded_score, why.recorded_threshold
    if then is not None and (why.score, why.threshold) != (score, then):
        told += f" (As it was scored: {score:.3f} against {short_bar(then)}, which stays.)"
    return told


def _sum(why: Explanation) -> "Table":
    """Return the parts of the score with their reasons."""
    rows = [
        (one.signal, f"{one.value:.3f} × {one.weight:.2f} = {one.amount:.3f}", one.reason)
        for one in why.signals
    ]
    rows += [(one.rule, f"{one.delta:>+21.3f}", one.reason) for one in why.rules]
    table = grid({"width": 2 + _NAME}, {"width": 23}, {"overflow": "fold"}, gap=0)
    for name, sum_, reason in rows:
        table.add_row(f"  {name.replace('_', ' ')}", sum_, plain(reason))
    return table


def _question(why: Explanation, threshold: float) -> str:
    verb = "stay below" if why.cleared else "reach"
    return f"To {verb} {short_bar(threshold)}, one of these alone would have to be"


def _known(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kinds = f": {', '.join(known['kinds'])}" if known["kinds"] else ""
    how = outcome(known_success(known["success"], known["success_source"]))
    yield "steps", f"{known['steps']:,}{kinds}"
    yield "recoveries", f"{known['recoveries']:,} from errors"
    yield "tools", f"{known['tools']:,} different"
    yield "confidence", f"{known['confidence']:.3f} ({known['confidence_source']})"
    yield "outcome", f"{how} ({known['success_source']})"


def _fact(fact: Fact, value: Any) -> str:
    if fact.fact == "success":
        return outcome(value)
    if value is None:
        return "-"
    if fact.fact == "threshold":
        return short_bar(value)
    return cell(value, fact.fact).removeprefix("kp:trace:")


def _score(part: Part, column: int) -> tuple[str, str, str, str, str]:
    sign = "=" if part.left == part.right else "≠"
    left = _amount(part.left, part.left_working, column)
    right = _amount(part.right, part.right_working, column)
    difference = "" if part.difference is None else f"{part.difference:+.3f}"
    return sign, part.part.replace("_", " "), left, right, difference


def _amount(amount: float | None, working: str, column: int) -> str:
    """Return an amount, with its working if there is room: a cut number would be wrong."""
    if amount is None:
        return "-"
    told = f"{amount:.3f}  {working.partition('  (')[0]}"
    return told if len(told) <= column else f"{amount:.3f}"


def _aligned(
    pairs: Sequence[Pair], left: Sequence[StepRecord], right: Sequence[StepRecord]
) -> Iterator[str]:
    """Yield the steps of both; of many that are equal, those beside a difference."""
    ours, theirs = _texts(left), _texts(right)
    told = [(pair, ours.get(pair.left, ()), theirs.get(pair.right, ())) for pair in pairs]
    for is_equal, group in groupby(told, key=lambda one: one[1] == one[2]):
        rows = [*group]
        left_out = len(rows) - 2 * _AROUND if is_equal else 0
        for place, (pair, *texts) in enumerate(rows):
            if left_out > 1 and _AROUND <= place < len(rows) - _AROUND:
                if place == _AROUND:
                    yield f"  … {left_out:,} equal steps"
                continue
            sign = _SIGNS[pair.place] if is_equal or pair.place != "same" else "≠"
            numbers = (f"{'' if one is None else one:>5}" for one in (pair.left, pair.right))
            yield f"{sign} {' '.join(numbers)}  {STEP_NAMES[pair.type]} {pair.tool or ''}".rstrip()
            if sign == "≠":
                a, b = next(both for both in zip(*texts, strict=True) if both[0] != both[1])
                yield from (f"{'<':>15} {one_line(a)}", f"{'>':>15} {one_line(b)}")


def _texts(steps: Sequence[StepRecord]) -> dict[int | None, tuple[str, ...]]:
    """Return by number what may differ between steps of one type and tool."""
    return {
        step.number: (
            "" if step.input is None else json.dumps(step.input, ensure_ascii=False),
            step.content or "",
            step.output_summary or "",
        )
        for step in steps
    }
