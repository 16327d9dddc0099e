"""Joining of the parts of a thread into one run, and the end of a part never resumed."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import NamedTuple

from kp_middleware.core.endings import default_confidence
from kp_middleware.core.formula import Shape
from kp_middleware.recording._limits import Limits, size_bytes
from kp_middleware.recording._steps import STEP_OVERHEAD_BYTES, is_marker, marker
from kp_middleware.runs import RecordedRun, Source, StepFacts, ThreadPart
from kp_middleware.traces import Outcome, ReasoningTrace, Step


class _Placed(NamedTuple):
    """A step of the joined run, before it is bounded and numbered."""

    step: Step
    facts: StepFacts = StepFacts()


def joined(first: RecordedRun, second: RecordedRun, limits: Limits) -> RecordedRun:
    """Join the part of a run that paused, ``first``, and the part that resumed it, ``second``.

    The result is ``first``'s document with ``second``'s outcome. The input of ``second`` is a step,
    unless it only resumed. A call or question that the second part repeats is one step.
    """
    before = _placed(first)
    news = [*_turn(second), *_news(second, _part_of(first), [placed.step for placed in before])]
    shape = _shape(first, second, news)
    kept = _bounded(before, news, _gap(first), shape.steps, limits)
    return first.model_copy(
        update={
            "trace": _document(first, second, kept),
            "shape": shape,
            "duration_ms": _sum(first.duration_ms, second.duration_ms),
            "complete": second.complete,
            "error_type": second.error_type,
            "model": second.model or first.model,
            "input_tokens": _sum(first.input_tokens, second.input_tokens),
            "output_tokens": _sum(first.output_tokens, second.output_tokens),
            "facts": tuple(placed.facts for placed in kept),
            "confidence_source": second.confidence_source,
            "success_source": second.success_source,
            "part": _part(first, second),
            "owner": first.owner or second.owner,
            "recalled": tuple(dict.fromkeys((*first.recalled, *second.recalled))),
            "redactions": dict(Counter(first.redactions) + Counter(second.redactions)),
        }
    )


def ended(
    run: RecordedRun, *, success: bool | None = None, confidence: float | None = None
) -> RecordedRun:
    """End a paused run that nothing resumed; with a ``success`` it is complete.

    Without a confidence, what the agent said stays, or else it is the default for ``success``.
    """
    trace = run.trace
    sources: dict[str, Source] = {}
    if success is None:
        success, complete = trace.metadata.success, run.complete
    else:
        complete, sources["success_source"] = True, "said"
    if confidence is not None:
        sources["confidence_source"] = "said"
    elif success == trace.metadata.success or run.confidence_source != "assumed":
        confidence = trace.outcome.confidence
    else:
        confidence = default_confidence(success=success)
    changed = trace.ended(success=success, confidence=confidence)
    over = run.model_copy(update={"trace": changed, "complete": complete, "part": None, **sources})
    return over if run.error_type is None else _fatal(over)


def alone(run: RecordedRun) -> RecordedRun | None:
    """Return a part whose earlier parts are missing, or None if it has no steps of its own.

    Results of calls that it did not make are left out.
    """
    kept = [*_news(run, ThreadPart(thread=""), [])]
    if all(placed.step.type == "observation" and placed.step.tool is None for placed in kept):
        return None
    if len(kept) == len(run.trace.steps):
        return run
    trace = run.trace.model_copy(update={"steps": _numbered(kept)})
    facts = tuple(placed.facts for placed in kept)
    left_out = run.shape.steps - len(run.trace.steps)
    shape = replace(trace.shape, steps=len(kept) + max(0, left_out))
    return run.model_copy(update={"trace": trace, "shape": shape, "facts": facts})


def _turn(run: RecordedRun) -> list[_Placed]:
    """Return the objective of a later part as a step, if it was given one."""
    if not _part_of(run).was_asked:
        return []
    return [_Placed(Step(step_id=0, type="observation", content=run.trace.task.objective))]


def _placed(run: RecordedRun) -> list[_Placed]:
    """Return the steps of a run, without placeholders and markers."""
    if run.shape.steps == 0:
        return []
    steps = enumerate(run.trace.steps)
    return [_Placed(step, _facts(run, at)) for at, step in steps if not is_marker(step)]


def _facts(run: RecordedRun, at: int) -> StepFacts:
    return run.facts[at] if at < len(run.facts) else StepFacts()


def _news(run: RecordedRun, earlier: ThreadPart, before: list[Step]) -> Iterator[_Placed]:
    """Yield the steps of a part that are not in the earlier parts already."""
    if run.shape.steps == 0:
        return
    call_ids, made = _part_of(run).calls, set(earlier.owed)
    questions = {*_part_of(run).questions, *earlier.questions}
    for at, step in enumerate(run.trace.steps):
        call_id = call_ids.get(at)
        if call_id is None:  # before langchain-core 1.1.3 calls have no id
            again = step.type == "tool_call" and bool(earlier.owed) and _take_equal(step, before)
        elif call_id in questions:
            again = call_id in earlier.questions and _take_equal(step, before)
        elif step.type == "tool_call":
            again = call_id in earlier.owed
            made.add(call_id)
        else:
            again = call_id not in made
        if not again and not is_marker(step):
            yield _Placed(step, _facts(run, at))


def _take_equal(step: Step, before: list[Step]) -> bool:
    """Remove the first equal step from ``before``, and return whether there was one."""
    said = step.model_dump(exclude={"step_id", "latency_ms"})
    for number, earlier in enumerate(before):
        if (
            earlier.type == step.type
            and earlier.model_dump(exclude={"step_id", "latency_ms"}) == said
        ):
            del before[number]
            return True
    return False


def _gap(run: RecordedRun) -> int | None:
    """Return the position at which steps were left out, or None if all are there."""
    return next((at for at, step in enumerate(run.trace.steps) if is_marker(step)), None)


def _bounded(
    before: list[_Placed], news: list[_Placed], gap: int | None, count: int, limits: Limits
) -> list[_Placed]:
    """Return the first and the last steps, as `StepLog` keeps them, with a marker between.

    ``gap`` is the position of steps left out of the first part, ``count`` the total of all.
    """
    steps = [*before, *news]
    sizes = [_size_bytes(placed.step) for placed in steps]
    most = (limits.steps - 1) // 2, limits.trace_bytes // 2
    head = _fitting(sizes, *most) if gap is None else min(gap, most[0])
    rest = sizes[head:]
    most_tail = limits.steps - most[0]
    tail = _fitting(rest[::-1], most_tail, limits.trace_bytes - most[1]) or 1
    if head + min(tail, len(rest)) == count:
        return steps
    tail = min(tail, most_tail - 1)  # the marker takes a place
    end = steps[head:][-tail:] if rest else []
    step = Step(step_id=0, **marker(count - head - len(end), count))
    return [*steps[:head], _Placed(step), *end]


def _fitting(sizes: Sequence[int], most: int, most_bytes: int) -> int:
    """Return how many of the first steps are within the limits."""
    totals = takewhile(lambda total: total <= most_bytes, accumulate(sizes[:most]))
    return sum(1 for _ in totals)


def _document(first: RecordedRun, second: RecordedRun, kept: Sequence[_Placed]) -> ReasoningTrace:
    end = second.trace
    metadata = first.trace.metadata.model_copy(update={"success": end.metadata.success})
    result = end.outcome.result_summary or first.trace.outcome.result_summary
    outcome = Outcome(result_summary=result, confidence=end.outcome.confidence)
    changed = {"metadata": metadata, "steps": _numbered(kept), "outcome": outcome}
    return first.trace.model_copy(update=changed)


def _numbered(kept: Sequence[_Placed]) -> tuple[Step, ...]:
    if not kept:  # a document has at least one step
        return (Step(step_id=0, type="observation"),)
    return tuple(
        step if step.step_id == number else step.model_copy(update={"step_id": number})
        for number, (step, _) in enumerate(kept)
    )


def _shape(first: RecordedRun, second: RecordedRun, news: list[_Placed]) -> Shape:
    earlier, later, told = first.shape, second.shape, _placed(second)
    used = {*_part_of(first).tools, *_part_of(second).tools}
    return Shape(
        steps=earlier.steps + later.steps + len(news) - len(told),
        types=earlier.types | later.types | {placed.step.type for placed in news},
        tools=len(used),
        recoveries=earlier.recoveries + later.recoveries + _recoveries(news) - _recoveries(told),
    )


def _recoveries(steps: Iterable[_Placed]) -> int:
    return sum(placed.step.type == "error_recovery" for placed in steps)


def _part(first: RecordedRun, second: RecordedRun) -> ThreadPart | None:
    """Return what the joined run waits for and the calls without a result, or None if it ended."""
    earlier, later = _part_of(first), _part_of(second)
    if later.awaits is None:
        return None
    answered = {
        call_id for at, call_id in later.calls.items() if second.trace.steps[at].type != "tool_call"
    }
    still = [call_id for call_id in earlier.owed if call_id not in answered]
    return later.model_copy(
        update={
            "owed": (*still, *later.owed),
            "questions": later.questions or earlier.questions,
            "calls": {},
            "tools": tuple(sorted({*earlier.tools, *later.tools})),
        }
    )


def _part_of(run: RecordedRun) -> ThreadPart:
    return ThreadPart(thread="") if run.part is None else run.part


def _fatal(run: RecordedRun) -> RecordedRun:
    """Turn the last error recovery into an observation: with no later part, it ended the run."""
    steps = [*run.trace.steps]
    last = next((at for at in range(len(steps))[::-1] if steps[at].type == "error_recovery"), None)
    if last is None:
        return run
    steps[last] = steps[last].model_copy(update={"type": "observation"})
    recoveries = run.shape.recoveries - 1
    types = run.shape.types | {"observation"}
    types = types if recoveries else types - {"error_recovery"}
    return run.model_copy(
        update={
            "trace": run.trace.model_copy(update={"steps": tuple(steps)}),
            "shape": replace(run.shape, recoveries=recoveries, types=types),
        }
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


def _size_bytes(step: Step) -> int:
    texts = size_bytes(step.content or "") + size_bytes(step.output_summary or "")
    given = len(json.dumps(step.input)) if step.input else 0
    return STEP_OVERHEAD_BYTES + texts + given
