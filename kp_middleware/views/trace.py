"""A run to display: its score, verdict, delivery, steps and calls; also as Markdown."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any, Final, NamedTuple

from kp_middleware.core.formula import SIGNALS
from kp_middleware.core.gates import exact
from kp_middleware.instants import epoch_s
from kp_middleware.storage import FeedbackRecord, Run, Scoring, StepRecord
from kp_middleware.views.gate import estimate_in_words
from kp_middleware.views.wording import (
    counted,
    distance,
    duration,
    minute,
    one_line,
    outcome,
    printable,
    short_bar,
    short_id,
    shortened,
    zero_or_one,
)

__all__ = ["STEP_NAMES", "Call", "ScoreLine", "StepView", "TraceView", "applied_threshold",
           "arithmetic", "chosen_steps", "delivery_status", "gate_in_words", "idle_times",
           "is_cleared", "listed_state", "markdown", "run_as_json", "timed_calls", "view_step",
           "view_trace"]  # fmt: skip

_NESTED: Final = {"scoring", "estimate", "owner", "recalled", "signals", "weights", "took_ms"}
_RUN_KEYS, _SCORE_KEYS = (
    [one.name for one in fields(record) if one.name not in _NESTED] for record in (Run, Scoring)
)
_TITLE: Final = 300
_BACKTICKS: Final = re.compile("`+")


class ScoreLine(NamedTuple):
    """One line of the sum behind a score: a signal, a rule, or ``score``."""

    part: str
    working: str
    amount: float


class TraceView(NamedTuple):
    """The texts about a run; ``objective`` is empty if the title has it all."""

    title: str
    objective: str
    facts: tuple[str, ...]
    estimate: str
    feedback: tuple[str, ...]
    gate: str | None
    delivery_status: str
    redactions: tuple[tuple[str, int], ...]


def view_trace(run: Run) -> TraceView:
    has_tokens = run.input_tokens is not None or run.output_tokens is not None
    facts = (
        run.domain,
        f"{minute(run.started_at)} UTC",
        None if run.duration_ms is None else duration(run.duration_ms),
        f"outcome: {outcome(run.known_success)}",
        f"ended by {run.error_type}" if run.error_type else None,
        counted(run.step_count, "step").replace(" ", "\N{NO-BREAK SPACE}"),
        f"{run.input_tokens or 0:,} tokens in, {run.output_tokens or 0:,} out" * has_tokens,
        run.framework,
        run.agent_name,
        run.model,
    )
    counts = (run.outbox and run.outbox.redactions) or run.redactions  # sent, else stored
    return TraceView(
        title=shortened(run.objective, _TITLE),
        objective=run.objective if len(run.objective) > _TITLE else "",
        facts=tuple(fact for fact in facts if fact),
        estimate="" if run.estimate is None else estimate_in_words(run.estimate),
        feedback=(*map(feedback_in_words, run.feedback),),
        gate=gate_in_words(run),
        delivery_status=delivery_status(run),
        redactions=(*sorted(counts.items(), key=lambda item: (-item[1], item[0])),),
    )


def run_as_json(run: Run) -> dict[str, Any]:
    """Return a run for JSON; outcomes are 0 or 1, and None if they are only assumed."""
    scoring = run.scoring
    row = {name: getattr(run, name) for name in _RUN_KEYS}
    row |= {name: getattr(scoring, name, None) for name in _SCORE_KEYS}
    for name in SIGNALS:
        row[name] = scoring and getattr(scoring.signals, name)
        row[f"{name}_weight"] = scoring and getattr(scoring.weights, name)
    is_decided = scoring is not None and (scoring.threshold is not None or scoring.decision)
    verdict = scoring and scoring.decision and run.reason_code
    feedback = [
        asdict(record)
        | {name: zero_or_one(getattr(record, name)) for name in ("success", "success_before")}
        for record in run.feedback
    ]
    return row | {
        "verdict": "forwarded" if scoring and scoring.decision == "forward" else verdict,
        "above": int(is_cleared(run)) if is_decided else None,
        "scored_ms": scoring and scoring.took_ms,
        "success": zero_or_one(run.known_success),
        "rules": [rule._asdict() for rule in scoring.rules] if scoring else [],
        "day": run.started_at[:10],
        "steps": [*map(_step_as_json, run.steps)],
        "outbox": asdict(run.outbox) if run.outbox else None,
        "feedback": feedback,
    }


def _step_as_json(step: StepRecord) -> dict[str, Any]:
    values = ((name, getattr(step, name)) for name in step.__slots__)  # asdict copies each
    known = {name: value for name, value in values if value is not None}
    return {"step_id": known.pop("number"), **known}


def arithmetic(run: Run) -> list[ScoreLine]:
    scoring, threshold = run.scoring, applied_threshold(run)
    if scoring is None:
        return []
    lines = []
    for part in SIGNALS:
        value, weight = getattr(scoring.signals, part), getattr(scoring.weights, part)
        how = f"  ({_similarity_text(scoring)})" if part == "novelty" else ""
        lines.append(ScoreLine(part, f"{value:.3f} × {weight:.2f}{how}", value * weight))
    lines += [ScoreLine(rule.rule, "rule", rule.delta) for rule in scoring.rules]
    verdict = "its gate failed to decide"
    if threshold is not None:
        verb = "reaches" if scoring.score >= threshold else "is below"
        verdict = f"{verb} {short_bar(threshold)} by {distance(scoring.score - threshold)}"
    elif scoring.bar is not None:
        verdict = f"ranked by {_rank(run, scoring)}"
    return [*lines, ScoreLine("score", verdict, scoring.score)]


def _similarity_text(scoring: Scoring) -> str:
    if scoring.embedder is None:
        return "no embedding model"
    if scoring.nearest_similarity is None:
        return "no earlier run"
    nearest = short_id(scoring.nearest_id) if scoring.nearest_id else "a pruned run"
    return f"{scoring.nearest_similarity:.3f} like {nearest}"


def _rank(run: Run, scoring: Scoring) -> str:
    key = run.reason_args.get("key", scoring.rank_key)
    return f"rank {key or 0:.3f} against {short_bar(scoring.bar or 0)}"


def gate_in_words(run: Run) -> str | None:
    """Name the gate and the threshold it applied to this run; None without a decision."""
    if run.scoring is None or run.scoring.gate is None:
        return None
    gate, threshold = run.scoring.gate, applied_threshold(run)
    if run.reason_code == "gate_failed":
        return f"{gate}, which failed to decide"
    if threshold is None:
        return f"{gate}, by {_rank(run, run.scoring)}"
    is_said = gate.partition(",")[0] == f"threshold {exact(threshold)}"
    return gate if is_said else f"{gate}, threshold {short_bar(threshold)}"


def applied_threshold(run: Run) -> float | None:
    """Return the score, 0 to 1, that the gate required; None if it failed to decide."""
    return None if run.reason_code == "gate_failed" else getattr(run.scoring, "threshold", None)


def is_cleared(run: Run) -> bool:
    """Return whether the score passed the gate, even if the run was not sent."""
    scoring = run.scoring
    if scoring is None or scoring.threshold is None:
        return scoring is not None and scoring.bar is not None and scoring.decision == "forward"
    return scoring.score >= scoring.threshold


def delivery_status(run: Run) -> str:
    outbox = run.outbox
    match run.state if outbox is None else outbox.state:
        case "paused":
            return "waits for a person, or for the next turn of its thread"
        case "recorded":
            return "kept here, not scored yet"
        case "incomplete":
            why = f" ({run.error_type})" if run.error_type else ""
            return f"kept here, not scored: the run did not finish{why}"
        case "sent" if outbox:
            return f"sent to {outbox.registry} at {outbox.sent_at} as {outbox.remote_id}"
        case "pending" | "sending" if outbox:
            after = f" after {outbox.last_error}" if outbox.last_error else ""
            return f"waits to be sent to {outbox.registry}{after}"
    return f"{outbox.state}: {outbox.reason}" if outbox else f"kept here: {run.reason}"


def listed_state(run: Run) -> str:
    """Return the state as in lists: the delivery state, or why there is no score."""
    if run.outbox is not None:
        return run.outbox.state
    if run.state != "scored":
        return run.state
    return "not queued" if run.scoring and run.scoring.decision == "forward" else "withheld"


def feedback_in_words(feedback: FeedbackRecord) -> str:
    parts = [] if feedback.success is None else [outcome(feedback.success)]
    parts += [] if feedback.confidence is None else [f"confidence {feedback.confidence:.3f}"]
    known = "not known to have failed" if feedback.success_before else outcome(success=False)
    before = f"{known}, confidence {feedback.confidence_before:.3f}"
    return f"{minute(feedback.given_at)} UTC: {', '.join(parts)} (before: {before})"


def markdown(run: Run, *, steps: int | None) -> Iterator[str]:
    """Yield a run as lines of Markdown, its texts escaped; None means all steps."""
    title, gate = shortened(run.objective, 120), gate_in_words(run)
    yield from (f"# {_code(title)}", "")
    if title != run.objective:
        yield from (*_fenced(run.objective), "")
    facts = [
        ("run", _code(short_id(run.id))),
        ("domain", _code(run.domain)),
        ("started", run.started_at),
        ("outcome", outcome(run.known_success)),
        *([("gate", _code(gate))] if gate else []),
        ("delivery", _code(delivery_status(run))),
        *(("feedback", words) for words in map(feedback_in_words, run.feedback)),
    ]
    yield from (f"- {name}: {value}" for name, value in facts)
    if lines := arithmetic(run):
        yield from ("", f"## Score {lines[-1].amount:.3f}: {lines[-1].working}", "")
        yield from ("| part | amount | how |", "|---|---:|---|")
        for line in lines[:-1]:
            yield f"| {line.part.replace('_', ' ')} | {line.amount:+.3f} | {line.working} |"
    first, last, rest = chosen_steps(run, steps)
    yield from ("", "## Steps")
    for part, more in ((first, rest), (last, "")):
        for step in part:
            yield from _step_in_markdown(step)
        if more:
            yield from ("", f"… {more}")
    if run.result_summary:
        yield from ("", "## Result", "", *_fenced(run.result_summary))


def chosen_steps(
    run: Run, most: int | None
) -> tuple[Sequence[StepRecord], Sequence[StepRecord], str]:
    """Return the first and last steps to show, a quarter of them last, and a note on the rest."""
    first, last, kept = run.steps, run.steps[:0], len(run.steps)
    if most is not None and kept > most:
        first, last = run.steps[: most - most // 4], run.steps[kept - most // 4 :]
    left_out = kept - len(first) - len(last)
    notes = [f"{left_out:,} more steps: --steps all"] if left_out else []
    if kept < run.step_count:
        notes.append(f"the run had {run.step_count:,} steps, {kept:,} were kept")
    return first, last, "; ".join(notes)


def _step_in_markdown(step: StepRecord) -> Iterator[str]:
    names = [_code(part) for part in (step.agent, step.tool) if part is not None]
    took = "" if step.latency_ms is None else duration(step.latency_ms)
    yield from ("", f"### {' '.join([str(step.number), step.type, *names, took])}".rstrip(), "")
    if step.input is not None:
        yield from _fenced(json.dumps(step.input, ensure_ascii=False, indent=2), "json")
    for text in filter(None, (step.content, step.output_summary)):
        yield from _fenced(text)


def _fenced(text: str, language: str = "text") -> Iterator[str]:
    """Yield a text in a Markdown fence, longer than any inside it."""
    fence = "`" * max(3, _longest(text) + 1)
    lines = (printable(line.expandtabs(4)) for line in text.splitlines() or [""])
    yield from (fence + language, *lines, fence)


def _code(text: str) -> str:
    text = one_line(text)
    marks = "`" * (_longest(text) + 1)
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"


def _longest(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


STEP_NAMES: Final = {
    "thought": "Agent",
    "tool_call": "Call",
    "observation": "Result",
    "error_recovery": "Error, recovered",
    "error": "Error",
    "user": "User",
}


class StepView(NamedTuple):
    """One step of a run; a missing or unknown text is empty."""

    number: int
    kind: str  # the protocol's, ``user`` for a user's message, or ``error`` for the fatal error
    name: str
    about: tuple[str, ...]
    at: str
    duration: str
    content: str
    input: str
    output: str


def view_step(run: Run, step: StepRecord) -> StepView:
    kind, at = step.type, ""
    if _ended(run, step):
        kind = "error"
    elif kind == "observation" and step.tool is None and step.content is not None:
        kind = "user"
    if step.started_at is not None:
        after_ms = (epoch_s(step.started_at) - epoch_s(run.started_at)) * 1000
        at = f"+{duration(after_ms)}" if after_ms >= 1 else "+0 ms"
    took_ms = step.latency_ms if step.model_latency_ms is None else step.model_latency_ms
    tokens = (step.input_tokens or 0) + (step.output_tokens or 0)
    about = (step.agent, step.tool, step.model, counted(tokens, "token") if tokens else None)
    given = json.dumps(step.input, ensure_ascii=False) if step.input else ""
    if len(given) > 72:
        given = json.dumps(step.input, ensure_ascii=False, indent=2)
    return StepView(
        step.number,
        kind,
        STEP_NAMES[kind],
        tuple(part for part in about if part),
        at,
        "" if took_ms is None else duration(took_ms),
        step.content or "",
        given,
        step.output_summary or "",
    )


def _ended(run: Run, step: StepRecord) -> bool:
    """Return whether a step is the error that ended its run, which is an observation."""
    name = (step.output_summary or "").partition(":")[0]
    return step.type == "observation" and name == run.error_type


class Call(NamedTuple):
    """A call of a model or a tool; ``start_ms`` counts from the start of the run."""

    kind: str  # ``model``, ``tool`` or ``error``
    name: str
    agent: str
    start_ms: float
    length_ms: float
    step: int
    tokens: int = 0

    @property
    def end_ms(self) -> float:
        return self.start_ms + self.length_ms


def timed_calls(run: Run) -> list[Call]:
    calls, began_s = [], epoch_s(run.started_at)
    for step in run.steps:
        if step.started_at is None:
            continue
        start_ms, agent = max(0.0, (epoch_s(step.started_at) - began_s) * 1000), step.agent or ""
        if (took_ms := step.model_latency_ms) is not None:
            name = step.model or "model"
            tokens = (step.input_tokens or 0) + (step.output_tokens or 0)
            calls.append(Call("model", name, agent, start_ms, took_ms, step.number, tokens))
        elif step.latency_ms is not None:
            failed = step.type == "error_recovery" or _ended(run, step)
            name, kind = step.tool or "call", "error" if failed else "tool"
            calls.append(Call(kind, name, agent, start_ms, step.latency_ms, step.number))
    return sorted(calls, key=lambda call: (call.start_ms, call.step))


def idle_times(calls: Sequence[Call], total_ms: float) -> Iterator[tuple[float, float]]:
    """Yield the periods, from the start of the run, without any of the calls."""
    end = 0.0
    for call in calls:
        if call.start_ms > end:
            yield end, call.start_ms
        end = max(end, call.end_ms)
    if total_ms > end:
        yield end, total_ms
