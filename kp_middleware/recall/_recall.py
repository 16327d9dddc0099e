"""Recall of earlier runs for a new task."""

import math
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kp_middleware.embedding import Embedder, MiniLMEmbedder, Vector
from kp_middleware.errors import EmbedderError, RedactionError, TraceNotFoundError
from kp_middleware.instants import epoch_s, instant
from kp_middleware.privacy import Policy, redact_jsonable
from kp_middleware.recall._digest import clean_parts, digest, is_form, quote
from kp_middleware.recall_text import (
    first_line,
    without_recalled,
    without_shared_prompt,
    word_weight,
)
from kp_middleware.runs import fingerprint
from kp_middleware.storage import (
    MIN_P,
    History,
    RecallCandidate,
    RecallFilter,
    Run,
    fork_lock,
)

_WORDS_FOR_COSINE: Final = 0.3
_DAY_S: Final = 24 * 3600
_WAIT_S: Final = 0.05  # for a lock on the file, while the agent waits

_NEAR: Final = (0.81, 0.5)
"""The cosine of the same task in other words, and the `fit` that it then needs."""

_ALIKE: Final = (0.66, 0.5)
"""The same for a similar task that may be another one: words must tell them apart."""

_FORM: Final = (0.5, 0.45)
"""The same for a run done the same way with other values."""

_CLEARLY: Final = 1.7
"""The factor by which a run must fit better than others if words tell it apart."""

_WORDS_ALONE: Final = 0.8
"""The minimum fit without vectors."""

_WORDS_OF_TASK: Final = 3
"""The minimum number of words of a task that is recalled if asked in the same words."""

_SAME: Final = 3
"""The maximum number of runs of the same task; the next best run is of another."""

_REPLACED: Final = 2
"""The maximum number of words in which tasks of the same wording differ."""

_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A past run that succeeded at a similar task.

    Attributes:
        trace_id: The id of its trace.
        similarity: The cosine of its user text and the task, -1 to 1; 0 without a model.
        success: True; unconfirmed if ``success_source`` is ``assumed``.
        success_source: The source: ``feedback``, ``verdict``, ``extracted``, ``said`` or
            ``estimated``.
        age_days: The days since it began.
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
        """The task of the run, redacted as for sending."""
        return str(clean_parts(self._run, self._policy)["objective"])

    def digest(self, max_tokens: int = 400, *, observations: bool = False) -> str:
        """Return a digest of the run, redacted as for sending.

        Args:
            max_tokens: The length, in tokens of about 3.5 characters.
            observations: Whether to include tool results, which may contain untrusted text.
        """
        clean = clean_parts(self._run, self._policy, observations=observations)
        return digest(self._run, clean, self.age_days, max_tokens)

    def as_message(self, max_tokens: int = 400, *, observations: bool = False) -> str:
        """Return the digest quoted as data, to pass to an agent as a user message."""
        clean = clean_parts(self._run, self._policy, observations=observations)
        return quote(self._run, clean, self.age_days, max_tokens)


def recalled(run: Run, policy: Policy, similarity: float = 0.0) -> Recalled:
    source, p = run.success_source or "assumed", getattr(run.scoring, "p_success", None)
    if source == "assumed" and (p or 0.0) >= MIN_P:
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


class Match(NamedTuple):
    """A run similar to a task, with its fit and the fit it needs."""

    seq: int
    cosine: float  # of its user text and the task; NaN without vectors
    shared: tuple[str, ...]
    word_score: float
    bar: float = math.inf

    @property
    def similarity(self) -> float:
        return 0.0 if math.isnan(self.cosine) else max(-1.0, min(self.cosine, 1.0))

    @property
    def fit(self) -> float:
        return self.word_score * (1 if math.isnan(self.cosine) else max(0.0, self.cosine))

    @property
    def fits(self) -> bool:
        return self.fit >= self.bar


class Memory:
    """The past runs of one file; without an embedder, they are compared by words alone."""

    def __init__(self, path: Path, embedder: Embedder | None, policy: Policy) -> None:
        self._path = path
        self._embedder = embedder
        self._policy = policy

    def warm_up(self) -> None:
        """Load the dependencies of the first recall and digest, which takes a second or two."""
        self._cosines("task", [])
        with suppress(RedactionError):
            redact_jsonable("task", level="aggregated", policy=self._policy)

    def recall(self, task: str, allowed: RecallFilter, *, k: int = 1) -> list[Recalled]:
        """Return the runs that fit a task, best first. Raises DatabaseError instead of waiting."""
        return [run for _, run in self.nearest(task, allowed, k=k, only_fitting=True)]

    def nearest(
        self, task: str, allowed: RecallFilter, *, k: int, only_fitting: bool = False
    ) -> list[tuple[Match, Recalled]]:
        """Return the runs most similar to a task, with their matches."""
        if not self._path.exists():
            return []
        with fork_lock, History.open(self._path, wait_s=_WAIT_S) as history:
            return [
                (match, recalled(history.run(match.seq), self._policy, match.similarity))
                for match in self.matches(history, task, allowed, k=k)
                if match.fits or not only_fitting
            ]

    def find(self, trace_id: str, *, owner: str | None) -> Recalled | None:
        """Return a run by a prefix of its id; None if there is none, or another owner has it."""
        if trace_id.startswith("@"):
            return None
        with History.open(self._path) as history:
            try:
                run = history.run(history.find(trace_id))
            except TraceNotFoundError:
                return None
            theirs = history.has_owners() if owner is None else run.owner != fingerprint(owner)
        return None if theirs else recalled(run, self._policy)

    def has_successes(self) -> bool:
        """Return True if any run is confirmed or confidently estimated to have succeeded."""
        if not self._path.exists():
            return False
        with History.open(self._path, wait_s=_WAIT_S) as history:
            return history.recall_table().has_successes()

    def matches(self, history: History, task: str, allowed: RecallFilter, *, k: int) -> list[Match]:
        """Return the runs most similar to a task, whether they fit or not."""
        table = history.recall_table()
        task = without_shared_prompt(without_recalled(task), table.latest_objectives())
        asked = _WORD.findall(task.lower())
        shares = table.word_frequencies([*dict.fromkeys(asked)])
        candidates = table.candidates(shares, allowed, limit=200)  # ranked runs
        if not candidates:
            return []
        near = self._cosines(task, candidates)
        best = _order([run.words for run in candidates], near)
        nearest = best[: max(k, 24)]  # runs compared word by word
        texts = table.user_texts([candidates[at].seq for at in nearest])
        found = []
        for at in nearest:
            theirs = _WORD.findall(texts[seq := candidates[at].seq].lower())
            is_same = theirs == asked and len(asked) >= _WORDS_OF_TASK
            shared = tuple(filter({*theirs}.__contains__, shares))
            # a mean over all words of the task: a vague task fits nothing
            weight = sum(word_weight(shares[word]) for word in shared) / max(1, len(shares))
            found.append(Match(seq, near[at], shared, weight, 0.0 if is_same else math.inf))
        found.sort(key=_rating, reverse=True)
        # runs with the wording of the task, but another detail
        details = {seq: words for seq, text in texts.items() if (words := _replaced(task, text))}
        common = table.common_words([word for words in details.values() for word in words])
        others = {seq for seq, words in details.items() if not common.isdisjoint(words)}
        return _with_bars(history, found, others, k)[:k]

    def _cosines(self, task: str, found: Sequence[RecallCandidate]) -> list[float]:
        """Return the cosine of each run and the task; NaN without a loaded model."""
        if (embedder := self._embedder) is not None:
            with suppress(EmbedderError):
                if isinstance(embedder, MiniLMEmbedder):
                    embedder.load_without_network()
                name, vector = embedder.name, embedder.embed(task)
                stored = [run.vector if run.embedder == name else None for run in found]
                return _cosines(vector, stored)
        return [math.nan] * len(found)


def question(
    *,
    domain: str | None = None,
    owner: str | None = None,
    max_age_days: float | None = None,
    unconfirmed: bool = False,
) -> RecallFilter:
    since = None if max_age_days is None else instant(time.time() - max_age_days * _DAY_S)
    return RecallFilter(domain, None if owner is None else fingerprint(owner), since, unconfirmed)


def _cosines(vector: Vector, stored: Sequence[bytes | None]) -> list[float]:
    """Return the cosine with each packed vector; NaN where there is none of that length."""
    there = {at: row for at, row in enumerate(stored) if row and len(row) == len(vector)}
    matrix = np.frombuffer(b"".join(there.values()), np.int8).reshape(-1, len(vector))
    found = dict(zip(there, (matrix.astype(np.float32) @ vector / 127).tolist(), strict=True))
    return [found.get(at, math.nan) for at in range(len(stored))]


def _order(words: Sequence[float], cosines: Sequence[float]) -> list[int]:
    total = np.zeros(len(words))
    for scores in (np.asarray(words), np.nan_to_num(np.asarray(cosines), nan=-1)):
        ranks = np.empty(len(words))  # 0 for the highest
        ranks[np.argsort(-scores, kind="stable")] = np.arange(len(words))
        total += np.sqrt(ranks)
    return [int(at) for at in np.argsort(total, kind="stable")]


def _rating(match: Match) -> float:
    if math.isnan(match.cosine):
        return match.word_score
    return match.cosine + _WORDS_FOR_COSINE * min(match.word_score, 1.0)


def _with_bars(history: History, found: Sequence[Match], others: set[int], k: int) -> list[Match]:
    """Return the first runs with their bars, those of other tasks last."""
    fits = sorted((match.fit for match in found), reverse=True)
    ours = [match for match in found if match.seq not in others][:k]
    theirs = [match for match in found if match.seq in others][:k]
    barred = []
    for match in (match for match in found if match in ours + theirs):
        # whether it is a form depends on its calls
        may_be_form = match.cosine >= _FORM[0] and match.fit >= _FORM[1]
        form = may_be_form and is_form(history.run(match.seq))
        bar = _bar(match.cosine, fits, is_form=form, is_other=match.seq in others)
        barred.append(match._replace(bar=min(match.bar, bar)))
    return sorted(barred, key=lambda match: match.seq in others and not match.fits)


def _replaced(task: str, user_text: str) -> list[str]:
    """Return the words in which a run differs from a task of the same wording.

    If other runs have them, too, it was another task: they are a city, a name, a service.

    >>> _replaced("Restart the billing service.", "Restart the search service.")
    ['search']
    >>> _replaced("Restart the billing service.", "Billing hangs: please restart it.")
    []
    """
    ours, theirs = (_WORD.findall(first_line(text).lower()) for text in (task, user_text))
    if abs(len(ours) - len(theirs)) >= _REPLACED:
        return []
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    same = {at for block in blocks for at in range(block.b, block.b + block.size)}
    fewer, more = sorted(len(words) - len(same) for words in (ours, theirs))
    if not 1 <= fewer <= more <= min(_REPLACED, len(same) // 2):
        return []
    return [word for at, word in enumerate(theirs) if at not in same]


def _bar(
    cosine: float, fits: Sequence[float], *, is_form: bool = False, is_other: bool = False
) -> float:
    """Return the fit that a run needs; infinite if it is too far from the task.

    Tasks of one template share most words and are confused unless a run is near and none fits
    clearly better, fits clearly better than the others (``fits``, the best first), or is a form
    to fill in. A run of another task (``is_other``) can only be a form.

    >>> near, alike, far = 0.9, 0.7, 0.6
    >>> many, few = [0.85, 0.8, 0.8, 0.8], [0.9, 0.8, 0.4, 0.2]
    >>> _bar(near, many), _bar(near, many, is_other=True), _bar(far, few)
    (0.5, inf, inf)
    >>> _bar(alike, few), _bar(far, many, is_form=True, is_other=True)
    (0.5, 0.45)
    """
    bars = [_FORM[1]] if is_form and cosine >= _FORM[0] else []
    clearly = _CLEARLY * (fits[_SAME] if len(fits) > _SAME else 0.0)
    if not is_other:
        if math.isnan(cosine):
            bars.append(max(_WORDS_ALONE, clearly))
        if cosine >= _NEAR[0]:
            bars.append(max(_NEAR[1], fits[0] / _CLEARLY))
        if cosine >= _ALIKE[0]:
            bars.append(max(_ALIKE[1], clearly))
    return min(bars, default=math.inf)
