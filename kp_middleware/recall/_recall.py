"""What is recalled of the past for a task at hand."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from kp_middleware.asked import own_part, without_recalled
from kp_middleware.embedding import Embedder, MiniLMEmbedder
from kp_middleware.errors import EmbedderError, TraceNotFoundError
from kp_middleware.instants import epoch_s, instant
from kp_middleware.privacy import Policy
from kp_middleware.recall._digest import clean_parts, digest, is_form, quote, warm_up
from kp_middleware.recall._ranking import (
    bar,
    cosines,
    fit,
    may_be_form,
    order,
    rating,
    replaced,
    telling_of,
    words_of,
)
from kp_middleware.runs import fingerprint
from kp_middleware.storage import Candidate, History, Question, RecallTable, Run, no_fork

_MOST: Final = 200  # runs that are ranked
_COMPARED: Final = 24  # of which each word is compared
_DAY_S: Final = 24 * 3600
_WAIT_S: Final = 0.05  # for a lock on the file: the agent waits meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A run that succeeded at a task like the one at hand.

    Attributes:
        trace_id: The id of its trace.
        similarity: The cosine of what people said there and the task, from -1 to 1; 0 without a
            model.
        success: True; with ``success_source`` ``assumed`` nobody confirmed it.
        success_source: Who said so: ``feedback``, ``verdict``, ``extracted``, ``said`` or
            ``estimated``.
        age_days: How many days ago it began.
    """

    trace_id: str
    similarity: float
    success: bool
    success_source: str
    age_days: int
    _run: Run = field(repr=False, compare=False)
    _policy: Policy = field(repr=False, compare=False)

    @property
    def objective(self) -> str:
        """What it was asked, redacted as at the outbox door."""
        return str(clean_parts(self._run, self._policy)["objective"])

    def digest(self, max_tokens: int = 400, *, observations: bool = False) -> str:
        """Return what it did, redacted as at the outbox door.

        Args:
            max_tokens: The length, in tokens of about 3.5 characters.
            observations: Whether to tell what tools returned: words of strangers may be in it.
        """
        options: Any = {"max_tokens": max_tokens, "observations": observations}
        return digest(self._run, self._policy, age_days=self.age_days, **options)

    def as_message(self, max_tokens: int = 400, *, observations: bool = False) -> str:
        """Return the digest quoted as data, to be given to an agent as a message of a person."""
        options: Any = {"max_tokens": max_tokens, "observations": observations}
        return quote(self._run, self._policy, age_days=self.age_days, **options)


def recalled(run: Run, policy: Policy, similarity: float = 0.0) -> Recalled:
    """Return a run of the file as one that is recalled."""
    source = run.success_source or "assumed"
    if source == "assumed" and run.confidence_source == "estimated":
        source = "estimated"
    return Recalled(
        trace_id=run.id,
        similarity=similarity,
        success=run.success,
        success_source=source,
        age_days=max(0, int((time.time() - epoch_s(run.started_at)) // _DAY_S)),
        _run=replace(run, success_source=source),
        _policy=policy,
    )


class Found(NamedTuple):
    """A run that is like a task: how well it fits, and the bar that it must reach for it."""

    seq: int
    cosine: float  # of what people said and the task; NaN without vectors
    shared: tuple[str, ...]
    told: float
    bar: float = math.inf

    @property
    def similarity(self) -> float:
        """The cosine for people, from -1 to 1; 0 without vectors."""
        return 0.0 if math.isnan(self.cosine) else max(-1.0, min(self.cosine, 1.0))

    @property
    def fit(self) -> float:
        """How well it fits: how telling the shared words are, by the cosine."""
        return fit(self.told, self.cosine)

    @property
    def fits(self) -> bool:
        """Whether it is recalled."""
        return self.fit >= self.bar


class Memory:
    """The past runs of one file; without an embedder, words alone tell how like a task they are."""

    def __init__(self, path: Path, embedder: Embedder | None, policy: Policy) -> None:
        self._path = path
        self._embedder = embedder
        self._policy = policy

    def warm_up(self) -> None:
        """Load what the first recall and the first digest need: it takes a second or two."""
        self._cosines("task", [])
        warm_up(self._policy)

    def recall(self, task: str, allowed: Question, *, k: int = 1) -> list[Recalled]:
        """Return the runs that fit a task, the best first. Raises DatabaseError, without a wait."""
        return [run for _, run in self._nearest(task, allowed, k, only_fitting=True)]

    def nearest(self, task: str, allowed: Question, *, k: int) -> list[tuple[Found, Recalled]]:
        """Return the runs that are most like a task, with what tells whether they fit."""
        return self._nearest(task, allowed, k, only_fitting=False)

    def _nearest(
        self, task: str, allowed: Question, k: int, *, only_fitting: bool
    ) -> list[tuple[Found, Recalled]]:
        if not self._path.exists():
            return []
        with no_fork(), History.open(self._path, wait_s=_WAIT_S) as history:
            return [
                (one, recalled(history.run(one.seq), self._policy, one.similarity))
                for one in self.look(history, task, allowed, k=k)
                if one.fits or not only_fitting
            ]

    def one(self, trace_id: str, *, owner: str | None) -> Recalled | None:
        """Return a run by the beginning of its id; None if there is none, or it is another's."""
        if trace_id.startswith("@"):
            return None
        with History.open(self._path) as history:
            try:
                run = history.run(history.find(trace_id))
            except TraceNotFoundError:
                return None
            theirs = history.has_owners() if owner is None else run.owner != fingerprint(owner)
        return None if theirs else recalled(run, self._policy)

    def has_a_success(self) -> bool:
        """Return whether any run of the file is known or estimated to have succeeded."""
        if not self._path.exists():
            return False
        with History.open(self._path, wait_s=_WAIT_S) as history:
            return history.asked().has_a_success()

    def look(self, history: History, task: str, allowed: Question, *, k: int) -> list[Found]:
        """Return the runs that are most like a task, whether they fit or not."""
        table = history.asked()
        task = own_part(without_recalled(task), table.latest_objectives())
        shares = table.shares(words_of(task))
        candidates = table.candidates(shares, allowed, most=_MOST)
        if not candidates:
            return []
        near = self._cosines(task, candidates)
        nearest = order([one.words for one in candidates], near)
        nearest = nearest[: max(k, _COMPARED)]
        said = table.said([candidates[at].seq for at in nearest])
        found = []
        for at in nearest:
            seq = candidates[at].seq
            theirs = {*words_of(said[seq])}
            shared = tuple(word for word in shares if word in theirs)
            found.append(Found(seq, near[at], shared, telling_of(shares, shared)))
        found.sort(key=lambda one: rating(one.told, one.cosine), reverse=True)
        return _barred(history, found, _others(table, task, said), k)[:k]

    def _cosines(self, task: str, found: Sequence[Candidate]) -> list[float]:
        """Return how like a task each run is; without a model that is here, NaN."""
        nothing = [math.nan] * len(found)
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


def _others(table: RecallTable, task: str, said: Mapping[int, str]) -> set[int]:
    """Return the runs whose wording is that of a task, with a detail of another one in it."""
    details = {seq: words for seq, text in said.items() if (words := replaced(task, text))}
    common = table.common([word for words in details.values() for word in words])
    return {seq for seq, words in details.items() if not common.isdisjoint(words)}


def _barred(history: History, found: Sequence[Found], others: set[int], k: int) -> list[Found]:
    """Return the first runs with the bar that each must reach, those of other tasks last."""
    fits = sorted((one.fit for one in found), reverse=True)
    ours = [one.seq for one in found if one.seq not in others][:k]
    theirs = [one.seq for one in found if one.seq in others][:k]
    barred = []
    for one in found:
        if one.seq in ours + theirs:
            form = may_be_form(one.cosine, one.fit) and is_form(history.run(one.seq))
            reach = bar(one.cosine, fits, is_form=form, is_other=one.seq in others)
            barred.append(one._replace(bar=reach))
    return sorted(barred, key=lambda one: one.seq in others and not one.fits)
