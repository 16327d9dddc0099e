"""What one signal alone would have to be for the other verdict: pure functions of a case."""

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kp_middleware.inspection._reasons import counted, kinds_of
from kp_middleware.inspection._rescoring import Parts
from kp_middleware.storage import Row

_NOISE: Final = 1e-9  # less than this is the last bits of a sum, not a need


class Case(NamedTuple):
    """One signal of one score, held against a threshold.

    Attributes:
        trace: The row of the run.
        parts: What its score is made of.
        threshold: From 0 to 1.
        signal: Its name.
        least: The least value of the signal that reaches the threshold while the others stay, from
            0 to 1; None where not even 1 does.
    """

    trace: Row
    parts: Parts
    threshold: float
    signal: str
    least: float | None

    @property
    def cleared(self) -> bool:
        """Whether the score reaches the threshold."""
        return self.parts.score >= self.threshold


def remedy(case: Case) -> str:
    """What would have changed the verdict, by this signal alone."""
    edge = 0.0 if case.cleared else 1.0
    if case.least is None or case.least == 0:
        score = case.parts.changed(case.signal, edge).score
        return f"cannot alone: even {edge:.0f} gives {score:.3f}"
    value = case.trace[case.signal]
    if case.cleared:
        lower = _LOWERED[case.signal](case, case.least)
        return f"below {_down(case.least)} instead of {value:.3f}" + (f": {lower}" if lower else "")
    higher = _RAISED[case.signal](case, case.least)
    return f"{_up(case.least)} instead of {value:.3f}: {higher}"


def _complexity_raised(case: Case, _: float) -> str:
    gains = (
        ["a first recovery from an error adds 0.300"] if not case.trace["recovery_count"] else []
    )
    if len(kinds_of(case.trace)) < 4:
        gains.append("each kind of step that is missing adds 0.125")
    return ", ".join([*gains, "each further step adds 0.010"])


def _novelty_raised(case: Case, least: float) -> str:
    if case.trace["embedder"] is None:
        return "with a model it would be measured, from 0 to 1"
    return f"the nearest earlier trace would have to be at most {_down(1 - least)} like it"


def _novelty_lowered(_: Case, least: float) -> str:
    return f"an earlier trace that is more than {_up(1 - least)} like it"


def _tools_raised(case: Case, _: float) -> str:
    had, steps = case.trace["tool_count"], case.trace["step_count"]
    enough = [n for n in range(had + 1, steps + 1) if _with_tools(case, n) >= case.threshold]
    if not enough:
        return "more tools than it has steps"
    return f"{counted(enough[0], 'different tool')} in its {counted(steps, 'step')}, it had {had}"


def _tools_lowered(case: Case, _: float) -> str:
    had, steps = case.trace["tool_count"], case.trace["step_count"]
    few = [n for n in range(had) if _with_tools(case, n) < case.threshold]
    if not few:
        return ""
    return f"{counted(few[-1], 'different tool')} in its {counted(steps, 'step')}, it had {had}"


def _with_tools(case: Case, tools: int) -> float:
    """The score with so many different tools: with exactly one, a rule takes something away."""
    others = [rule for rule in case.parts.rules if rule != "single_tool"]
    rules = (*others, "single_tool") if tools == 1 else (*others,)
    diversity = min(1.0, tools / max(1, case.trace["step_count"]) * 3)
    return case.parts.changed("tool_diversity", diversity)._replace(rules=rules).score


def _confidence_raised(case: Case, least: float) -> str:
    confidence = case.trace["confidence"]
    if case.trace["success"]:
        return f"a confidence of {_up(least)}"
    if confidence >= least:
        return f"had it succeeded, its confidence of {confidence:.3f} would count in full"
    return f"a success, with a confidence of {_up(least)}"


def _confidence_lowered(case: Case, least: float) -> str:
    if case.trace["success"] and case.trace["confidence"] * 0.3 < least:
        return "a failure would do, with the same confidence"
    return ""


_Words = Callable[[Case, float], str]
_RAISED: Final[Mapping[str, _Words]] = {
    "complexity": _complexity_raised,
    "novelty": _novelty_raised,
    "tool_diversity": _tools_raised,
    "outcome_confidence": _confidence_raised,
}
_LOWERED: Final[Mapping[str, _Words]] = {
    "complexity": lambda _case, _least: "",
    "novelty": _novelty_lowered,
    "tool_diversity": _tools_lowered,
    "outcome_confidence": _confidence_lowered,
}


def _up(value: float) -> str:
    """Rounded so that it is enough."""
    return f"{math.ceil(value * 1000 - _NOISE) / 1000:.3f}"


def _down(value: float) -> str:
    """Rounded so that it is not too much."""
    return f"{math.floor(value * 1000 + _NOISE) / 1000:.3f}"
