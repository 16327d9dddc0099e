"""One run as it is shown: the sum behind its score, its verdict, where it was sent, its calls."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple

from kp_middleware.core.formula import SIGNALS
from kp_middleware.core.gates import exact
from kp_middleware.instants import epoch_s
from kp_middleware.storage import FeedbackRecord, Run, Scoring, StepRecord
from kp_middleware.views.successes import estimate_in_words
from kp_middleware.views.wording import (
    counted,
    distance,
    duration,
    minute,
    outcome,
    short_bar,
    short_id,
    zero_or_one,
)

STEP_NAMES: Final = {
    "thought": "Agent",
    "tool_call": "Call",
    "observation": "Result",
    "error_recovery": "Error, recovered",
}
_SEEN_AS: Final = {**STEP_NAMES, "error": "Error", "user": "User"}
_COLUMNS: Final = (
    *("seq", "id", "state", "started_at", "duration_ms", "domain", "objective", "result_summary"),
    *("success", "confidence", "error_type", "framework", "agent_id", "agent_name", "model"),
    *("thread_id", "tags", "privacy_level", "visibility", "step_count", "tool_count"),
    *("recovery_count", "input_tokens", "output_tokens"),
)
_SCORING: Final = (
    *("score", "threshold", "p_success", "rank_key", "bar", "gate", "decision", "scorer"),
    *("embedder", "nearest_seq", "nearest_similarity"),
)
_TITLE: Final = 300
_ONE_LINE: Final = 72
_MOST_CALLS: Final = 100


class ScoreLine(NamedTuple):
    """One line of the sum behind a score: a signal, a rule, or ``score``."""

    part: str
    working: str
    amount: float


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a run; a text is empty where there is none or it is not known.

    ``kind`` is the protocol's, ``user`` for what a person said, or ``error`` for what ended it.
    """

    number: int
    kind: str
    name: str
    about: tuple[str, ...]
    at: str
    duration: str
    content: str
    input: str
    output: str


@dataclass(frozen=True, slots=True)
class TraceView:
    """One run as pages and the report show it; a text is empty where there is none.

    ``sum`` is rounded so that it adds up; ``objective`` is empty where the title has all of it.
    """

    id: str
    title: str
    objective: str
    facts: tuple[str, ...]
    estimate: str
    feedback: tuple[str, ...]
    score: float | None
    threshold: float | None
    is_cleared: bool
    sum: tuple[ScoreLine, ...]
    gate: str | None
    delivery_status: str
    redactions: tuple[tuple[str, int], ...]
    steps: tuple[StepView, ...]
    result: str


def view_trace(run: Run) -> TraceView:
    """Return what pages show of a stored run."""
    threshold = applied_threshold(run)
    is_long, title = len(run.objective) > _TITLE, run.objective[:_TITLE]
    counts = (run.outbox and run.outbox.redactions) or run.redactions  # of what leaves, or stays
    removed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return TraceView(
        id=run.id,
        title=f"{title} …" if is_long else title if title.strip() else "(no objective)",
        objective=run.objective if is_long else "",
        facts=(*_facts(run),),
        estimate="" if run.estimate is None else estimate_in_words(run.estimate),
        feedback=(*map(feedback_in_words, run.feedback),),
        score=run.score,
        threshold=threshold,
        is_cleared=threshold is not None and is_cleared(run),
        sum=(*added_up(arithmetic(run))[:-1],),
        gate=gate_in_words(run),
        delivery_status=delivery_status(run),
        redactions=(*removed,),
        steps=tuple(view_step(run, step) for step in run.steps),
        result=run.result_summary or "",
    )


def run_as_json(run: Run) -> dict[str, Any]:
    """Return a run as JSON shows it: the columns of its row, its steps, outbox item and feedback.

    ``success``, ``above`` and the values of ``feedback`` are 0 or 1; a success that is only
    assumed is None.
    """
    row = {name: getattr(run, name) for name in _COLUMNS}
    row["success"] = zero_or_one(run.known_success)
    scoring = run.scoring
    row |= {name: scoring and getattr(scoring.signals, name) for name in SIGNALS}
    row |= {f"{name}_weight": scoring and getattr(scoring.weights, name) for name in SIGNALS}
    row["rules"] = [rule._asdict() for rule in scoring.rules] if scoring else []
    row |= {name: getattr(scoring, name, None) for name in _SCORING}
    row |= {"scored_ms": scoring and scoring.took_ms, "day": run.started_at[:10]}
    is_known = scoring and (scoring.threshold is not None or scoring.decision is not None)
    row |= {
        "margin": scoring and scoring.margin,
        "above": int(is_cleared(run)) if is_known else None,
    }
    row |= {"base_score": scoring and scoring.base_score, "redactions": run.redactions}
    row |= {"decided_at": scoring and scoring.decided_at}
    row |= {"reason_code": run.reason_code, "reason_args": run.reason_args}
    decision = scoring and scoring.decision
    row |= {"verdict": "forwarded" if decision == "forward" else decision and run.reason_code}
    row |= {name: getattr(run, name) for name in ("confidence_source", "success_source")}
    row |= {name: getattr(scoring, name, None) for name in ("nearest_id", "nearest_objective")}
    return row | {
        "reason": run.reason,
        "steps": [*map(_step_as_json, run.steps)],
        "outbox": asdict(run.outbox) if run.outbox else None,
        "feedback": [
            asdict(one)
            | {"success": zero_or_one(one.success), "success_before": int(one.success_before)}
            for one in run.feedback
        ],
    }


def arithmetic(run: Run) -> list[ScoreLine]:
    """Return each signal times its weight, each rule, and the score; empty without a score."""
    if run.scoring is None:
        return []
    signals = [_signal(run.scoring, part) for part in SIGNALS]
    rules = [ScoreLine(rule.rule, "rule", rule.delta) for rule in run.scoring.rules]
    return [*signals, *rules, ScoreLine("score", _against_threshold(run), run.scoring.score)]


def added_up(lines: Sequence[ScoreLine]) -> list[ScoreLine]:
    """Round the amounts to three decimals so that they add up to the score as it is printed.

    Rounded one by one, they may miss it by some thousandths. Where the score was clamped they
    cannot add up to it, and are rounded one by one.
    """
    if not lines:
        return []
    exact_amounts = [line.amount * 1000 for line in lines[:-1]]
    score = round(lines[-1].amount * 1000)
    whole = [math.floor(amount + 1e-6) for amount in exact_amounts]
    missing = score - sum(whole)
    if not 0 <= missing <= len(whole):
        whole, missing = [round(amount) for amount in exact_amounts], 0
    by_rest = sorted(range(len(whole)), key=lambda place: whole[place] - exact_amounts[place])
    for place in by_rest[:missing]:
        whole[place] += 1
    amounts = [*whole, score]
    return [line._replace(amount=each / 1000) for line, each in zip(lines, amounts, strict=True)]


def gate_in_words(run: Run) -> str | None:
    """Name the gate and the threshold it applied to this run; None without a decision."""
    if run.scoring is None or run.scoring.gate is None:
        return None
    gate, threshold = run.scoring.gate, applied_threshold(run)
    if threshold is None:
        failed = run.reason_code == "gate_failed"
        return (
            f"{gate}, which failed to decide" if failed else f"{gate}, by {_rank(run, run.scoring)}"
        )
    is_said = gate.partition(",")[0] == f"threshold {exact(threshold)}"
    return gate if is_said else f"{gate}, its bar for this run {short_bar(threshold)}"


def applied_threshold(run: Run) -> float | None:
    """Return the score, 0 to 1, that the gate asked for; None where it failed to decide."""
    if run.scoring is None or run.reason_code == "gate_failed":
        return None
    return run.scoring.threshold


def is_cleared(run: Run) -> bool:
    """Return whether the score passed the gate, whatever else kept the run."""
    scoring = run.scoring
    if scoring is None or scoring.threshold is None:
        return scoring is not None and scoring.bar is not None and scoring.decision == "forward"
    return scoring.score >= scoring.threshold


def other_reason(run: Run) -> str | None:
    """Say why the decision is not the threshold's; None where it is."""
    forwarded = run.scoring is not None and run.scoring.decision == "forward"
    match run.reason_code:
        case "gate_failed" | "daily_limit" | "in_share" | "below_share" | "tied_with_share":
            return run.reason
        case "custom" if is_cleared(run) != forwarded:
            return run.reason
        case _:
            return None


def delivery_status(run: Run) -> str:
    """Say in one sentence where the run was sent, or why it was not."""
    outbox = run.outbox
    if run.state == "paused":
        return "waits for a person, or for the next turn of its thread"
    if outbox is None:
        return _kept_here(run)
    match outbox.state:
        case "sent":
            return f"sent to {outbox.registry} at {outbox.sent_at} as {outbox.remote_id}"
        case "pending" | "sending":
            after = f" after {outbox.last_error}" if outbox.last_error else ""
            return f"waits to be sent to {outbox.registry}{after}"
        case state:
            return f"{state}: {outbox.reason}"


def listed_state(run: Run) -> str:
    """Return the state as a list has it: where the run is on its way, or why it has no score."""
    if run.outbox is not None:
        return run.outbox.state
    if run.state != "scored":
        return run.state
    return "not queued" if run.scoring and run.scoring.decision == "forward" else "withheld"


def feedback_in_words(told: FeedbackRecord) -> str:
    """Word a feedback: when it was given, what it said, and what was assumed before."""
    parts = [] if told.success is None else [outcome(told.success)]
    parts += [] if told.confidence is None else [f"confidence {told.confidence:.3f}"]
    known = "not known to have failed" if told.success_before else outcome(success=False)
    before = f"{known}, confidence {told.confidence_before:.3f}"
    return f"{minute(told.given_at)} UTC: {', '.join(parts)} (before: {before})"


def _facts(run: Run) -> Iterator[str]:
    has_tokens = run.input_tokens is not None or run.output_tokens is not None
    tokens = f"{run.input_tokens or 0:,} tokens in, {run.output_tokens or 0:,} out"
    facts = (
        run.domain,
        f"{minute(run.started_at)} UTC",
        None if run.duration_ms is None else duration(run.duration_ms),
        f"outcome: {outcome(run.known_success)}",
        f"ended by {run.error_type}" if run.error_type else None,
        counted(run.step_count, "step").replace(" ", "\N{NO-BREAK SPACE}"),
        tokens if has_tokens else None,
        run.framework,
        run.agent_name,
        run.model,
    )
    return (fact for fact in facts if fact)


def view_step(run: Run, step: StepRecord) -> StepView:
    """Return what pages show of a step."""
    kind: str = step.type
    if ended_it(run, step):
        kind = "error"
    elif kind == "observation" and step.tool is None and step.content is not None:
        kind = "user"
    took_ms = step.latency_ms if step.model_latency_ms is None else step.model_latency_ms
    tokens = (step.input_tokens or 0) + (step.output_tokens or 0)
    about = (step.agent, step.tool, step.model, counted(tokens, "token") if tokens else None)
    given = json.dumps(step.input, ensure_ascii=False) if step.input else ""
    if len(given) > _ONE_LINE:
        given = json.dumps(step.input, ensure_ascii=False, indent=2)
    return StepView(
        number=step.number,
        kind=kind,
        name=_SEEN_AS[kind],
        about=tuple(part for part in about if part),
        at=_since(run.started_at, step.started_at),
        duration="" if took_ms is None else duration(took_ms),
        content=step.content or "",
        input=given,
        output=step.output_summary or "",
    )


def ended_it(run: Run, step: StepRecord) -> bool:
    """Return whether a step is the error that ended its run: recorded as an observation."""
    name = (step.output_summary or "").partition(":")[0]
    return step.type == "observation" and run.error_type is not None and name == run.error_type


def _since(began: str, at: str | None) -> str:
    if at is None:
        return ""
    after_ms = (epoch_s(at) - epoch_s(began)) * 1000
    return f"+{duration(after_ms)}" if after_ms >= 1 else "+0 ms"


def _step_as_json(step: StepRecord) -> dict[str, Any]:
    known = {name: value for name, value in asdict(step).items() if value is not None}
    return {"step_id": known.pop("number"), **known}


def _signal(scoring: Scoring, part: str) -> ScoreLine:
    value, weight = getattr(scoring.signals, part), getattr(scoring.weights, part)
    working = f"{value:.3f} × {weight:.2f}"
    if part == "novelty":
        working += f"  ({_novelty_in_words(scoring)})"
    return ScoreLine(part, working, value * weight)


def _novelty_in_words(scoring: Scoring) -> str:
    if scoring.embedder is None:
        return "not measured: no embedder"
    if scoring.nearest_similarity is None:
        return "nothing to compare with yet"
    nearest = short_id(scoring.nearest_id) if scoring.nearest_id else "a pruned run"
    return f"{scoring.nearest_similarity:.3f} like {nearest}"


def _against_threshold(run: Run) -> str:
    threshold = applied_threshold(run)
    if run.scoring is None or (threshold is None and run.scoring.bar is None):
        return "its gate failed to decide"
    if threshold is None:
        return f"ranked by {_rank(run, run.scoring)}"
    margin = run.scoring.score - threshold
    verb = "reaches" if margin >= 0 else "is below"
    return f"{verb} {short_bar(threshold)} by {distance(margin)}"


def _rank(run: Run, scoring: Scoring) -> str:
    key = run.reason_args.get("key", scoring.rank_key)
    return f"rank {key or 0:.3f} against {short_bar(scoring.bar or 0)}"


def _kept_here(run: Run) -> str:
    match run.state:
        case "recorded":
            return "kept here, not scored yet"
        case "incomplete":
            why = f" ({run.error_type})" if run.error_type else ""
            return f"kept here, not scored: the run did not come to its end{why}"
        case _:
            return f"kept here: {run.reason}"


class Call(NamedTuple):
    """A call of a model or a tool; ``start_ms`` is from the beginning of the run."""

    kind: Literal["model", "tool", "error"]
    name: str
    agent: str
    start_ms: float
    length_ms: float
    step: int
    tokens: int | None = None

    @property
    def end_ms(self) -> float:
        """Its end, from the beginning of the run."""
        return self.start_ms + self.length_ms


class Timeline(NamedTuple):
    """The timed calls of a run in the order of their starts, at most 100.

    ``models_ms`` and ``tools_ms`` are how long at least one was at work; in the gaps, neither was.
    """

    calls: tuple[Call, ...]
    total_ms: float
    models_ms: float
    tools_ms: float
    waiting_ms: float
    gaps: tuple[tuple[float, float], ...]
    left_out: int


def timeline(run: Run) -> Timeline:
    """Return the calls of a run; empty where nothing was timed."""
    began_s = epoch_s(run.started_at)
    calls = [call for step in run.steps for call in _calls(run, step, began_s)]
    calls.sort(key=lambda call: (call.start_ms, call.step))
    total_ms = max([run.duration_ms or 0.0, *(call.end_ms for call in calls)])
    models = [call for call in calls if call.kind == "model"]
    tools = [call for call in calls if call.kind != "model"]
    idle_ms = [
        sum(end - start for start, end in _gaps(some, total_ms)) for some in (models, tools, calls)
    ]
    return Timeline(
        tuple(calls[:_MOST_CALLS]),
        total_ms,
        models_ms=total_ms - idle_ms[0],
        tools_ms=total_ms - idle_ms[1],
        waiting_ms=idle_ms[2],
        gaps=(*_gaps(calls, total_ms),),
        left_out=max(0, len(calls) - _MOST_CALLS),
    )


def _calls(run: Run, step: StepRecord, began_s: float) -> Iterable[Call]:
    if step.started_at is None:
        return
    start_ms = max(0.0, (epoch_s(step.started_at) - began_s) * 1000)
    agent = step.agent or ""
    if step.model_latency_ms is not None:
        tokens = (step.input_tokens or 0) + (step.output_tokens or 0) or None
        name = step.model or "model"
        yield Call("model", name, agent, start_ms, step.model_latency_ms, step.number, tokens)
    elif step.latency_ms is not None:
        failed = step.type == "error_recovery" or ended_it(run, step)
        kind: Literal["error", "tool"] = "error" if failed else "tool"
        yield Call(kind, step.tool or "call", agent, start_ms, step.latency_ms, step.number)


def _gaps(calls: Iterable[Call], total_ms: float) -> Iterator[tuple[float, float]]:
    """Yield when none of them, in the order of their starts, was going on."""
    end = 0.0
    for call in calls:
        if call.start_ms > end:
            yield end, call.start_ms
        end = max(end, call.end_ms)
    if total_ms > end:
        yield end, total_ms
