"""What one signal alone would have to be for the other verdict: in words."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from kp_middleware.inspection.explanation._alternatives import Case
from kp_middleware.inspection.explanation._facts import Facts
from kp_middleware.inspection.explanation._reasons import counted

_NOISE: Final = 1e-9  # less than this is the last bits of a sum, not a need


def remedy(case: Case, *, measured: bool = True) -> str:
    """What would have changed the verdict, by this signal alone.

    Args:
        case: The signal of a score.
        measured: Whether there was a model to measure novelty with.
    """
    other, farthest = case.alternative(), case.farthest()
    if (farthest >= case.threshold) == case.cleared:
        return f"cannot alone: at {'least' if case.cleared else 'most'} {farthest:.3f}"
    if case.signal == "novelty" and not case.cleared and not measured:
        words = "with a model it would be measured, from 0 to 1"
    else:
        words = _without_promise(case) if other is None else _named(case, other)
    value = _value(case) if other is None or other.rules == case.run.rules else ""
    return ": ".join(filter(None, (value, words)))


def _value(case: Case) -> str:
    """Where its value would do, with the rules that fired; empty where none does."""
    least = case.parts.least(case.signal, case.threshold)
    if not least:
        return ""
    if not case.cleared:
        edge = f"{_up(least):.3f}"
    else:
        edge = f"below {_down(least):.3f}" if _down(least) else "0"
    return f"{edge} instead of {case.value:.3f}"


def _named(case: Case, other: Facts) -> str:
    words = _WORDS[case.signal](case.run, other)
    if case.signal == "novelty" or words.startswith("a confidence"):
        return words  # it just does: what it makes is the threshold
    return f"{words}; that makes {case.score(other):.3f}"


def _without_promise(case: Case) -> str:
    """Where the value would do, and none of the runs that were tried has it."""
    if not case.cleared:
        why = ", they cut tool diversity" if case.run.tools else ""
        return f"more steps alone do not do it{why}"
    if case.parts.least(case.signal, case.threshold):
        return ""
    return "fewer than 3 recoveries from errors, and fewer steps or kinds of step"


def _complexity(run: Facts, other: Facts) -> str:
    if other.steps < run.steps:
        return _simpler(other)
    told, more = [], other.steps - run.steps
    if other.recoveries > run.recoveries:
        more -= other.recoveries - run.recoveries
        told.append(_recoveries(other.recoveries))
    if missing := sorted(other.kinds - run.kinds - {"error_recovery"}):
        more -= len(missing)
        told.append(f"one {' and one '.join(missing)} step".replace("_", " "))
    if more:
        told.append(counted(more, "further step"))
    return " and ".join(told)


def _simpler(other: Facts) -> str:
    if other.recoveries:
        return _recoveries(other.recoveries)
    if other.rules[:1] == ("single_thought",):
        return "one thought and nothing else"
    return "no recovery from an error"


def _recoveries(count: int) -> str:
    return "a first recovery from an error" if count == 1 else f"{count} recoveries from errors"


def _novelty(run: Facts, other: Facts) -> str:
    similarity = f"{1 - other.novelty:.3f} like it"
    if other.novelty > run.novelty:
        return f"the nearest earlier trace would have to be at most {similarity}"
    return f"an earlier trace that is at least {similarity}"


def _tools(run: Facts, other: Facts) -> str:
    tools, steps = counted(other.tools, "different tool"), counted(run.steps, "step")
    return f"{tools} in its {steps}, it had {run.tools}"


def _outcome(run: Facts, other: Facts) -> str:
    confidence = f"a confidence of {other.confidence:.3f}"
    if run.success == other.success:
        return confidence
    if run.confidence == other.confidence:
        confidence = f"its confidence of {other.confidence:.3f}"
    return f"a {'success' if other.success else 'failure'}, with {confidence}"


_WORDS: Final[Mapping[str, Callable[[Facts, Facts], str]]] = {
    "complexity": _complexity,
    "novelty": _novelty,
    "tool_diversity": _tools,
    "outcome_confidence": _outcome,
}


def _up(value: float) -> float:
    """The least thousandth that is enough."""
    thousandths = math.ceil(value * 1000 - _NOISE)
    return (thousandths + (thousandths / 1000 < value)) / 1000


def _down(value: float) -> float:
    """The greatest thousandth that is not too much."""
    thousandths = math.floor(value * 1000 + _NOISE)
    return (thousandths - (thousandths / 1000 > value)) / 1000
