"""Renderables of a run: score waterfall, explanation, steps and diff."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kp_middleware.cli.console import grid, indented, safe_text
from kp_middleware.storage import Run, StepRecord
from kp_middleware.views import trace
from kp_middleware.views.explanation import Explanation, Pair, compared
from kp_middleware.views.wording import (
    NO_OBJECTIVE,
    cell,
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

    Renderables: TypeAlias = Iterator[RenderableType]

__all__ = ["render_diff", "render_explanation", "render_run", "waterfall"]

_NAME_WIDTH: Final = 20
_CONTEXT_STEPS: Final = 2  # equal steps shown around a difference


def render_run(run: Run, *, steps: int | None, width: int, cost: str = "") -> "Renderables":
    """Yield a run's objective, score, delivery and steps; ``steps=None`` shows all."""
    view = trace.view_trace(run)
    yield safe_text(cut(one_line(run.objective) or NO_OBJECTIVE, 3 * width))
    line = run.id
    for fact in filter(None, map(one_line, (*view.facts, cost))):
        if width_of(f"{line}  {fact}") > width:  # break lines between facts
            yield safe_text(line)
            line = fact
        else:
            line += f"  {fact}"
    yield safe_text(line)
    yield ""
    if run.score is not None:
        yield waterfall(trace.arithmetic(run), trace.applied_threshold(run), width)
    details = [
        ("  gate: ", view.gate or ""),
        ("  ", view.estimate),
        ("  → ", view.delivery_status),
        ("    redacted ", in_words(dict(view.redactions))),
        *(("  feedback ", text) for text in view.feedback),
    ]
    yield from (indented(one_line(text), mark) for mark, text in details if text)
    yield ""
    yield from _steps(run, steps, width)
    if run.result_summary:
        yield ""
        yield indented(cut(one_line(run.result_summary), 8 * width), "result: ")


def render_explanation(explanation: Explanation, width: int) -> "Renderables":
    run, view = explanation.run, trace.view_trace(explanation.run)
    yield safe_text(cut(one_line(run.objective), 3 * width))
    yield run.id
    yield ""
    yield safe_text(_verdict(explanation))
    if view.gate is not None:
        yield safe_text(f"Gate: {one_line(view.gate)}.")
    if view.estimate:
        yield safe_text(view.estimate)
    yield from (safe_text(f"Feedback at {one_line(text)}") for text in view.feedback)
    yield ""
    if explanation.score is None:
        return
    yield "Why"
    table = grid({"width": 2 + _NAME_WIDTH}, {"width": 23}, {"overflow": "fold"}, gap=0)
    for signal in explanation.signals:
        sum_ = f"{signal.value:.3f} × {signal.weight:.2f} = {signal.amount:.3f}"
        table.add_row(_label(signal.signal), sum_, safe_text(signal.reason))
    for rule in explanation.rules:
        table.add_row(_label(rule.rule), f"{rule.delta:>+21.3f}", safe_text(rule.reason))
    yield table
    yield ""
    if explanation.threshold is None or explanation.other_reason is not None:
        reason = one_line(explanation.other_reason or "")
        yield safe_text(f"The score alone did not decide: {reason}.")
        return
    verb = "fall below" if explanation.cleared else "reach"
    yield f"To {verb} {short_bar(explanation.threshold)} with one change:"
    table = grid({"width": 2 + _NAME_WIDTH, "no_wrap": True}, {"overflow": "fold"}, gap=0)
    for signal in explanation.signals:
        table.add_row(_label(signal.signal), safe_text(signal.remedy))
    for rule in explanation.rules:
        table.add_row(_label(rule.rule), f"without this adjustment: score {rule.score_without:.3f}")
    yield table


def _label(part: str) -> str:
    return f"  {part.replace('_', ' ')}"


def _verdict(explanation: Explanation) -> str:
    run, score, threshold = explanation.run, explanation.score, explanation.threshold
    if score is None:
        return f"No score: {one_line(trace.delivery_status(run))}."
    if threshold is None or explanation.margin is None:
        return f"Score {score:.3f}."
    side = "above" if explanation.cleared else "below"
    verdict = f"Score {score:.3f}, {distance(explanation.margin)} {side} the threshold"
    verdict += f" {short_bar(threshold)}."
    stored = getattr(run.scoring, "threshold", None)
    if stored is not None and (score, threshold) != (run.score, stored):
        verdict += f" The stored score is still {run.score:.3f}, threshold {short_bar(stored)}."
    return verdict


def render_diff(left: Run, right: Run, width: int) -> "Renderables":
    comparison = compared(left, right)
    column = max((width - 34) // 2, 12)
    table = grid(
        {"width": 1},
        {"width": 18, "no_wrap": True},
        *[{"width": column, "overflow": "fold"}] * 2,
        {"width": 6, "no_wrap": True},
    )

    def add(sign: str, name: str, *values: str, change: str = "") -> None:
        texts = (safe_text(cut(value, 3 * column)) for value in values)
        table.add_row(sign, name.replace("_", " "), *texts, change)

    add("", "", "left <", "right >")
    for name, left_value in comparison.left.items():
        values = left_value, comparison.right[name]
        label = "outcome" if name == "success" else name.removesuffix("_ms")
        texts = (outcome(value) if name == "success" else cell(value, name) for value in values)
        add(_sign(*values), label, *(text.removeprefix("kp:trace:") or "-" for text in texts))
    add("", "", "", "")
    for part in comparison.scores:
        amounts, workings = (part.left, part.right), (part.left_working, part.right_working)
        sums = (
            "-" if amount is None else f"{amount:.3f}  {working.partition('  (')[0]}"
            for amount, working in zip(amounts, workings, strict=True)
        )
        change = "" if part.difference is None else f"{part.difference:+.3f}"
        add(_sign(*amounts), part.part, *sums, change=change)
    add("", "", "", "")
    for sign, group in groupby(_step_pairs(left, right, comparison.steps), key=itemgetter(0)):
        pairs = [*group]
        if sign == "=" and (left_out := len(pairs) - 2 * _CONTEXT_STEPS) > 1:
            pairs[_CONTEXT_STEPS:-_CONTEXT_STEPS] = [("", f"… {left_out:,} equal steps", "")]
        for shown, *cells in pairs:
            add(shown, "", *cells)
    yield table
    yield ""
    yield "= equal, ≠ different, < only left, > only right"


def _sign(left: Any, right: Any) -> str:
    return "=" if left == right else "≠"


def _step_pairs(left: Run, right: Run, pairs: Sequence[Pair]) -> Iterator[tuple[str, ...]]:
    """Yield the aligned steps, each with its sign; below ≠, the first texts that differ."""
    for ours, theirs in pairs:
        both = [*zip(_texts(ours), _texts(theirs), strict=True)]
        different = [texts for texts in both if len({*texts}) > 1] if ours and theirs else []
        sign = "≠" if different else ">" if ours is None else "<" if theirs is None else "="
        yield (sign, _step(left, ours), _step(right, theirs))
        if different:
            yield ("", *map(one_line, different[0]))


def _step(run: Run, step: StepRecord | None) -> str:
    return (
        one_line(f"{step.number} {trace.view_step(run, step).name} {step.tool or ''}")
        if step
        else ""
    )


def _texts(step: StepRecord | None) -> tuple[str, ...]:
    if step is None:
        return "", "", ""
    arguments = "" if step.input is None else json.dumps(step.input, ensure_ascii=False)
    return arguments, step.content or "", step.output_summary or ""


def waterfall(lines: Sequence[trace.ScoreLine], threshold: float | None, width: int) -> "Table":
    """Return a row per part of a score; each bar begins where the previous one ends."""
    working = min(max(len(line.working) for line in lines), 36 if width >= 100 else 24)
    bar_width = min(width - _NAME_WIDTH - working - 18, 50)
    has_bars = bar_width >= 12
    table = grid(
        {"width": _NAME_WIDTH + 2, "no_wrap": True},
        *[{"no_wrap": True}] * (1 + has_bars),
        {"overflow": "fold"},
    )
    total = 0.0
    for line in lines:
        is_score = line.part == "score"
        start = 0.0 if is_score else total
        total = start + line.amount
        bar = [_bar(start, total, threshold, bar_width)] if has_bars else []
        amount = format(line.amount, f"{' ' if is_score else '+'}.3f")
        table.add_row(_label(line.part), *bar, amount, safe_text(line.working))
    return table


def _bar(start: float, end: float, threshold: float | None, width: int) -> str:
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


def _steps(run: Run, limit: int | None, width: int) -> "Renderables":
    first, last, rest = trace.chosen_steps(run, limit)
    views = [trace.view_step(run, step) for step in (*first, *last)]
    names = [one_line(" ".join(dict.fromkeys((step.name, *step.about)))) for step in views]
    texts = [one_line(step.content or step.output or step.input) for step in views]
    name = min(max(map(width_of, names), default=0), 2 * _NAME_WIDTH, width // 3)
    text = min(max(map(width_of, texts), default=0), max(width - name - 22, 10))
    rows = [*zip(views, names, texts, strict=True)]
    for part, note in ((rows[: len(first)], rest), (rows[len(first) :], "")):
        table = grid(
            {"width": 4, "no_wrap": True, "justify": "right"},
            {"width": name, "no_wrap": True},
            {"width": text, "no_wrap": True},
            {"no_wrap": True, "justify": "right"},
        )
        for step, step_name, step_text in part:
            took = one_line(step.duration)
            table.add_row(str(step.number), safe_text(step_name), safe_text(step_text), took)
        if part:
            yield table
        if note:
            yield indented(f"… {note}", indent=6)
