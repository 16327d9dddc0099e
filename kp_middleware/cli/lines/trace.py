"""One trace, as a person reads it."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from kp_middleware.cli.lines._waterfall import waterfall
from kp_middleware.cli.output.screen import broken, padded
from kp_middleware.cli.output.table import cell
from kp_middleware.storage import Row
from kp_middleware.views.trace import (
    applied_threshold,
    arithmetic,
    delivery_status,
    feedback_in_words,
    gate_in_words,
    redaction_counts,
)
from kp_middleware.views.wording import cut, in_words, one_line, width_of

_LONGEST_NAME: Final = 20
_SOME: Final = 20
_PIPE_WIDTH: Final = 100


def trace_lines(
    trace: Row, *, steps: int | None = _SOME, width: int = _PIPE_WIDTH
) -> Iterator[str]:
    """What was asked, how it scored, where it went, and its steps; no line beyond the width.

    Args:
        trace: Its row.
        steps: How many steps at the most; None means all.
        width: Of the terminal, in characters.
    """
    yield from broken(one_line(trace["objective"]), width, most=3)
    yield from broken("  ".join(_facts(trace)), width)
    yield ""
    if trace["score"] is not None:
        yield from waterfall(arithmetic(trace), applied_threshold(trace), width)
    if gate := gate_in_words(trace):
        yield from broken(one_line(gate), width, first="  gate: ", indent="    ")
    yield from broken(one_line(delivery_status(trace)), width, first="  → ", indent="    ")
    if removed := redaction_counts(trace):
        yield from broken(in_words(removed), width, first="    without ", indent="    ")
    for told in feedback_in_words(trace):
        yield from broken(told, width, first="  feedback ", indent="    ")
    yield ""
    yield from _steps(trace, steps, width)
    if trace["result_summary"]:
        yield ""
        result = one_line(trace["result_summary"])
        yield from broken(result, width, first="result: ", indent="        ", most=8)


def chosen(steps: Sequence[Row], most: int | None) -> tuple[Sequence[Row], Sequence[Row]]:
    """The first and the last of the steps, so many in all; the last are a quarter of them."""
    if most is None or len(steps) <= most:
        return steps, ()
    last = most // 4
    return steps[: most - last], steps[len(steps) - last :]


def left_out(trace: Row, shown: int) -> str:
    """How many steps are not shown, and how they are; empty if all are."""
    kept = len(trace["steps"])
    told = [f"{kept - shown:,} steps more: --steps all"] if shown < kept else []
    if kept < trace["step_count"]:
        told.append(f"the run had {trace['step_count']:,} steps, {kept:,} were kept")
    return "; ".join(told)


def told_by(step: Row) -> str:
    """What a step says, in the words that it has."""
    return str(step.get("content") or step.get("output_summary") or _arguments(step))


def took(step: Row) -> str:
    """How long a step took, in milliseconds; empty where it was not measured."""
    return f"{cell(step['latency_ms'], 'latency_ms')} ms" if "latency_ms" in step else ""


def _facts(trace: Row) -> Iterator[str]:
    for name in ("id", "domain", "framework", "model", "started_at"):
        if trace[name]:
            yield one_line(trace[name])
    if trace["duration_ms"] is not None:
        yield f"{trace['duration_ms']:,} ms" if trace["duration_ms"] else "<1 ms"


def _steps(trace: Row, most: int | None, width: int) -> Iterator[str]:
    first, last = chosen(trace["steps"], most)
    names = [_name(step) for step in (*first, *last)]
    room = min(max(map(width_of, names), default=0), _LONGEST_NAME)
    rest = left_out(trace, len(first) + len(last))
    yield from (_step(step, room, width) for step in first)
    if rest:
        yield from broken(f"… {rest}", width, first="      ", indent="      ")
    yield from (_step(step, room, width) for step in last)


def _step(step: Row, room: int, width: int) -> str:
    start = f"{step['step_id']:>4}  {step['type']:<14}  {padded(_name(step), room)}  "
    end = f"  {took(step)}" if took(step) else ""
    return start + cut(one_line(told_by(step)), max(width - width_of(start) - len(end), 1)) + end


def _name(step: Row) -> str:
    return one_line(" ".join(step[part] for part in ("agent", "tool") if part in step))


def _arguments(step: Row) -> str:
    return json.dumps(step["input"], ensure_ascii=False) if "input" in step else ""
