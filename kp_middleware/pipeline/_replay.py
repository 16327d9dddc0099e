"""Past runs scored anew in memory, each against those before it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from kp_middleware.core.formula import Nearest, Score, Shape, rescore
from kp_middleware.embedding import (
    Embedder,
    Scorer,
    Vector,
    VectorCache,
    embed_many,
    embedded_text,
)
from kp_middleware.settings import Settings
from kp_middleware.storage import PastRun, Remembered
from kp_middleware.traces import ReasoningTrace

_ROUNDING: Final = 1e-6  # of a similarity: it depends on where in memory a vector lies


class Replayed(NamedTuple):
    """One run, and what it would be today.

    Attributes:
        run: As it was read.
        score: Today's; None where it was not asked for, or cannot be had.
        shape: Of its steps, where it has a score.
        vector: Float32, little-endian, where it had none by today's embedder and has one now.
    """

    run: PastRun
    score: Score | None = None
    shape: Shape | None = None
    vector: bytes | None = None

    def score_of(self, now: PastRun) -> Score | None:
        """Its score by how it ended as far as is known now: there may have been feedback since."""
        if self.score is None or self.shape is None:
            return None
        return rescore(self.score, self.shape, success=bool(now.success), confidence=now.confidence)


class Replay:
    """Takes runs in the order in which they were recorded, as if each had ended just then.

    Args:
        settings: Today's.
        embedder: Today's, loaded; None means novelty is 0.5.
        document: The ReasoningTrace at a place, as JSON.

    Attributes:
        unread: The ids of those whose document cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        embedder: Embedder | None,
        document: Callable[[int], str | None],
    ) -> None:
        self.unread: list[str] = []
        self._embedder = embedder
        self._name = None if embedder is None else embedder.name
        self._document = document
        self._now_ms = 0
        self._cache = VectorCache(
            settings.cache_size, ttl_ms=settings.cache_ttl_ms, clock=lambda: self._now_ms
        )
        self._scorer = Scorer(embedder=embedder, cache=self._cache, profiles=settings.profiles)

    def remember(self, before: Iterable[Remembered]) -> None:
        """What has been before the first run that is replayed, oldest first."""
        for key, vector, added_at_ms in before:
            self._now_ms = added_at_ms
            self._cache.add(_from_bytes(vector), key, embedder=self._name or "")

    def of(self, runs: Sequence[PastRun]) -> Iterator[Replayed]:
        """The next runs; what is not selected, or has left, is remembered and not scored.

        Raises:
            EmbedderError: If the model cannot be used.
        """
        traces = {run.seq: trace for run in runs if (trace := self._read(run)) is not None}
        unembedded = [traces[run.seq] for run in runs if run.seq in traces and not run.vector]
        vectors = self._embedded(unembedded)
        for run in runs:
            yield self._replayed(run, traces.get(run.seq), vectors)

    def _read(self, run: PastRun) -> ReasoningTrace | None:
        """The document of a run, where it is needed and can be read."""
        is_known = run.vector is not None or self._embedder is None
        if not run.is_selected or (run.has_left and is_known):
            return None
        try:
            return ReasoningTrace.model_validate_json(self._document(run.seq) or "")
        except ValueError:
            self.unread.append(run.id)
            return None

    def _embedded(self, traces: list[ReasoningTrace]) -> Iterator[Vector]:
        embedder = self._embedder
        if embedder is None:
            return iter(())
        return embed_many((embedded_text(trace, embedder) for trace in traces), embedder)

    def _replayed(
        self, run: PastRun, trace: ReasoningTrace | None, vectors: Iterator[Vector]
    ) -> Replayed:
        self._now_ms = run.ended_ms
        stored = None if run.vector is None else _from_bytes(run.vector)
        if trace is None:
            return self._remembered(run, stored)
        vector, new = stored, None
        if vector is None and self._embedder is not None:
            vector = self._cache.unit(next(vectors))
            new = vector.astype("<f4", copy=False).tobytes()
        shape = _shape(run, trace)
        score = self._scorer.compare(trace, vector, shape, known=self._gone(run))
        return Replayed(run, score, shape, new)

    def _remembered(self, run: PastRun, vector: Vector | None) -> Replayed:
        if vector is not None:
            self._cache.add(vector, run.id, embedder=self._name or "")
        return Replayed(run)

    def _gone(self, run: PastRun) -> Nearest | None:
        """What it was nearest to, measured as today, where that has been removed since."""
        if run.nearest_similarity is None or run.nearest_seq is not None:
            return None
        return Nearest("", run.nearest_similarity) if run.embedder == self._name else None


def is_as_before(run: PastRun, score: Score) -> bool:
    """Whether scoring a run anew has changed nothing that is stored."""
    signals, weights = score.signals, score.weights
    now = (
        *(score.value, signals.novelty),
        *(signals.complexity, signals.tool_diversity, signals.outcome_confidence),
        *(weights.complexity, weights.novelty),
        *(weights.tool_diversity, weights.outcome_confidence),
    )
    then = (run.score, run.novelty, *run.measures)
    return run.embedder == score.embedder and all(
        before is not None and abs(before - after) <= _ROUNDING
        for before, after in zip(then, now, strict=True)
    )


def settled(run: PastRun, score: Score) -> Score:
    """A score with the value that is stored, where they differ by rounding alone."""
    if run.score is None or not is_as_before(run, score):
        return score
    return replace(score, value=run.score)


def _shape(run: PastRun, trace: ReasoningTrace) -> Shape:
    """Of all its steps, where the document holds only a part of them."""
    types = trace.shape.types
    return Shape(steps=run.steps, types=types, tools=run.tools, recoveries=run.recoveries)


def _from_bytes(vector: bytes) -> Vector:
    return np.frombuffer(vector, dtype="<f4")
