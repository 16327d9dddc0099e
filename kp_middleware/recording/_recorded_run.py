"""Recorded runs: assembled from recorders, cut to limits, joined with earlier parts, ended."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Final, NamedTuple, TypeVar

from kp_middleware.core.evaluation import default_confidence
from kp_middleware.core.formula import Shape
from kp_middleware.instants import instant
from kp_middleware.recording._bounds import (
    NAME_BYTES,
    STEP_METADATA,
    ModelCall,
    StepFields,
    StepLog,
    bounded_mapping,
    bounded_name,
    bounded_text,
    is_marker,
    size_bytes,
)
from kp_middleware.recording._context import Place
from kp_middleware.recording._recorder import OWN_CALL_IDS, Recorder
from kp_middleware.runs import RecordedRun, Source, StepFacts, ThreadPart, fingerprint
from kp_middleware.traces import (
    CONTEXT,
    DocumentPart,
    Limits,
    Metadata,
    Outcome,
    PrivacyLevel,
    ReasoningTrace,
    Step,
    Task,
    Visibility,
)

P = TypeVar("P", bound=DocumentPart)

_NAMES: Final = ("agent_name", "error_type", "model", "thread_id")
_SUMS: Final = ("duration_ms", "input_tokens", "output_tokens")
_LATEST: Final = ("complete", "error_type", "confidence_source", "success_source")
_NO_PART: Final = ThreadPart(thread="")


def assemble(
    recorder: Recorder,
    *,
    domain: str,
    visibility: Visibility,
    privacy_level: PrivacyLevel,
    agent_id: str | None,
) -> RecordedRun | None:
    """Assemble the run of a finished recorder, or return None if it has no step and follows none.

    A run without steps that resumes another has ``shape.steps`` 0 and one placeholder step.
    ``domain`` counts if the recorder has none.
    """
    if recorder.write is not None:
        write, recorder.write, recorder.later_bytes = recorder.write, None, 0
        write()
    if not recorder.log.kept and not recorder.thread_notes.follows:
        return None
    success, stated, logged = bool(recorder.success), recorder.confidence, recorder.log.steps()
    given = {key: getattr(recorder, key) for key in (*_NAMES, "framework", "domain")}
    names = {key: None if name is None else bounded_name(name) for key, name in given.items()}
    metadata = {
        "created_at": instant(recorder.started_at_s),
        "framework": names.pop("framework"),
        "task_domain": names.pop("domain") or domain,
        "success": success,
        "quality_score": 0,
        "visibility": visibility,
        "privacy_level": privacy_level,
    }
    if agent_id is not None:
        metadata["agent_id"] = agent_id
    for step in logged:
        if "latency_ms" in step:
            step["latency_ms"] = round(step["latency_ms"], 3)  # to the microsecond
    source: Source = "extracted" if recorder.is_extracted else "said"
    trace = ReasoningTrace(
        context=CONTEXT,
        kind="ReasoningTrace",
        id=recorder.trace_id,
        metadata=Metadata.model_validate(metadata),
        task=Task(objective=recorder.objective or names["agent_name"] or "(not said)"),
        steps=_numbered(logged),
        outcome=Outcome(
            result_summary=recorder.result_summary,
            confidence=default_confidence(success=success) if stated is None else stated,
        ),
    )
    run = RecordedRun(
        trace=trace,
        shape=recorder.log.shape(),
        duration_ms=recorder.duration_ms,
        complete=recorder.complete,
        tags=tuple(map(bounded_name, recorder.tags)),
        input_tokens=recorder.input_tokens,
        output_tokens=recorder.output_tokens,
        facts=tuple(_facts(step, recorder) for step in logged),
        confidence_source=source if stated is not None else "assumed",
        success_source="assumed" if recorder.is_success_assumed else "said",
        part=None if recorder.thread_id is None else _part(recorder, logged),
        owner=None if recorder.owner is None else fingerprint(str(recorder.owner)),
        recalled=tuple(recorder.recalled),
        **names,
    )
    return recorder.extractors.with_extracted_outcome(run) if recorder.extractors.of_run else run


def _numbered(steps: Sequence[StepFields]) -> tuple[Step, ...]:
    documents = []
    for at, step in enumerate(steps or [{"type": "observation"}]):
        fields = {name: value for name, value in step.items() if name not in STEP_METADATA}
        documents.append(Step.model_validate({**fields, "step_id": at}))
    return tuple(documents)


def _facts(step: StepFields, recorder: Recorder) -> StepFacts:
    place, call = step.get("place") or Place(), step.get("model_call") or ModelCall()
    agent = None if not place.agent else bounded_name(place.agent)
    at, call_id = step.get("at"), step.get("call_id")
    took_ms = call.latency_ms or step.get("latency_ms") or 0.0
    epoch_s = recorder.started_at_s - recorder.clock_started_s
    return StepFacts(
        started_at_s=None if at is None else epoch_s + at - took_ms / 1000,
        agent=agent,
        call_id=None if call_id is None else fingerprint(call_id),
        parent=agent if place.parent is None else fingerprint(place.parent),
        model=None if call.model is None else bounded_name(call.model),
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        model_latency_ms=None if call.latency_ms is None else round(call.latency_ms, 3),
    )


def _part(recorder: Recorder, logged: Sequence[StepFields]) -> ThreadPart:
    notes, calls = recorder.thread_notes, {}
    if notes.repeats_calls:  # generated ids are not repeated
        named = ((at, step.get("call_id", OWN_CALL_IDS)) for at, step in enumerate(logged))
        calls = {at: fingerprint(id) for at, id in named if not id.startswith(OWN_CALL_IDS)}
    return ThreadPart(
        thread=fingerprint(str(recorder.thread_id)),
        follows=notes.follows,
        awaits=notes.awaits,
        was_asked=bool(recorder.objective) and not notes.has_guessed_objective,
        questions=tuple(map(fingerprint, notes.questions)),
        answers=tuple(map(fingerprint, notes.answers)),
        agent=None if notes.agent is None else fingerprint(notes.agent),
        tools=tuple(sorted(map(fingerprint, recorder.log.tools()))),
        pending_calls=tuple(map(fingerprint, notes.pending_calls)),
        calls=calls,
    )


def bounded(trace: ReasoningTrace, limits: Limits) -> RecordedRun:
    """Cut a document to the limits of a captured run, and return it with its true counts.

    Parts within the limits are unchanged.
    """
    log, field_bytes = StepLog(limits), limits.field_bytes
    for step in trace.steps:
        tool = None if step.tool is None else _cut(step.tool, NAME_BYTES)
        kept = _cut(step, field_bytes).model_copy(update={"tool": tool})
        log.append(kept.model_dump(exclude={"step_id"}), _size_bytes(kept))
    delta, logged = trace.knowledge_graph_delta, log.steps()
    is_large = delta is None or len(delta.model_dump_json()) > field_bytes
    is_whole = logged == [step.model_dump(exclude={"step_id"}) for step in trace.steps]
    source = trace.metadata.success_source or "said"
    changes = {
        "metadata": _cut(trace.metadata, NAME_BYTES).model_copy(update={"success_source": None}),
        "task": _cut(trace.task, field_bytes),
        "steps": trace.steps if is_whole else _numbered(logged),
        "outcome": _cut(trace.outcome, field_bytes),
        "knowledge_graph_delta": None if is_large else delta,
    }
    assumed = default_confidence(success=trace.metadata.success)
    return RecordedRun(
        trace=_cut(trace, field_bytes).model_copy(update=changes),
        shape=log.shape(),
        confidence_source="assumed" if trace.outcome.confidence == assumed else "said",
        success_source=source,
    )


def _cut(part: P, limit_bytes: int) -> P:
    changes: dict[str, object] = {}
    for name, value in part:
        if isinstance(value, str):
            changes[name] = bounded_text(value, limit_bytes)
        elif isinstance(value, dict) and _json_bytes(value) > limit_bytes:
            changes[name], _ = bounded_mapping(value, limit_bytes)
    return part.model_copy(update=changes)


def _size_bytes(step: Step) -> int:
    texts = size_bytes(step.content or "") + size_bytes(step.output_summary or "")
    return texts + (_json_bytes(step.input) if step.input else 0)


def _json_bytes(value: object) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace"))
    except (ValueError, RecursionError):
        return 0  # nested too deeply; redaction refuses it


class _Placed(NamedTuple):
    """A step of the joined run, before it is bounded and numbered."""

    step: Step
    facts: StepFacts = StepFacts()


def joined(first: RecordedRun, second: RecordedRun, limits: Limits) -> RecordedRun:
    """Join the part of a run that paused, ``first``, and the part that resumed it, ``second``.

    The result is ``first``'s document with ``second``'s outcome. The input of ``second`` is a step,
    unless it only resumed. A call or question that the second part repeats is one step.
    """
    before = [step for step, _ in _placed(first) if not is_marker(step)]
    new_steps = [*_new_steps(second, first.part or _NO_PART, before)]
    if (second.part or _NO_PART).was_asked:
        asked = Step(step_id=0, type="observation", content=second.trace.task.objective)
        new_steps.insert(0, _Placed(asked))
    shape = _shape(first, second, new_steps)
    kept = _bounded(_placed(first), new_steps, shape.steps, limits)
    end = second.trace
    result = end.outcome.result_summary or first.trace.outcome.result_summary
    changed = {
        "metadata": first.trace.metadata.model_copy(update={"success": end.metadata.success}),
        "steps": _renumbered(kept),
        "outcome": Outcome(result_summary=result, confidence=end.outcome.confidence),
    }
    sums = {name: (getattr(first, name), getattr(second, name)) for name in _SUMS}
    return first.model_copy(
        update={
            **{name: getattr(second, name) for name in _LATEST},
            **{name: one if two is None else (one or 0) + two for name, (one, two) in sums.items()},
            "trace": first.trace.model_copy(update=changed),
            "shape": shape,
            "model": second.model or first.model,
            "facts": tuple(placed.facts for placed in kept),
            "part": _joined_part(first, second),
            "owner": first.owner or second.owner,
            "recalled": tuple(dict.fromkeys((*first.recalled, *second.recalled))),
            "redactions": dict(Counter(first.redactions) + Counter(second.redactions)),
        }
    )


def ended(
    run: RecordedRun, *, success: bool | None = None, confidence: float | None = None
) -> RecordedRun:
    """End a paused run that was never resumed; with a ``success`` it is complete."""
    complete = run.complete or success is not None
    final = run.ended(run.ending.reported(success, confidence, "said"))
    final = final.model_copy(update={"complete": complete, "part": None})
    return final if run.error_type is None else _mark_fatal(final)


def detach_from_thread(run: RecordedRun) -> RecordedRun | None:
    """Return a part whose earlier parts are missing, or None if it has no new steps.

    Results of calls made in the missing parts are left out.
    """
    kept = [*_new_steps(run, _NO_PART, [])]
    if all(placed.step.type == "observation" and placed.step.tool is None for placed in kept):
        return None
    if len(kept) == len(run.trace.steps):
        return run
    trace = run.trace.model_copy(update={"steps": _renumbered(kept)})
    facts = tuple(placed.facts for placed in kept)
    left_out = run.shape.steps - len(run.trace.steps)
    shape = replace(trace.shape, steps=len(kept) + max(0, left_out))
    return run.model_copy(update={"trace": trace, "shape": shape, "facts": facts})


def _placed(run: RecordedRun) -> list[_Placed]:
    facts = chain(run.facts, repeat(StepFacts()))
    return [*map(_Placed, run.trace.steps, facts)] if run.shape.steps else []


def _new_steps(run: RecordedRun, earlier: ThreadPart, before: list[Step]) -> Iterator[_Placed]:
    call_ids, made = (run.part or _NO_PART).calls, set(earlier.pending_calls)
    questions = {*(run.part or _NO_PART).questions, *earlier.questions}
    for at, placed in enumerate(_placed(run)):
        step, call_id = placed.step, call_ids.get(at)
        is_call = step.type == "tool_call"
        if call_id is None:  # before langchain-core 1.1.3 calls have no id
            repeats = is_call and bool(earlier.pending_calls) and _take_equal(step, before)
        elif call_id in questions:
            repeats = call_id in earlier.questions and _take_equal(step, before)
        elif is_call:
            repeats = call_id in earlier.pending_calls
            made.add(call_id)
        else:
            repeats = call_id not in made
        if not repeats and not is_marker(step):
            yield placed


def _take_equal(step: Step, before: list[Step]) -> bool:
    fields = step.model_dump(exclude={"step_id", "latency_ms"})
    for number, earlier in enumerate(before):
        if (
            earlier.type == step.type
            and earlier.model_dump(exclude={"step_id", "latency_ms"}) == fields
        ):
            del before[number]
            return True
    return False


def _bounded(
    before: list[_Placed], new_steps: list[_Placed], count: int, limits: Limits
) -> list[_Placed]:
    log, kept = StepLog(limits), [*before, *new_steps]
    missing = count - sum(not is_marker(placed.step) for placed in kept)
    for placed in kept:
        if is_marker(placed.step):
            log.leave_out(missing)
            missing = 0
        else:
            log.append({"type": placed.step.type, "placed": placed}, _size_bytes(placed.step))
    log.leave_out(missing)
    return [step.get("placed") or _Placed(Step(step_id=0, **step)) for step in log.steps()]


def _renumbered(kept: Sequence[_Placed]) -> tuple[Step, ...]:
    if not kept:  # a document has at least one step
        return (Step(step_id=0, type="observation"),)
    return tuple(
        step if step.step_id == number else step.model_copy(update={"step_id": number})
        for number, (step, _) in enumerate(kept)
    )


def _shape(first: RecordedRun, second: RecordedRun, new_steps: list[_Placed]) -> Shape:
    earlier, later = first.shape, second.shape
    repeated = [step.type for step, _ in _placed(second) if not is_marker(step)]
    new = [placed.step.type for placed in new_steps]
    recoveries = new.count("error_recovery") - repeated.count("error_recovery")
    return Shape(
        steps=earlier.steps + later.steps + len(new) - len(repeated),
        types=earlier.types | later.types | {*new},
        tools=len({*(first.part or _NO_PART).tools, *(second.part or _NO_PART).tools}),
        recoveries=earlier.recoveries + later.recoveries + recoveries,
    )


def _joined_part(first: RecordedRun, second: RecordedRun) -> ThreadPart | None:
    """Return the thread state of the joined run, or None if it ended."""
    earlier, later = first.part or _NO_PART, second.part or _NO_PART
    if later.awaits is None:
        return None
    answered = {
        call_id for at, call_id in later.calls.items() if second.trace.steps[at].type != "tool_call"
    }
    unanswered = [call_id for call_id in earlier.pending_calls if call_id not in answered]
    return later.model_copy(
        update={
            "pending_calls": (*unanswered, *later.pending_calls),
            "questions": later.questions or earlier.questions,
            "calls": {},
            "tools": tuple(sorted({*earlier.tools, *later.tools})),
        }
    )


def _mark_fatal(run: RecordedRun) -> RecordedRun:
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
