"""What of a run made each signal what it is, and each rule fire: pure functions of its row."""

from collections.abc import Callable, Mapping
from typing import Final

from kp_middleware.storage import Row
from kp_middleware.views.wording import cut, one_line, short_id

_QUOTED: Final = 60
_KINDS: Final = ("thought", "tool_call", "observation", "error_recovery")


def reason(trace: Row, signal: str) -> str:
    """Why this signal has its value."""
    return _REASONS[signal](trace)


def rule_reason(trace: Row, rule: str) -> str:
    """Why this rule fired."""
    match rule:
        case "single_thought":
            return "it is one thought and nothing else: that scores 0.1, whatever the signals say"
        case "many_recoveries":
            return f"it succeeded after {trace['recovery_count']} recoveries, which is more than 2"
        case _:
            return "all its tool calls are of one tool"


def kinds_of(trace: Row) -> list[str]:
    """The types of step that the run has, in the order in which the protocol names them."""
    found = {step["type"] for step in trace["steps"]}
    return [kind for kind in _KINDS if kind in found]


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _complexity(trace: Row) -> str:
    kinds, recoveries, steps = len(kinds_of(trace)), trace["recovery_count"], trace["step_count"]
    give = "gives" if kinds == 1 else "give"
    parts = [f"{kinds} of 4 kinds of step {give} {kinds / 8:.3f}"]
    if recoveries:
        parts.append("having recovered from an error 0.300")
    parts.append(f"{counted(steps, 'step')} {steps / 100:.3f}")
    capped = kinds / 8 + 0.3 * bool(recoveries) + steps / 100 > 1
    return ", ".join(parts) + ("; more than 1 counts as 1" if capped else "")


def _novelty(trace: Row) -> str:
    if trace["embedder"] is None:
        return "it was not measured, for want of a model: 0.5 is assumed"
    if trace["nearest_similarity"] is None:
        return "there was nothing to compare with: 0.5 is assumed"
    similarity = f"{trace['nearest_similarity']:.3f}"
    if trace["nearest_id"] is None:
        return f"the nearest earlier trace was {similarity} like it, and is removed since"
    objective = cut(one_line(trace["nearest_objective"]), _QUOTED)
    return f"{similarity} like {short_id(trace['nearest_id'])}, the nearest before it: {objective}"


def _tool_diversity(trace: Row) -> str:
    tools, steps = trace["tool_count"], trace["step_count"]
    capped = "; more than 1 counts as 1" if tools / max(1, steps) * 3 > 1 else ""
    return f"{counted(tools, 'different tool')} in {counted(steps, 'step')}, times 3{capped}"


def _outcome_confidence(trace: Row) -> str:
    is_told = any(told["confidence"] is not None for told in trace["feedback"])
    whose = "feedback's" if is_told else "the agent's"
    confidence = f"{whose} confidence of {trace['confidence']:.3f}"
    if trace["success"]:
        return f"{confidence}, and success"
    return f"0.3 of {confidence}, because it failed"


_REASONS: Final[Mapping[str, Callable[[Row], str]]] = {
    "complexity": _complexity,
    "novelty": _novelty,
    "tool_diversity": _tool_diversity,
    "outcome_confidence": _outcome_confidence,
}
