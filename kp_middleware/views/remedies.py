"""Word what one signal alone would have to be for the other decision."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kp_middleware.core.formula import Parts, Shape, fired_rules, outcome_confidence, tool_diversity
from kp_middleware.storage import Run
from kp_middleware.views.wording import counted

_NOISE: Final = 1e-9  # less than this is the last bits of a sum, not a need


def remedy(run: Run, parts: Parts, signal: str, threshold: float, *, measured: bool) -> str:
    """Say what would have changed the decision, by this signal alone; ``measured``: its novelty."""
    cleared = parts.score >= threshold
    match signal:
        case "tool_diversity":
            others = _tools(run, parts, cleared=cleared)
        case "outcome_confidence":
            others = _outcomes(run, parts, threshold)
        case _:
            others = _values(parts, signal, threshold, measured=measured)
    scores = [parts.score]
    for words, score in others:
        if (score >= threshold) != cleared:
            return words
        scores.append(score)
    farthest = f"least {min(scores):.3f}" if cleared else f"most {max(scores):.3f}"
    return f"cannot alone: at {farthest}"


def shape_of(run: Run) -> Shape:
    """Return the steps of a stored run as the formula counts them."""
    types = frozenset(step.type for step in run.steps)
    return Shape(run.step_count, types, run.tool_count, run.recovery_count)


def _values(
    parts: Parts, signal: str, threshold: float, *, measured: bool
) -> Iterator[tuple[str, float]]:
    """Yield the value that a signal would have to have, and the score at its limit."""
    cleared = parts.score >= threshold
    edge = _up(parts.least(signal, threshold) or 0.0) - 0.001 * cleared
    words = f"{'at most ' * cleared}{edge:.3f} instead of {getattr(parts.signals, signal):.3f}"
    if signal == "novelty" and cleared:
        words += f": an earlier run that is at least {1 - edge:.3f} like it"
    elif signal == "novelty" and measured:
        words += f": the nearest earlier run would have to be at most {1 - edge:.3f} like it"
    elif signal == "novelty":
        words += ": with a model it would be measured, from 0 to 1"
    yield words, parts.changed(signal, 0.0 if cleared else 1.0).score


def _tools(run: Run, parts: Parts, *, cleared: bool) -> Iterator[tuple[str, float]]:
    shape, had = shape_of(run), run.tool_count
    fewer, more = reversed(range(had)), range(had + 1, run.step_count + 1)
    for tools in (*fewer, *more) if cleared else (*more, *fewer):
        other = replace(shape, tools=tools)
        changed = parts.changed("tool_diversity", tool_diversity(other))
        score = changed._replace(rules=fired_rules(other, success=run.success)).score
        words = f"{counted(tools, 'different tool')} instead of {had}"
        yield f"{words} in its {counted(run.step_count, 'step')}; that makes {score:.3f}", score


def _outcomes(run: Run, parts: Parts, threshold: float) -> Iterator[tuple[str, float]]:
    """Yield the other outcome with the same confidence, then other confidences."""
    cleared = parts.score >= threshold
    for success in dict.fromkeys((not cleared, run.success or not cleared)):
        changed = parts._replace(rules=fired_rules(shape_of(run), success=success))
        outcome, full = "", outcome_confidence(1.0, success=success)
        if success != run.success:
            outcome = f"a {'success' if success else 'failure'}, with "
            score = changed.changed("outcome_confidence", full * run.confidence).score
            words = f"{outcome}its confidence of {run.confidence:.3f}"
            yield f"{words}; that makes {score:.3f}", score
        edge = _up((changed.least("outcome_confidence", threshold) or 0.0) / full)
        score = changed.changed("outcome_confidence", 0.0 if cleared else full).score
        yield f"{outcome}a confidence of {edge - 0.001 * cleared:.3f}", score


def _up(value: float) -> float:
    return math.ceil(value * 1000 - _NOISE) / 1000
