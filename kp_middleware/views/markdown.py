"""One run as Markdown, to paste into a chat."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.trace import arithmetic, delivery_status, feedback_in_words, gate_in_words
from kp_middleware.views.wording import duration, one_line, outcome, printable, short_id, shortened

_BACKTICKS: Final = re.compile("`+")
_TITLE: Final = 120


def markdown(run: Run, *, steps: int | None) -> Iterator[str]:
    """Yield the lines of a run as Markdown: its texts stay texts. None: all steps."""
    title = shortened(run.objective, _TITLE)
    yield f"# {_code(title)}"
    yield ""
    if title != run.objective:
        yield from _fenced(run.objective)
        yield ""
    yield f"- run: {_code(short_id(run.id))}"
    yield f"- domain: {_code(run.domain)}"
    yield f"- started: {run.started_at}"
    yield f"- outcome: {outcome(run.known_success)}"
    if gate := gate_in_words(run):
        yield f"- gate: {_code(gate)}"
    yield f"- where it is: {_code(delivery_status(run))}"
    yield from (f"- feedback: {told}" for told in map(feedback_in_words, run.feedback))
    if lines := arithmetic(run):
        yield from ("", f"## Score {lines[-1].amount:.3f}: {lines[-1].working}", "")
        yield from ("| part | amount | how |", "|---|---:|---|")
        for line in lines[:-1]:
            yield f"| {line.part.replace('_', ' ')} | {line.amount:+.3f} | {line.working} |"
    first, last = chosen_steps(run, steps)
    yield from ("", "## Steps")
    for step in first:
        yield from _step_in_markdown(step)
    if rest := steps_left_out(run, len(first) + len(last)):
        yield from ("", f"… {rest}")
    for step in last:
        yield from _step_in_markdown(step)
    if run.result_summary:
        yield from ("", "## Result", "")
        yield from _fenced(run.result_summary)


def chosen_steps(run: Run, most: int | None) -> tuple[Sequence[StepRecord], Sequence[StepRecord]]:
    """Return the first and last steps to show, the last being a quarter of them."""
    steps = run.steps
    if most is None or len(steps) <= most:
        return steps, ()
    last = most // 4
    return steps[: most - last], steps[len(steps) - last :]


def steps_left_out(run: Run, shown: int) -> str:
    """Say how many steps are not shown, and how to see them; empty if all are."""
    kept = len(run.steps)
    told = [f"{kept - shown:,} more steps: --steps all"] if shown < kept else []
    if kept < run.step_count:
        told.append(f"the run had {run.step_count:,} steps, {kept:,} were kept")
    return "; ".join(told)


def _fenced(text: str, language: str = "text") -> Iterator[str]:
    """Yield a text in a Markdown fence longer than any in it."""
    fence = "`" * max(3, _longest(text) + 1)
    yield fence + language
    yield from (printable(line.expandtabs(4)) for line in text.splitlines() or [""])
    yield fence


def _code(text: str) -> str:
    """Return a text as inline code, between more backticks than it holds."""
    text = one_line(text)
    marks = "`" * (_longest(text) + 1)
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"


def _longest(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _step_in_markdown(step: StepRecord) -> Iterator[str]:
    names = [_code(part) for part in (step.agent, step.tool) if part is not None]
    took = "" if step.latency_ms is None else duration(step.latency_ms)
    yield ""
    yield f"### {' '.join([str(step.number), step.type, *names, took])}".rstrip()
    yield ""
    if step.input is not None:
        yield from _fenced(json.dumps(step.input, ensure_ascii=False, indent=2), "json")
    for text in filter(None, (step.content, step.output_summary)):
        yield from _fenced(text)
