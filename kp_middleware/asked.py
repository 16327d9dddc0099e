"""The words that a run is recalled by, and the quote in which a past run is told."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kp_middleware.traces import ReasoningTrace

TAG: Final = "past_run"
"""The tag around the digest of a past run; inside, no text holds it."""

_QUOTE: Final = re.compile(rf"<{TAG}\b[^>]*>.*?(?:</{TAG}>|\Z)", re.DOTALL)
_MOST_OF_ONE: Final = 4000
_MOST: Final = 32_000


class Asked(NamedTuple):
    """What was said in a run.

    Attributes:
        said: By people: the objective and their turns.
        answered: By the agent: its thoughts and the result.
    """

    said: str
    answered: str


def asked_in(trace: "ReasoningTrace") -> Asked:
    r"""Return what people and the agent said in a run, without what was recalled.

    >>> from kp_middleware.traces import ReasoningTrace, Step
    >>> steps = [Step(step_id=0, type="thought", content="Which one?")]
    >>> asked_in(ReasoningTrace.of("Cancel it", steps, result_summary="Done."))
    Asked(said='Cancel it', answered='Which one?\nDone.')
    """
    turns = (
        step.content for step in trace.steps if step.type == "observation" and step.tool is None
    )
    thoughts = (step.content for step in trace.steps if step.type == "thought")
    return Asked(
        _joined([trace.task.objective, *turns]),
        _joined([*thoughts, trace.outcome.result_summary]),
    )


def without_recalled(text: str) -> str:
    """Return a text without the past runs that are quoted in it.

    >>> without_recalled('Cancel it. <past_run id="1">Cancelled.</past_run>')
    'Cancel it. '
    """
    return _QUOTE.sub("", text) if f"<{TAG}" in text else text


def _joined(texts: Iterable[str | None]) -> str:
    parts = (without_recalled(text)[:_MOST_OF_ONE] for text in dict.fromkeys(texts) if text)
    return "\n".join(parts)[:_MOST]
