"""One trace, as a person reads it."""

import json
from collections.abc import Iterator

from kp_middleware.inspection._explanation import arithmetic, in_words, one_line, whereabouts
from kp_middleware.storage import Row

_WIDTH = 100


def trace_lines(trace: Row) -> Iterator[str]:
    """What was asked, how it scored, where it went, and its steps."""
    yield one_line(trace["objective"])
    facts = (trace["id"], trace["domain"], trace["framework"], trace["started_at"])
    yield "  ".join(one_line(fact) for fact in facts if fact)
    yield ""
    yield from _sum(trace)
    yield f"  → {one_line(whereabouts(trace))}"
    if trace["outbox"] and trace["outbox"]["redactions"]:
        yield f"    without {in_words(trace['outbox']['redactions'])}"
    yield ""
    yield from map(_step, trace["steps"])
    if trace["result_summary"]:
        yield ""
        yield f"result: {one_line(trace['result_summary'])}"


def _sum(trace: Row) -> Iterator[str]:
    for line in arithmetic(trace):
        sign = " " if line.part == "score" else "+"
        name = line.part.replace("_", " ")
        yield f"  {name:<20}{format(line.amount, f'{sign}.3f')}   {line.working}"


def _step(step: Row) -> str:
    took = f"  {step['latency_ms']:.0f} ms" if "latency_ms" in step else ""
    told = step.get("content") or step.get("output_summary") or _arguments(step)
    name = " ".join(step[part] for part in ("agent", "tool") if part in step)
    return (
        f"{step['step_id']:>4}  {step['type']:<15} {one_line(name):<20} {one_line(told)}"[:_WIDTH]
        + took
    )


def _arguments(step: Row) -> str:
    return json.dumps(step["input"], ensure_ascii=False) if "input" in step else ""
