"""Word what one signal alone would have to be for the other decision."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kp_middleware.core.alternatives import RECOVERY, Case, Facts, plain_steps
from kp_middleware.views.wording import counted

_NOISE: Final = 1e-9  # less than this is the last bits of a sum, not a need


def remedy(case: Case, *, measured: bool = True) -> str:
    """Say what would have changed the decision, by this signal alone.

    Args:
        case: The signal of a score.
        measured: Whether there was a model to measure novelty with.
    """
    other = case.alternative()
    if other is None and ((farthest := case.farthest()) >= case.threshold) == case.cleared:
        return f"cannot alone: at {'least' if case.cleared else 'most'} {farthest:.3f}"
    if case.signal == "novelty" and not case.cleared and not measured:
        words = "with a model it would be measured, from 0 to 1"
    else:
        words = _in_part(case) if other is None else _named(case, other)
    value = _value(case) if other is None or _is_its_value(case, other) else ""
    return ": ".join(filter(None, (value, words)))


def _is_its_value(case: Case, other: Facts) -> bool:
    """Return whether the value alone would change the decision, so that it is worth naming."""
    if other.rules != case.run.rules:
        return False
    least = case.parts.least(case.signal, case.threshold) or 0.0
    return case.signal != "complexity" or (other.complexity >= least) != case.cleared


def _value(case: Case) -> str:
    """Name the value that would do with the rules that fired; empty where none does."""
    least = case.parts.least(case.signal, case.threshold)
    if not least:
        return ""
    if not case.cleared:
        edge = f"{_up(least):.3f}"
    else:
        edge = f"at most {_below(least):.3f}" if _below(least) > 0 else "0"
    return f"{edge} instead of {case.value:.3f}"


def _named(case: Case, other: Facts) -> str:
    words = _WORDS[case.signal](case.run, other)
    if case.signal == "novelty" or words.startswith("a confidence"):
        return words  # it just does: what it makes is the threshold
    return f"{words}; that makes {case.score(other):.3f}"


def _in_part(case: Case) -> str:
    """Word what the value alone does not say, for a run of which not all steps are stored."""
    if case.parts.least(case.signal, case.threshold):
        return ""
    many = "fewer than 3" if case.cleared else "3"
    return f"{many} recoveries from errors, and {'fewer' if case.cleared else 'more'} kinds of step"


def _complexity(run: Facts, other: Facts) -> str:
    if other.rules[:1] == ("single_thought",):
        return "one thought and nothing else"
    told = [f"one {_name(kind)}" for kind in _new(run, other)]
    gone = [f"{_name(kind)}s" for kind in _new(other, run)]
    more = plain_steps(run, other)
    is_told_in_all = more < 0 or bool(gone)
    if other.recoveries == 0 < run.recoveries:
        gone.append("recoveries from errors")
    elif other.recoveries != run.recoveries:
        told.insert(0, _recoveries(other.recoveries, before=run.recoveries))
    if more > 0 and not is_told_in_all:
        told.append(counted(more, "further step"))
    if gone:
        told.append(f"no {_listed(gone, 'or')}")
    if not is_told_in_all:
        return _listed(told, "and")
    steps = counted(other.steps, "step")
    before = "as before" if other.steps == run.steps else f"instead of {run.steps:,}"
    return ", with ".join(filter(None, [f"{steps} {before}", _listed(told, "and")]))


def _listed(words: Sequence[str], last: str) -> str:
    """Join words with commas, and the last one with a word of its own."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _new(run: Facts, other: Facts) -> list[str]:
    return sorted(other.kinds - run.kinds - {RECOVERY})


def _name(kind: str) -> str:
    return kind.replace("_", " ")


def _recoveries(count: int, *, before: int) -> str:
    first = "a first" if before == 0 else "one"
    return f"{first} recovery from an error" if count == 1 else f"{count} recoveries from errors"


def _novelty(run: Facts, other: Facts) -> str:
    similarity = f"{1 - other.novelty:.3f} like it"
    if other.novelty > run.novelty:
        return f"the nearest earlier run would have to be at most {similarity}"
    return f"an earlier run that is at least {similarity}"


def _tools(run: Facts, other: Facts) -> str:
    tools, steps = counted(other.tools, "different tool"), counted(run.steps, "step")
    return f"{tools} instead of {run.tools} in its {steps}"


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
    """Return the least thousandth that is enough."""
    thousandths = math.ceil(value * 1000 - _NOISE)
    return (thousandths + (thousandths / 1000 < value)) / 1000


def _below(value: float) -> float:
    """Return the greatest thousandth that is less."""
    return (math.ceil(value * 1000 - _NOISE) - 1) / 1000
