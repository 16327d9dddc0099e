"""The words that a run is recalled by, without those of past runs that it was told of."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kp_middleware.traces import ReasoningTrace

OPENING: Final = 200
"""The characters of what people said that are embedded: more of them find less."""

_QUOTE: Final = re.compile(r"<past_run\b[^>]*>.*?</past_run>", re.DOTALL)
_MOST_OF_ONE: Final = 4000
_MOST: Final = 32_000


def said_in(trace: "ReasoningTrace") -> str:
    r"""Return what people said in a run: the objective and their turns.

    >>> from kp_middleware.traces import ReasoningTrace, Step
    >>> steps = [Step(step_id=0, type="observation", content="The blue one.")]
    >>> said_in(ReasoningTrace.of("Cancel my order", steps))
    'Cancel my order\nThe blue one.'
    """
    turns = (step.content for step in trace.steps if step.type == "observation" and not step.tool)
    said = dict.fromkeys(filter(None, (trace.task.objective, *turns)))
    return "\n".join(without_recalled(text)[:_MOST_OF_ONE] for text in said)[:_MOST]


def without_recalled(text: str) -> str:
    """Return a text without the past runs that are quoted in it.

    >>> without_recalled('Cancel it. <past_run id="1">Cancelled.</past_run>')
    'Cancel it. '
    """
    return _QUOTE.sub("", text) if "<past_run" in text else text
