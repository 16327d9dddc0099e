"""What is recalled of the past for a task at hand."""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kp_middleware.asked import without_recalled
from kp_middleware.embedding import Embedder, MiniLMEmbedder
from kp_middleware.errors import EmbedderError, RedactionError
from kp_middleware.instants import epoch_s, instant
from kp_middleware.privacy import Policy
from kp_middleware.recall._digest import digest, quote
from kp_middleware.recall._ranking import BAR, BAR_OF_WORDS, cosines, fit, order
from kp_middleware.runs import fingerprint
from kp_middleware.storage import Candidate, History, Question, Run, no_fork

_MOST: Final = 200  # runs that are ranked
_DAY_S: Final = 24 * 3600
_WAIT_S: Final = 0.05  # for a lock on the file: the agent waits meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A run that succeeded at a task like the one at hand.

    Attributes:
        trace_id: The id of its trace.
        similarity: The cosine of what people said there and the task, from -1 to 1; 0 without a
            model.
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


class Found(NamedTuple):
    """A run that is like a task, and whether it is recalled.

    Attributes:
        seq: The ``seq`` of its trace.
        words: bm25 of what people said.
        cosine: Of the beginnings of what people said; NaN without vectors.
        shared: The words that it shares with the task.
        fit: How telling those are, by the cosine.
        bar: What the fit must reach.
    """

    seq: int
    words: float
    cosine: float
    shared: tuple[str, ...]
    fit: float
    bar: float

    @property
    def fits(self) -> bool:
        """Whether it is recalled."""
        return self.fit >= self.bar


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

    def recall(self, task: str, allowed: Question, *, k: int = 1) -> list[Recalled]:
        """Return the runs that fit a task, the best first.

        Raises:
            DatabaseError: If the file cannot be read now; it is not waited for.
        """
        return [run for found, run in self.nearest(task, allowed, k=k) if found.fits]

    def nearest(self, task: str, allowed: Question, *, k: int) -> list[tuple[Found, Recalled]]:
        """Return the runs that are most like a task, with what tells whether they fit.

        Raises:
            DatabaseError: If the file cannot be read now; it is not waited for.
        """
        if not self._path.exists():
            return []
        with no_fork(), History.open(self._path, wait_s=_WAIT_S) as history:
            found = self.look(history, task, allowed, k=k)
            return [(one, self._recalled(history, one)) for one in found]

    def look(self, history: History, task: str, allowed: Question, *, k: int) -> list[Found]:
        """Return the runs that are most like a task, whether they fit or not."""
        table, task = history.asked(), without_recalled(task)
        shares = table.shares(words_of(task))
        candidates = table.candidates(shares, allowed, most=_MOST)
        if not candidates:
            return []
        cosine = self._cosines(task, candidates)
        found = []
        for at in order([one.words for one in candidates], cosine)[:k]:
            one, near = candidates[at], float(cosine[at])
            shared = table.shared([*shares], one.seq)
            bar = BAR_OF_WORDS if math.isnan(near) else BAR
            told = fit(shares, shared, near)
            found.append(Found(one.seq, one.words, near, tuple(shared), told, bar))
        return found

    def _recalled(self, history: History, found: Found) -> Recalled:
        run = history.run(found.seq)
        source = run.success_source or "assumed"
        if source == "assumed" and run.confidence_source == "estimated":
            source = "estimated"
        age_s = time.time() - epoch_s(run.started_at)
        return Recalled(
            trace_id=run.id,
            similarity=0.0 if math.isnan(found.cosine) else found.cosine,
            objective=run.objective,
            success=run.success,
            success_source=source,
            age_days=max(0, int(age_s // _DAY_S)),
            _run=replace(run, success_source=source),
            _policy=self._policy,
        )

    def _cosines(self, task: str, found: Sequence[Candidate]) -> NDArray[np.float64]:
        """Return the cosine of each run with a task; without a model that is here, NaN."""
        nothing = np.full(len(found), np.nan)
        if self._embedder is None:
            return nothing
        try:
            if isinstance(self._embedder, MiniLMEmbedder):
                self._embedder.load_without_network()
            name, vector = self._embedder.name, self._embedder.embed(task)
        except EmbedderError:
            return nothing
        return cosines(vector, [one.vector if one.embedder == name else None for one in found])


def question(
    *,
    domain: str | None = None,
    owner: str | None = None,
    max_age_days: float | None = None,
    unconfirmed: bool = False,
) -> Question:
    """Return which runs may be recalled."""
    since = None if max_age_days is None else instant(time.time() - max_age_days * _DAY_S)
    return Question(domain, None if owner is None else fingerprint(owner), since, unconfirmed)


def words_of(text: str) -> list[str]:
    """Return the different words of a text.

    >>> words_of("Cancel my flight, cancel it!")
    ['cancel', 'my', 'flight', 'it']
    """
    return [*dict.fromkeys(re.findall(r"[^\W_]+", text.lower()))]
