"""The user text by which a run is recalled, without the prompt that most runs share."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kp_middleware.traces import ReasoningTrace

LONG_CHARS: Final = 200
"""Texts longer than this may contain a prompt; a first line is cut to it."""

_QUOTE: Final = re.compile(r"<past_run\b[^>]*>.*?</past_run>", re.DOTALL)
COMPARED_OBJECTIVES: Final = 16
"""The number of latest objectives that a long one is compared with."""

_SHARED: Final = 0.25  # sentences in this share of the latest objectives are a prompt
_LETTER: Final = re.compile(r"[^\W\d_]")
_SENTENCE: Final = re.compile(r'[\n<>"]+|(?<=[.!?:])\s+|(?<=[。！？])')


def extract_user_text(trace: "ReasoningTrace", latest: Sequence[str] = ()) -> str:
    """Return the objective without a shared prompt, then the user's turns, one a line.

    ``latest`` are the objectives of the latest runs before it.
    """
    turns = (step.content for step in trace.steps if step.type == "observation" and not step.tool)
    own = without_shared_prompt(trace.task.objective, latest)
    texts = dict.fromkeys(filter(None, (own, *turns)))
    return "\n".join(without_recalled(text)[:4000] for text in texts)[:32_000]


def first_line(text: str) -> str:
    """Return the first line of a user text, which represents the run; cut if long."""
    return text.strip().split("\n", 1)[0][:LONG_CHARS].strip()


def quantize(vector: "NDArray[np.float32]") -> bytes:
    """Quantize a unit vector to int8, where 127 is 1."""
    return (vector * 127).round().astype("int8").tobytes()


def word_weight(share: float) -> float:
    """Return the weight of a word that this share of all runs contain, in nats: at most 5.

    >>> word_weight(1.0), round(word_weight(0.1), 2)
    (0.0, 2.94)
    """
    return min(5.0, math.log((2 - share) / share))


def without_shared_prompt(task: str, latest: Sequence[str]) -> str:
    """Return a long task without the sentences that many of the latest tasks contain.

    If too little is left, return the sentences that the fewest of them contain.

    >>> prompt = "You work for a shop. Be polite. Answer in the language of the customer. " * 3
    >>> latest = [prompt + "Hello!", prompt + "Hi!", prompt]
    >>> without_shared_prompt(prompt + "Where is my tent?", latest)
    'Where is my tent?'
    """
    if len(task) <= LONG_CHARS or not latest:
        return task
    counts = Counter(sentence for one in latest for sentence in {*_sentences(one)})
    sentences = _sentences(task)
    fewest = min((counts[one] for one in sentences), default=0)
    for most in (max(min(2, len(latest)), _SHARED * len(latest)), fewest + 1):
        own = "\n".join(one for one in sentences if counts[one] < most)
        if sum(map(str.isalpha, own)) >= 8:  # of a task
            return own
    return task


def without_recalled(text: str) -> str:
    """Remove the past runs that a text quotes."""
    return _QUOTE.sub("", text) if "<past_run" in text else text


def _sentences(text: str) -> list[str]:
    return [one for part in _SENTENCE.split(text) if _LETTER.search(one := part.strip())]
