"""Twelve counts of a run that foretell how it ended."""

import json
import re
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kp_middleware.traces import ReasoningTrace

Features: TypeAlias = NDArray[np.float32]
"""float32, shape ``(12,)`` or ``(runs, 12)``: the logarithms of counts from 0, plus one."""

FEATURES: Final = (
    "steps",
    "failed_calls",
    "failed_last_steps",
    "repeated_calls",
    "transfer",
    "words_per_thought",
    "last_words",
    "last_inability",
    "last_positive",
    "negative_words",
    "tools",
    "thoughts",
)
"""Their names, in the order of the columns."""

_LAST_STEPS: Final = 10
_READ: Final = 50_000  # characters of thoughts, the last ones: a page takes 0.1 ms

# In lower case, by first letters: ten times as fast as re.IGNORECASE over whole words.
_UNABLE: Final = (
    r"sorry|apolog\w*|un(?:able|fortunately)|can(?:not|'t)|could(?:n't| not)"
    r"|not (?:possible|able|allowed|eligible)|failed|transfer\w*"
)
_INABILITY: Final = re.compile(rf"\b(?:{_UNABLE})\b")
_NEGATIVE: Final = re.compile(
    rf"\b(?:{_UNABLE}|however|fails|timed? ?out|issue|still|limited|partial\w*|error)\b"
)
_POSITIVE: Final = re.compile(
    r"\b(?:success\w*|co(?:mpleted?|nfirmed|rrect\w*)|done|refund\w*|thank\w*|verified|passe[sd]"
    r"|works|perfect)\b"
)


def features(trace: ReasoningTrace) -> Features:
    """Return the features of a run, which do not read how it ended."""
    steps = trace.steps
    tools = [step.tool.name for step in steps if step.type == "tool_call" and step.tool]
    calls = {
        (step.tool.name, json.dumps(step.input, sort_keys=True, default=str))
        for step in steps
        if step.type == "tool_call" and step.tool
    }
    failed = [step.type == "error_recovery" for step in steps]
    thoughts = [step.content or "" for step in steps if step.type == "thought"]
    last = thoughts[-1][-_READ:].lower() if thoughts else ""
    said = "\n".join(thoughts)[-_READ:].lower()
    words = len(said.split())
    counts = (
        len(steps),
        sum(failed) / max(1, len(tools)),
        sum(failed[-_LAST_STEPS:]) / len(failed[-_LAST_STEPS:]),
        (len(tools) - len(calls)) / max(1, len(tools)),
        any("transfer" in name for name in tools),
        words / max(1, len(thoughts)),
        len(last.split()),
        len(_INABILITY.findall(last)),
        len(_POSITIVE.findall(last)),
        100 * len(_NEGATIVE.findall(said)) / max(1, words),
        len(set(tools)),
        len(thoughts) / len(steps),
    )
    return np.log1p(np.array(counts, dtype=np.float32))
