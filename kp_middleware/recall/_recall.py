"""What is recalled of the past for a task at hand."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kp_middleware.embedding import Embedder
from kp_middleware.errors import RedactionError
from kp_middleware.instants import epoch_s, instant
from kp_middleware.privacy import Policy
from kp_middleware.recall._digest import digest, quote
from kp_middleware.recall._ranking import fused
from kp_middleware.runs import fingerprint
from kp_middleware.storage import Candidate, History, Question, Run

_MOST: Final = 200  # runs that are ranked
_DAY_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A run that succeeded at a task like the one at hand.

    Attributes:
        trace_id: The id of its trace.
        similarity: The cosine of what people said there and the task, from -1 to 1; without a
            model, the share of the task's words that were said there, each as telling as it is
            rare.
        objective: What it was asked.
        success: True; with ``success_source`` ``assumed`` nobody confirmed it.
        success_source: Who said so: ``feedback``, ``verdict``, ``extracted``, ``said`` or
            ``estimated``.
        age_days: How many days ago it began.
    """

    trace_id: str
    similarity: float
    objective: str
    success: bool
    success_source: str
    age_days: int
    _run: Run = field(repr=False, compare=False)
    _policy: Policy = field(repr=False, compare=False)

    def digest(self, max_tokens: int = 400, *, observations: bool = False) -> str:
        """Return what it did, redacted as at the outbox door.

        Args:
            max_tokens: The length, in tokens of about 3.5 characters.
            observations: Whether to tell what tools returned: words of strangers may be in it.
        """
        try:
            return digest(
                self._run,
                self._policy,
                age_days=self.age_days,
                max_tokens=max_tokens,
                observations=observations,
            )
        except RedactionError as error:
            return f"(what it did cannot be told: {error})"

    def as_message(self, max_tokens: int = 400, *, observations: bool = False) -> str:
        """Return the digest quoted as data, to be given to an agent as a message of a person."""
        told = self.digest(max_tokens, observations=observations)
        return quote(self._run, told, age_days=self.age_days)


class Memory:
    """The past runs of one file.

    Args:
        path: Of the file.
        embedder: Compares tasks; None compares words alone.
        policy: What is taken out of digests.
    """

    def __init__(self, path: Path, embedder: Embedder | None, policy: Policy) -> None:
        self._path = path
        self._embedder = embedder
        self._policy = policy

    def recall(
        self,
        task: str,
        *,
        k: int = 1,
        domain: str | None = None,
        owner: str | None = None,
        max_age_days: float | None = None,
        unconfirmed: bool = False,
    ) -> list[Recalled]:
        """Return the runs that fit a task, the best first; see `KnowledgePulse.recall`."""
        now_s = time.time()
        since = None if max_age_days is None else instant(now_s - max_age_days * _DAY_S)
        asked = Question(
            words_of(task),
            domain,
            None if owner is None else fingerprint(owner),
            since,
            unconfirmed,
        )
        if not (asked.words and self._path.exists()):
            return []
        with History.open(self._path) as history:
            ranked = self._ranked(task, history.candidates(asked, most=_MOST))
            return [self._recalled(history, one, now_s) for one in ranked[:k]]

    def _ranked(self, task: str, found: Sequence[Candidate]) -> "list[_Ranked]":
        if not found:
            return []
        words = np.array([one.words for one in found])
        vector = None if self._embedder is None else self._embedder.embed(task)
        cosines = np.array([_cosine(vector, one.vector) for one in found])
        order = np.argsort(-fused(words, cosines), kind="stable")
        return [_Ranked(found[at].seq, float(cosines[at])) for at in order]

    def _recalled(self, history: History, one: "_Ranked", now_s: float) -> Recalled:
        run = history.run(one.seq)
        source = run.success_source or "assumed"
        if source == "assumed" and run.confidence_source == "estimated":
            source = "estimated"
        return Recalled(
            trace_id=run.id,
            similarity=one.similarity,
            objective=run.objective,
            success=run.success,
            success_source=source,
            age_days=max(0, int((now_s - epoch_s(run.started_at)) // _DAY_S)),
            _run=replace(run, success_source=source),
            _policy=self._policy,
        )


class _Ranked(NamedTuple):
    seq: int
    similarity: float


def words_of(text: str) -> list[str]:
    """Return the different words of a text.

    >>> words_of("Cancel my flight, cancel it!")
    ['cancel', 'my', 'flight', 'it']
    """
    return [*dict.fromkeys(re.findall(r"\w+", text.lower()))]


def _cosine(vector: "np.ndarray | None", stored: bytes | None) -> float:
    if vector is None or stored is None or len(stored) != len(vector):
        return 0.0
    return float(np.frombuffer(stored, np.int8) @ vector) / 127
