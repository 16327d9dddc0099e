"""One run as it is shown: the sum behind its score, its gate's verdict, where it was sent."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kp_middleware.core.formula import SIGNALS
from kp_middleware.core.gates import exact
from kp_middleware.storage import Row
from kp_middleware.views.wording import (
    counted,
    distance,
    duration,
    minute,
    short_bar,
    short_id,
    titled,
)

STEP_NAMES: Final = {
    "thought": "Thought",
    "tool_call": "Tool call",
    "observation": "Observation",
    "error_recovery": "Error, recovered",
}
_TITLE: Final = 300
_ONE_LINE: Final = 72


class ScoreLine(NamedTuple):
    """One line of the sum behind a score.

    Attributes:
        part: A signal, a rule, or ``score``.
        working: How the number comes about.
        amount: What it adds to the score.
    """

    part: str
    working: str
    amount: float


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a run.

    Attributes:
        kind: As the protocol names it.
        name: The same for people.
        about: The agent and the tool, where there are any.
        duration: How long it took; empty where it was not timed.
        content: What was thought or said.
        input: The arguments of a call, as JSON.
        output: What came back.
    """

    kind: str
    name: str
    about: tuple[str, ...]
    duration: str
    content: str
    input: str
    output: str


@dataclass(frozen=True, slots=True)
class TraceView:
    """One run as pages and the report show it.

    Attributes:
        title: What was asked, cut where it is long; never blank.
        objective: All of it; empty where the title has all.
        facts: Domain, start, duration, success, steps, framework, agent and model.
        feedback: What was learned of it after its end.
        score: From 0 to 1; None where it was not scored.
        threshold: What its gate asked for; None where it asked for nothing.
        is_cleared: Whether the score passed.
        sum: What each signal and rule adds, rounded so that they add up.
        gate: The gate and what it asked for; None without a decision.
        delivery_status: Where it was sent, or why it was not.
        redactions: How many of each kind were removed, the most first.
        result: What came out; empty where nothing did.
    """

    id: str
    title: str
    objective: str
    facts: tuple[str, ...]
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


def view_trace(trace: Row) -> TraceView:
    """Return what pages show of a stored run."""
    threshold, objective = applied_threshold(trace), str(trace["objective"])
    is_long = len(objective) > _TITLE
    removed = sorted(redaction_counts(trace).items(), key=lambda item: (-item[1], item[0]))
    return TraceView(
        id=trace["id"],
        title=f"{objective[:_TITLE]} …" if is_long else titled(objective, _TITLE),
        objective=objective if is_long else "",
        facts=(*_facts(trace),),
        feedback=(*feedback_in_words(trace),),
        score=trace["score"],
        threshold=threshold,
        is_cleared=threshold is not None and trace["score"] is not None and is_cleared(trace),
        sum=(*added_up(arithmetic(trace))[:-1],),
        gate=gate_in_words(trace),
        delivery_status=delivery_status(trace),
        redactions=(*removed,),
        steps=(*map(_step, trace["steps"]),),
        result=trace["result_summary"] or "",
    )


def arithmetic(trace: Row) -> list[ScoreLine]:
    """Return each signal times its weight, each rule, and the score; empty without a score.

    The amounts before the last add up to it, except for what clamping to 0..1 takes away.
    """
    if trace["score"] is None:
        return []
    signals = [_signal(trace, part) for part in SIGNALS]
    rules = [ScoreLine(rule["rule"], "rule", rule["delta"]) for rule in trace["rules"]]
    return [*signals, *rules, ScoreLine("score", _against_threshold(trace), trace["score"])]


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


def gate_in_words(trace: Row) -> str | None:
    """Name the gate and the threshold it applied to this run; None without a decision."""
    if trace["gate"] is None:
        return None
    threshold = applied_threshold(trace)
    if threshold is None:
        return f"{trace['gate']}, which failed to decide"
    is_said = trace["gate"].partition(",")[0] == f"threshold {exact(threshold)}"
    asked = "" if is_said else f", its bar for this run {short_bar(threshold)}"
    return f"{trace['gate']}{asked}"


def applied_threshold(trace: Row) -> float | None:
    """Return the score, 0 to 1, that the gate asked for; None where it failed to decide."""
    return None if trace["reason_code"] == "gate_failed" else trace["threshold"]


def is_cleared(trace: Row) -> bool:
    """Return whether the score passed the gate, whatever else kept the run."""
    return bool(trace["score"] >= trace["threshold"]) and trace["reason_code"] != "tied_with_share"


def least_passing_score(trace: Row) -> float:
    """Return the least score, 0 to 1, certain to pass.

    Of runs with exactly the score that a top share asks for, the first pass and the others do not.
    Until a domain has enough runs, the protocol's own threshold applies.
    """
    threshold: float = trace["threshold"]
    by_share = trace["reason_code"] in {"in_share", "below_share", "tied_with_share"}
    return math.nextafter(threshold, 2) if by_share else threshold


def other_reason(trace: Row) -> str | None:
    """Say why the decision is not the threshold's; None where it is."""
    match trace["reason_code"]:
        case "gate_failed" | "daily_limit":
            return str(trace["reason"])
        case "custom" if is_cleared(trace) != (trace["decision"] == "forward"):
            return str(trace["reason"])
        case _:
            return None


def delivery_status(trace: Row) -> str:
    """Say in one sentence where the run was sent, or why it was not."""
    outbox = trace["outbox"]
    if trace["state"] == "paused":
        return "waits for a person, or for the next turn of its thread"
    if outbox is None:
        return _kept_here(trace)
    match outbox["state"]:
        case "sent":
            return f"sent to {outbox['registry']} at {outbox['sent_at']} as {outbox['remote_id']}"
        case "pending" | "sending":
            after = f" after {outbox['last_error']}" if outbox["last_error"] else ""
            return f"waits to be sent to {outbox['registry']}{after}"
        case state:
            return f"{state}: {outbox['reason']}"


def listed_state(trace: Row) -> str:
    """Return the state as a list has it: where the run is on its way, or why it has no score."""
    if trace["outbox"] is not None:
        return str(trace["outbox"]["state"])
    if trace["state"] != "scored":
        return str(trace["state"])
    return "not queued" if trace["decision"] == "forward" else "withheld"


def redaction_counts(trace: Row) -> Mapping[str, int]:
    """Count by kind what redaction removed: from what leaves, else from what is stored."""
    leaving: Mapping[str, int] = (trace["outbox"] or {}).get("redactions") or {}
    return leaving or trace["redactions"]


def feedback_in_words(trace: Row) -> Iterator[str]:
    """Word each feedback: when it was given, what it said, and what was assumed before."""
    for told in trace["feedback"]:
        at = f"{told['given_at'][:16].replace('T', ' ')} UTC"
        parts = []
        if told["success"] is not None:
            parts.append(_success(told["success"]))
        if told["confidence"] is not None:
            parts.append(_confidence(told["confidence"]))
        before = f"{_success(told['success_before'])}, {_confidence(told['confidence_before'])}"
        yield f"{at}: {', '.join(parts)} (before: {before})"


def _facts(trace: Row) -> Iterator[str]:
    facts = (
        trace["domain"],
        f"{minute(trace['started_at'])} UTC",
        None if trace["duration_ms"] is None else duration(trace["duration_ms"]),
        "succeeded" if trace["success"] else "failed",
        counted(trace["step_count"], "step").replace(" ", "\N{NO-BREAK SPACE}"),
        trace["framework"],
        trace["agent_name"],
        trace["model"],
    )
    return (str(fact) for fact in facts if fact)


def _step(step: Row) -> StepView:
    latency = step.get("latency_ms")
    return StepView(
        kind=step["type"],
        name=STEP_NAMES[step["type"]],
        about=tuple(str(step[part]) for part in ("agent", "tool") if step.get(part)),
        duration="" if latency is None else duration(latency),
        content=step.get("content") or "",
        input=_as_json(step["input"]) if step.get("input") else "",
        output=step.get("output_summary") or "",
    )


def _as_json(value: object) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= _ONE_LINE:
        return line
    return json.dumps(value, ensure_ascii=False, indent=2)


def _signal(trace: Row, part: str) -> ScoreLine:
    value, weight = trace[part], trace[f"{part}_weight"]
    working = f"{value:.3f} × {weight:.2f}"
    if part == "novelty":
        working += f"  ({_novelty_in_words(trace)})"
    return ScoreLine(part, working, value * weight)


def _novelty_in_words(trace: Row) -> str:
    if trace["embedder"] is None:
        return "not measured: no embedder"
    if trace["nearest_similarity"] is None:
        return "nothing to compare with yet"
    nearest = short_id(trace["nearest_id"]) if trace["nearest_id"] else "a pruned trace"
    return f"{trace['nearest_similarity']:.3f} like {nearest}"


def _against_threshold(trace: Row) -> str:
    threshold = applied_threshold(trace)
    if threshold is None:
        return "its gate failed to decide"
    margin = trace["score"] - threshold
    if margin >= 0 and not is_cleared(trace):
        return f"is no more than {short_bar(threshold)}"
    return (
        f"{'reaches' if margin >= 0 else 'is below'} {short_bar(threshold)} by {distance(margin)}"
    )


def _kept_here(trace: Row) -> str:
    match trace["state"]:
        case "recorded":
            return "kept here, not scored yet"
        case "incomplete":
            why = f" ({trace['error_type']})" if trace["error_type"] else ""
            return f"kept here, not scored: the run did not come to its end{why}"
        case _:
            return f"kept here: {trace['reason']}"


def _success(success: int) -> str:
    return "success" if success else "no success"


def _confidence(confidence: float) -> str:
    return f"confidence {confidence:.3f}"
