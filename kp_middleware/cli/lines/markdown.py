"""One trace as Markdown, to paste into a chat: what it says stays text, whatever it is."""

import json
import re
from collections.abc import Iterator

from kp_middleware.cli.lines.trace import chosen, left_out, took
from kp_middleware.storage import Row
from kp_middleware.views.trace import arithmetic, delivery_status, feedback_in_words, gate_in_words
from kp_middleware.views.wording import one_line, printable, short_id

_BACKTICKS = re.compile("`+")


def markdown(trace: Row, *, steps: int | None) -> Iterator[str]:
    """The objective, the score, where it went, and the steps, as lines.

    Args:
        trace: Its row.
        steps: How many steps at the most; None means all.
    """
    yield f"# Trace {_code(short_id(trace['id']))}"
    yield ""
    yield from fenced(trace["objective"])
    yield ""
    yield f"- domain: {_code(trace['domain'])}"
    yield f"- started: {trace['started_at']}"
    yield f"- outcome: {'success' if trace['success'] else 'no success'}"
    if gate := gate_in_words(trace):
        yield f"- gate: {_code(gate)}"
    yield f"- where it is: {_code(delivery_status(trace))}"
    yield from (f"- feedback: {told}" for told in feedback_in_words(trace))
    yield from _score(trace)
    yield from _steps(trace, steps)
    if trace["result_summary"]:
        yield from ("", "## Result", "")
        yield from fenced(trace["result_summary"])


def fenced(text: str, language: str = "text") -> Iterator[str]:
    """A text in a fence that nothing in it can end."""
    fence = "`" * max(3, _longest(text) + 1)
    yield fence + language
    yield from (printable(line.expandtabs(4)) for line in text.splitlines() or [""])
    yield fence


def _code(text: str) -> str:
    """A text in a line, between more backticks than it holds."""
    text = one_line(text)
    marks = "`" * (_longest(text) + 1)
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"


def _longest(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _score(trace: Row) -> Iterator[str]:
    lines = arithmetic(trace)
    if not lines:
        return
    yield from ("", f"## Score {lines[-1].amount:.3f}: {lines[-1].working}", "")
    yield "| part | amount | how |"
    yield "|---|---:|---|"
    for line in lines[:-1]:
        yield f"| {line.part.replace('_', ' ')} | {line.amount:+.3f} | {line.working} |"


def _steps(trace: Row, most: int | None) -> Iterator[str]:
    first, last = chosen(trace["steps"], most)
    yield from ("", "## Steps")
    for step in first:
        yield from _step(step)
    rest = left_out(trace, len(first) + len(last))
    if rest:
        yield from ("", f"… {rest}")
    for step in last:
        yield from _step(step)


def _step(step: Row) -> Iterator[str]:
    named = [_code(step[part]) for part in ("agent", "tool") if part in step]
    yield ""
    yield f"### {' '.join([str(step['step_id']), step['type'], *named, took(step)])}".rstrip()
    yield ""
    if "input" in step:
        yield from fenced(json.dumps(step["input"], ensure_ascii=False, indent=2), "json")
    for part in ("content", "output_summary"):
        if part in step:
            yield from fenced(step[part])
