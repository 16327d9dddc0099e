"""One run as text: its score as a waterfall and in words, its steps, a comparison."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kp_middleware.cli.console import cell, grid, indented, plain
from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.explanation import Explanation, compared
from kp_middleware.views.steps import STEP_NAMES, view_step
from kp_middleware.views.trace import (
    ScoreLine,
    added_up,
    arithmetic,
    chosen_steps,
    delivery_status,
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
    line = view.id
    for fact in filter(None, map(one_line, (*view.facts, cost))):
        if width_of(f"{line}  {fact}") > width:  # lines break between two facts
            yield plain(line)
            line = fact
        else:
            line += f"  {fact}"
    yield plain(line)
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


def why_parts(why: Explanation, width: int) -> "Parts":
    """Yield what the score is, why, and what would change the decision."""
    run, view = why.run, view_trace(why.run)
    yield plain(cut(one_line(run.objective), 3 * width))
    yield run.id
    yield ""
    yield plain(_verdict(why))
    if view.gate is not None:
        yield plain(f"Its gate: {one_line(view.gate)}.")
    if view.estimate:
        yield plain(view.estimate)
    yield from (plain(f"Feedback at {one_line(told)}") for told in view.feedback)
    yield ""
    if why.score is None:
        return
    yield "Why"
    table = grid({"width": 2 + _NAME}, {"width": 23}, {"overflow": "fold"}, gap=0)
    for one in why.signals:
        sum_ = f"{one.value:.3f} × {one.weight:.2f} = {one.amount:.3f}"
        table.add_row(_label(one.signal), sum_, plain(one.reason))
    for rule in why.rules:
        table.add_row(_label(rule.rule), f"{rule.delta:>+21.3f}", plain(rule.reason))
    yield table
    yield ""
    if why.threshold is None or why.other_reason is not None:
        yield plain(f"The score alone did not decide: {one_line(why.other_reason or '')}.")
        return
    verb = "stay below" if why.cleared else "reach"
    yield f"To {verb} {short_bar(why.threshold)}, one of these alone would have to be"
    table = grid({"width": 2 + _NAME, "no_wrap": True}, {"overflow": "fold"}, gap=0)
    for one in why.signals:
        table.add_row(_label(one.signal), plain(one.remedy))
    for rule in why.rules:
        table.add_row(_label(rule.rule), f"without this rule {rule.score_without:.3f}")
    yield table


def _label(part: str) -> str:
    return f"  {part.replace('_', ' ')}"


def _verdict(why: Explanation) -> str:
    if why.score is None:
        return f"It has no score: {one_line(delivery_status(why.run))}."
    if why.threshold is None or why.margin is None:
        return f"It scores {why.score:.3f}."
    verb, bar = "reaches" if why.cleared else "is below", short_bar(why.threshold)
    told = f"It scores {why.score:.3f}: that {verb} {bar} by {distance(why.margin)}."
    score, then = why.run.score, getattr(why.run.scoring, "threshold", None)
    if then is not None and (why.score, why.threshold) != (score, then):
        told += f" (As it was scored: {score:.3f} against {short_bar(then)}, which stays.)"
    return told


def difference(left: Run, right: Run, width: int) -> "Parts":
    """Yield facts, scores and steps of two runs side by side; signs say what differs."""
    found = compared(left, right)
    column = max((width - 34) // 2, 12)
    table = grid(
        {"width": 1},
        {"width": 18, "no_wrap": True},
        *[{"width": column, "overflow": "fold"}] * 2,
        {"width": 6, "no_wrap": True},
    )

    def add(sign: str, name: str, *values: str, change: str = "") -> None:
        texts = (plain(cut(value, 3 * column)) for value in values)
        table.add_row(sign, name.replace("_", " "), *texts, change)

    add("", "", "left <", "right >")
    for name, *values in found.facts:
        told = "outcome" if name == "success" else name.removesuffix("_ms")
        texts = (outcome(one) if name == "success" else cell(one, name) for one in values)
        add(_sign(*values), told, *(text.removeprefix("kp:trace:") or "-" for text in texts))
    add("", "", "", "")
    for part in found.scores:
        amounts, workings = (part.left, part.right), (part.left_working, part.right_working)
        sums = (
            "-" if amount is None else f"{amount:.3f}  {working.partition('  (')[0]}"
            for amount, working in zip(amounts, workings, strict=True)
        )
        change = "" if part.difference is None else f"{part.difference:+.3f}"
        add(_sign(*amounts), part.part, *sums, change=change)
    add("", "", "", "")
    steps: list[dict[int | None, StepRecord]]
    steps = [{step.number: step for step in run.steps} for run in (left, right)]
    pairs = [(one.place, steps[0].get(one.left), steps[1].get(one.right)) for one in found.steps]
    for same, group in groupby(pairs, key=lambda pair: _texts(pair[1]) == _texts(pair[2])):
        rows = [*group]
        left_out = len(rows) - 2 * _AROUND if same else 0
        if left_out > 1:
            rows[_AROUND:-_AROUND] = [("same", None, None)]
        for place, *both in rows:
            if both == [None, None]:
                add("", "", f"… {left_out:,} equal steps", "")
                continue
            sign = "≠" if place == "same" and not same else _SIGNS[place]
            add(sign, "", *map(_step, both))
            if sign == "≠":
                beside = zip(*map(_texts, both), strict=True)
                add("", "", *map(one_line, next(two for two in beside if two[0] != two[1])))
    yield table
    yield ""
    yield "= in both, ≠ in both but not the same, < only left, > only right"


def _sign(left: Any, right: Any) -> str:
    return "=" if left == right else "≠"


def _step(step: StepRecord | None) -> str:
    return one_line(f"{step.number} {STEP_NAMES[step.type]} {step.tool or ''}") if step else ""


def _texts(step: StepRecord | None) -> tuple[str, ...]:
    if step is None:
        return ()
    said = "" if step.input is None else json.dumps(step.input, ensure_ascii=False)
    return said, step.content or "", step.output_summary or ""


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
        table.add_row(_label(line.part), *bar, amount, plain(line.working))
    return table


def _bar(start: float, end: float, threshold: float | None, width: int) -> str:
    """Return a bar of the waterfall; what is subtracted is hollow."""
    ends = (start, end, threshold or 0.0)
    first, last, mark = (round(min(1.0, max(0.0, value)) * width) for value in ends)
    left, right = sorted((first, last))
    if left == right and start != end:
        left, right = (left, left + 1) if left < width else (left - 1, left)
    sign = "█" if end >= start else "░"
    cells = [*(" " * left + sign * (right - left)).ljust(width + 1)]
    if threshold is not None:
        cells[mark] = "┆"
    return "".join(cells)


def _steps(run: Run, most: int | None, width: int) -> "Parts":
    first, last, rest = chosen_steps(run, most)
    shown = [view_step(run, step) for step in (*first, *last)]
    names = [one_line(" ".join(dict.fromkeys((step.name, *step.about)))) for step in shown]
    texts = [one_line(step.content or step.output or step.input) for step in shown]
    name = min(max(map(width_of, names), default=0), 2 * _NAME, width // 3)
    text = min(max(map(width_of, texts), default=0), max(width - name - 22, 10))
    rows = [*zip(shown, names, texts, strict=True)]
    for part, more in ((rows[: len(first)], rest), (rows[len(first) :], "")):
        table = grid(
            {"width": 4, "no_wrap": True, "justify": "right"},
            {"width": name, "no_wrap": True},
            {"width": text, "no_wrap": True},
            {"no_wrap": True, "justify": "right"},
        )
        for step, its_name, its_text in part:
            took = one_line(step.duration)
            table.add_row(str(step.number), plain(its_name), plain(its_text), took)
        if part:
            yield table
        if more:
            yield indented(f"… {more}", indent=6)
