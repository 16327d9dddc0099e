"""One run as text: its score as a waterfall and in words, its steps, a comparison."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kp_middleware.cli.console import cell, grid, indented, named, plain
from kp_middleware.core.endings import known_success
from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.comparison import Comparison, Fact, Gap, Pair, Part, differences_in_context
from kp_middleware.views.explanation import Explanation
from kp_middleware.views.markdown import chosen_steps, steps_left_out
from kp_middleware.views.trace import (
    ScoreLine,
    added_up,
    applied_threshold,
    arithmetic,
    delivery_status,
    feedback_in_words,
    gate_in_words,
    redaction_counts,
)
from kp_middleware.views.wording import (
    cut,
    distance,
    in_words,
    one_line,
    short_bar,
    success_in_words,
    width_of,
    yes_or_no,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    Parts: TypeAlias = Iterator[RenderableType]

_NAME: Final = 20
_ROOMY: Final = 80
_WIDEST_BAR: Final = 50
_NARROWEST_BAR: Final = 12
_SIGNS: Final = {"same": "=", "left": "<", "right": ">"}


def run_parts(run: Run, *, steps: int | None, width: int) -> "Parts":
    """Yield what was asked, how it scored, where it went, and its steps.

    Args:
        run: The run.
        steps: How many steps at the most; None means all.
        width: Of the terminal, in characters.
    """
    yield plain(cut(one_line(run.objective), 3 * width))
    yield plain("  ".join(_facts(run)))
    yield ""
    if run.score is not None:
        yield waterfall(added_up(arithmetic(run)), applied_threshold(run), width)
    if gate := gate_in_words(run):
        yield indented(one_line(gate), "  gate: ")
    yield indented(one_line(delivery_status(run)), "  → ")
    if removed := redaction_counts(run):
        yield indented(in_words(removed), "    without ")
    for told in map(feedback_in_words, run.feedback):
        yield indented(one_line(told), "  feedback ")
    yield ""
    yield from _steps(run, steps, width)
    if run.result_summary:
        yield ""
        yield indented(cut(one_line(run.result_summary), 8 * width), "result: ")


def why_parts(why: Explanation, objective: str, width: int) -> "Parts":
    """Yield what the score is, why, and what would change the verdict."""
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
        yield named(_known(why))
        return
    yield "Why"
    yield _sum(why, width)
    yield ""
    if why.threshold is None or why.other_reason is not None:
        yield plain(f"The score alone did not decide: {one_line(why.other_reason or '')}.")
        return
    yield plain(_question(why, why.threshold))
    yield named(
        [(one.signal, one.remedy) for one in why.signals]
        + [(one.rule, f"without this rule {one.score_without:.3f}") for one in why.rules]
    )


def comparison_parts(comparison: Comparison, width: int) -> "Parts":
    """Yield facts, scores and steps of two runs; signs say what differs, not colours."""
    column = min(max((width - _NAME - 18) // 2, 12), 36)
    table = grid(
        {"width": 2, "no_wrap": True, "justify": "right"},
        {"width": 18, "no_wrap": True},
        *[{"width": column, "overflow": "fold"}] * 2,
        {"width": 6, "no_wrap": True},
    )
    table.add_row("", "", "left <", "right >", "")
    for fact in comparison.facts:
        left, right = (cut(_fact(fact, one), 2 * column) for one in (fact.left, fact.right))
        sign = "=" if fact.left == fact.right else "≠"
        table.add_row(sign, fact.fact.replace("_", " "), plain(left), plain(right), "")
    table.add_row("")
    for part in comparison.scores:
        table.add_row(*_score(part, column))
    yield table
    yield ""
    yield from _aligned(comparison.steps, width)


def _facts(run: Run) -> Iterator[str]:
    for fact in (run.id, run.domain, run.framework, run.model, run.started_at):
        if fact:
            yield one_line(fact)
    if run.duration_ms is not None:
        yield f"{run.duration_ms:,} ms" if run.duration_ms else "<1 ms"


def waterfall(lines: Sequence[ScoreLine], threshold: float | None, width: int) -> "Table":
    """Return a row for each part of a score; its bar begins where the one before it ended.

    Args:
        lines: The parts, and the score last.
        threshold: Marked in each row by ┆, from 0 to 1; None if there is none.
        width: Of the terminal; a narrow one has room for the numbers alone.
    """
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
    if draws:
        table.add_row("", _axis(threshold, room), "", "")
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


def _axis(threshold: float | None, width: int) -> str:
    """Return the axis: the ends of the scale, and the threshold if there is room for it."""
    cells = [*f"0{'':{width - 1}}1"]
    if threshold is not None:
        told = short_bar(threshold)
        start = _column(threshold, width) - len(told) // 2
        if start > 1 and start + len(told) < width:
            cells[start : start + len(told)] = told
    return "".join(cells)


def _column(value: float, width: int) -> int:
    return round(min(1.0, max(0.0, value)) * width)


def _steps(run: Run, most: int | None, width: int) -> "Parts":
    first, last = chosen_steps(run, most)
    names = [_step_name(step) for step in (*first, *last)]
    told = [one_line(_told(step)) for step in (*first, *last)]
    room = min(max(map(width_of, names), default=0), _NAME)
    widest = max(map(width_of, told), default=0)
    widths = room, min(widest, max(width - room - 36, 10))
    table = _step_table(*widths)
    rest = steps_left_out(run, len(first) + len(last))
    for place, step in enumerate((*first, *last)):
        if rest and place == len(first):
            yield table
            yield indented(f"… {rest}", indent=6)
            table = _step_table(*widths)
        table.add_row(
            str(step.number), step.type, plain(names[place]), plain(told[place]), _took(step)
        )
    yield table
    if rest and not last:
        yield indented(f"… {rest}", indent=6)


def _step_table(name: int, told: int) -> "Table":
    return grid(
        {"width": 4, "no_wrap": True, "justify": "right"},
        {"width": 14, "no_wrap": True},
        {"width": name, "no_wrap": True, "overflow": "ellipsis"},
        {"width": told, "no_wrap": True, "overflow": "ellipsis"},
        {"no_wrap": True, "justify": "right"},
    )


def _told(step: StepRecord) -> str:
    arguments = "" if step.input is None else json.dumps(step.input, ensure_ascii=False)
    return step.content or step.output_summary or arguments


def _took(step: StepRecord) -> str:
    return "" if step.latency_ms is None else f"{cell(step.latency_ms, 'latency_ms')} ms"


def _step_name(step: StepRecord) -> str:
    return one_line(" ".join(filter(None, (step.agent, step.tool))))


def _verdict(why: Explanation) -> str:
    if why.score is None:
        return f"It has no score: {one_line(why.delivery_status)}."
    if why.threshold is None or why.margin is None:
        return f"It scores {why.score:.3f}."
    bar, margin = short_bar(why.threshold), distance(why.margin)
    if why.margin >= 0 and not why.cleared:
        told = f"is no more than {bar}, and those just as good had gone"
    else:
        told = f"{'reaches' if why.margin >= 0 else 'is below'} {bar} by {margin}"
    told = f"It scores {why.score:.3f}: that {told}."
    score, then = why.recorded_score, why.recorded_threshold
    if then is not None and (why.score, why.threshold) != (score, then):
        told += f" (As it was scored: {score:.3f} against {short_bar(then)}, which stays.)"
    return told


def _sum(why: Explanation, width: int) -> "Table":
    """Return the parts of the score with their reasons, below them if the terminal is narrow."""
    rows = [
        (one.signal, f"{one.value:.3f} × {one.weight:.2f} = {one.amount:.3f}", one.reason)
        for one in why.signals
    ]
    rows += [(one.rule, f"{one.delta:>+21.3f}", one.reason) for one in why.rules]
    if width < _ROOMY:
        return named(pair for name, sum_, reason in rows for pair in ((name, sum_), ("", reason)))
    table = grid({"width": 2 + _NAME}, {"width": 23}, {"overflow": "fold"}, gap=0)
    for name, sum_, reason in rows:
        table.add_row(f"  {name.replace('_', ' ')}", sum_, plain(reason))
    return table


def _question(why: Explanation, threshold: float) -> str:
    if why.cleared:
        aim = f"stay below {short_bar(threshold)}"
    else:
        verb = "reach" if why.enough == threshold else "score more than"
        aim = f"{verb} {short_bar(threshold)}"
    return f"To {aim}, one of these alone would have to be"


def _known(why: Explanation) -> Iterator[tuple[str, str]]:
    known = why.known
    kinds = f": {', '.join(known.kinds)}" if known.kinds else ""
    how = success_in_words(known_success(known.success, known.success_source))
    yield "steps", f"{known.steps:,}{kinds}"
    yield "recoveries", f"{known.recoveries:,} from errors"
    yield "tools", f"{known.tools:,} different"
    told = f"{known.confidence:.3f} ({known.confidence_source}), {how} ({known.success_source})"
    yield "confidence", told


def _fact(fact: Fact, value: Any) -> str:
    if fact.fact == "success":
        return yes_or_no(value)
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


def _aligned(pairs: Sequence[Pair], width: int) -> "Parts":
    shown = differences_in_context(pairs)
    if width < _ROOMY:
        yield "= in both, < only left, > only right"
        for pair in shown:
            yield plain(cut(_in_one(pair), width))
        return
    yield "= in both, ≠ another step, < only left, > only right"
    room = min((width - 6) // 2, 56)
    side = {"width": room, "no_wrap": True, "overflow": "ellipsis"}
    table = grid({"width": 3, "no_wrap": True, "justify": "right"}, side, side)
    for is_same, group in groupby(shown, key=lambda pair: not _differs(pair)):
        if is_same:
            for pair in group:
                table.add_row(*_same(pair))
        else:
            steps = [pair for pair in group if isinstance(pair, Pair)]
            left = [step for step in steps if step.place == "left"]
            right = [step for step in steps if step.place == "right"]
            for ours, theirs in zip_longest(left, right):
                sign = "≠" if ours and theirs else _SIGNS["left" if ours else "right"]
                table.add_row(sign, _side(ours, "left"), _side(theirs, "right"))
    yield table


def _differs(pair: Pair | Gap) -> bool:
    return isinstance(pair, Pair) and pair.place != "same"


def _same(pair: Pair | Gap) -> tuple[str, ...]:
    if isinstance(pair, Gap):
        return "…", f"{pair.pairs:,} the same"
    return _SIGNS["same"], _side(pair, "left"), _side(pair, "right")


def _side(pair: Pair | None, side: str) -> str:
    return "" if pair is None else f"{getattr(pair, side):>5}  {_what(pair)}"


def _in_one(pair: Pair | Gap) -> str:
    if isinstance(pair, Gap):
        return f"  … {pair.pairs:,} the same"
    left, right = (f"{'' if step is None else step:>5}" for step in (pair.left, pair.right))
    return f"  {_SIGNS[pair.place]} {left} {right}  {_what(pair)}"


def _what(pair: Pair) -> str:
    return f"{pair.type}  {one_line(pair.tool)}" if pair.tool else pair.type
