"""One run out of two parts of a thread, and what becomes of a part that nothing follows."""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kp_middleware.recording._assembly import numbered
from kp_middleware.recording._limits import Limits
from kp_middleware.recording._step_log import StepFields, StepLog
from kp_middleware.runs import RecordedRun, ThreadPart
from kp_middleware.scores import Shape
from kp_middleware.traces import Outcome, ReasoningTrace, default_confidence


class _Placed(NamedTuple):
    """A step of the joined run, before it is bounded."""

    fields: StepFields
    agent: str | None


def joined(first: RecordedRun, second: RecordedRun, limits: Limits) -> RecordedRun:
    """The run that began with ``first``, waited, and went on with ``second``.

    It is ``first``'s document, ended as ``second`` did. What ``second`` was asked is a step, unless
    it only went on. A tool call that was cut short by the pause is made again from its beginning:
    it is one step. The bounds of a run hold for the whole of it.
    """
    asked, news = _turn(second), [*_news(first, second)]
    log = StepLog(limits)
    for placed in (*_placed(first), *asked, *news):
        log.append({**placed.fields, "agent": placed.agent}, _size_bytes(placed.fields))
    steps = log.steps()
    agents = {at: agent for at, step in enumerate(steps) if (agent := step.pop("agent", None))}
    return first.model_copy(
        update={
            "trace": _document(first, second, steps),
            "shape": _shape(first, second, asked=asked, news=news),
            "duration_ms": _sum(first.duration_ms, second.duration_ms),
            "complete": second.complete,
            "error_type": second.error_type,
            "model": second.model or first.model,
            "input_tokens": _sum(first.input_tokens, second.input_tokens),
            "output_tokens": _sum(first.output_tokens, second.output_tokens),
            "agents": agents,
            "part": _part(first, second),
        }
    )


def ended(
    run: RecordedRun, *, success: bool | None = None, confidence: float | None = None
) -> RecordedRun:
    """A run that waited, and nothing follows: one that waits for a person is not complete.

    Args:
        run: As it waits.
        success: Whether its task was done, where somebody knows: then it is complete.
        confidence: How sure of it, 0 to 1; None leaves it as the agent said it, or where it did
            not say, as ``success`` suggests.
    """
    trace = run.trace
    if success is None:
        success, complete = trace.metadata.success, run.complete
    else:
        complete = True
    if confidence is None and (success == trace.metadata.success or _part_of(run).is_sure):
        confidence = trace.outcome.confidence
    elif confidence is None:
        confidence = default_confidence(success=success)
    changed = trace.model_copy(
        update={
            "metadata": trace.metadata.model_copy(update={"success": success}),
            "outcome": trace.outcome.model_copy(update={"confidence": confidence}),
        }
    )
    return run.model_copy(update={"trace": changed, "complete": complete, "part": None})


def _turn(run: RecordedRun) -> list[_Placed]:
    """What a later part was asked, as a step."""
    if not _part_of(run).was_asked:
        return []
    return [_Placed({"type": "observation", "content": run.trace.task.objective}, None)]


def _document(first: RecordedRun, second: RecordedRun, steps: list[StepFields]) -> ReasoningTrace:
    end = second.trace
    metadata = first.trace.metadata.model_copy(update={"success": end.metadata.success})
    result = end.outcome.result_summary or first.trace.outcome.result_summary
    outcome = Outcome(result_summary=result, confidence=end.outcome.confidence)
    changed = {"metadata": metadata, "steps": numbered(steps), "outcome": outcome}
    return first.trace.model_copy(update=changed)


def _placed(run: RecordedRun) -> list[_Placed]:
    if run.shape.steps == 0:
        return []
    return [
        _Placed(
            step.model_dump(mode="json", exclude={"step_id"}, exclude_none=True),
            run.agents.get(at),
        )
        for at, step in enumerate(run.trace.steps)
    ]


def _news(first: RecordedRun, second: RecordedRun) -> Iterator[_Placed]:
    """The steps of the second part that do not stand in the first already."""
    owed = set(_part_of(first).owed)
    call_ids = _part_of(second).calls
    nameless = [placed.fields for placed in _placed(first)] if owed else []
    made = set(owed)
    for at, placed in enumerate(_placed(second)):
        call_id, fields = call_ids.get(at), placed.fields
        if fields["type"] != "tool_call":
            is_known = call_id is not None and call_id not in made
        elif call_id is not None:
            is_known = call_id in owed
            made.add(call_id)
        elif is_known := fields in nameless:  # before langchain-core 1.1.3 calls have no id
            nameless.remove(fields)
        if not is_known:
            yield placed


def _shape(
    first: RecordedRun, second: RecordedRun, *, asked: list[_Placed], news: list[_Placed]
) -> Shape:
    """Of the whole; of tools used only in what was left out, no more than the larger part's."""
    before, after, told = first.shape, second.shape, _placed(second)
    named = {tool["name"] for step in (*_placed(first), *news) if (tool := step.fields.get("tool"))}
    return Shape(
        steps=before.steps + len(asked) + after.steps - (len(told) - len(news)),
        types=before.types | after.types | {step.fields["type"] for step in asked},
        tools=max(len(named), before.tools, after.tools),
        recoveries=before.recoveries + after.recoveries - (_recoveries(told) - _recoveries(news)),
    )


def _recoveries(steps: Iterable[_Placed]) -> int:
    return sum(step.fields["type"] == "error_recovery" for step in steps)


def _part(first: RecordedRun, second: RecordedRun) -> ThreadPart | None:
    """What the joined run waits for, and which calls it still owes; None: it has ended."""
    earlier, later = _part_of(first), _part_of(second)
    if later.awaits is None:
        return None
    answered = {
        call_id for at, call_id in later.calls.items() if second.trace.steps[at].type != "tool_call"
    }
    still = [call_id for call_id in earlier.owed if call_id not in answered]
    return later.model_copy(update={"owed": (*still, *later.owed), "calls": {}})


def _part_of(run: RecordedRun) -> ThreadPart:
    return ThreadPart(thread="") if run.part is None else run.part


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


def _size_bytes(fields: StepFields) -> int:
    return len(json.dumps(fields, ensure_ascii=False).encode())
