"""The words that a run is recalled by: what people said, without what most runs share."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kp_middleware.traces import ReasoningTrace

LONG: Final = 200
"""The characters of a text beyond which a prompt may be in it, and that a first line may have."""

_QUOTE: Final = re.compile(r"<past_run\b[^>]*>.*?</past_run>", re.DOTALL)
_MOST_OF_ONE: Final = 4000
_MOST: Final = 32_000
COMPARED: Final = 16
"""The latest objectives that a long one is compared with."""

_MOST_TELLING: Final = 5.0
_SHARED: Final = 0.25  # of the latest objectives: what so many have is their prompt
_TOLD: Final = 8  # letters: fewer are no task
_LETTER: Final = re.compile(r"[^\W\d_]")
_SENTENCE: Final = re.compile(r'[\n<>"]+|(?<=[.!?:])\s+|(?<=[。！？])')


def said_in(trace: "ReasoningTrace", latest: Sequence[str] = ()) -> str:
    """Return what people said in a run: the objective, as far as it is its own, and their turns.

    ``latest`` are the objectives of the runs before it.
    """
    turns = (step.content for step in trace.steps if step.type == "observation" and not step.tool)
    said = dict.fromkeys(filter(None, (own_part(trace.task.objective, latest), *turns)))
    return "\n".join(without_recalled(text)[:_MOST_OF_ONE] for text in said)[:_MOST]


def first_line(said: str) -> str:
    r"""Return what a run is compared by of what people said: its first line, cut if long.

    >>> first_line("Cancel my flight.\nIt is ABC123.")
    'Cancel my flight.'
    """
    return said.strip().split("\n", 1)[0][:LONG].strip()


def packed(vector: "NDArray[np.float32]") -> bytes:
    """Return the unit vector of a first line in a quarter of the room: int8, 127 is 1."""
    return (vector * 127).round().astype("int8").tobytes()


def telling(share: float) -> float:
    """Return how telling a word is that so many of all runs have, in nats: at most 5.

    >>> telling(1.0), round(telling(0.1), 2)
    (0.0, 2.94)
    """
    return min(_MOST_TELLING, math.log((2 - share) / share))


def own_part(task: str, latest: Sequence[str]) -> str:
    """Return a long task without the sentences of the prompt that the latest ones share.

    Where nothing of its own is left, what fewest of them share is the task.

    >>> prompt = "You work for a shop. Be polite. Answer in the language of the customer. " * 3
    >>> own_part(prompt + "Where is my tent?", [prompt + "Hello!", prompt + "Hi!", prompt])
    'Where is my tent?'
    """
    if len(task) <= LONG or not latest:
        return task
    counts = Counter(sentence for one in latest for sentence in {*_sentences(one)})
    sentences = _sentences(task)
    fewest = min((counts[one] for one in sentences), default=0)
    for most in (max(min(2, len(latest)), _SHARED * len(latest)), fewest + 1):
        own = "\n".join(one for one in sentences if counts[one] < most)
        if sum(map(str.isalpha, own)) >= _TOLD:
            return own
    return task


def without_recalled(text: str) -> str:
    """Return a text without the past runs that are quoted in it.

    >>> without_recalled('Cancel it. <past_run id="1">Cancelled.</past_run>')
    'Cancel it. '
    """
    return _QUOTE.sub("", text) if "<past_run" in text else text


def _sentences(text: str) -> list[str]:
    """Return the parts of a text that hold letters: numbers alone are no task."""
    return [one for part in _SENTENCE.split(text) if _LETTER.search(one := part.strip())]
