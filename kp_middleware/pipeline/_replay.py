"""Take stored runs in the order of recording, as if each had ended just then."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from kp_middleware.core.evaluation import Run
from kp_middleware.core.formula import Nearest, Weights
from kp_middleware.embedding import (
    Embedder,
    Scorer,
    Vector,
    VectorCache,
    embed_many,
    embedded_text,
)
from kp_middleware.estimate import Features, features
from kp_middleware.pipeline._estimating import kind_of
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    Kind,
    PastRun,
    Remembered,
)
from kp_middleware.traces import ReasoningTrace

ROUNDING: Final = 1e-6  # of a similarity: it depends on where in memory a vector lies


class Replayed(NamedTuple):
    """One run, and what it would be today.

    ``today`` and ``seen`` are None where they were not asked for, or cannot be had; ``vector`` is
    set where it had none by today's embedder.
    """

    run: PastRun
    today: Run | None = None
    vector: bytes | None = None
    seen: "Seen | None" = None


class Seen(NamedTuple):
    """What an estimate reads of a run."""

    kind: Kind
    features: Features
    vector: Vector | None


class Replay:
    """Takes runs in the order of recording; ``unread`` are the ids of those that cannot be read."""

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
        """Fill the cache with the vectors from before the first replayed run, oldest first."""
        for key, vector, added_at_ms in before:
            self._now_ms = added_at_ms
            self._cache.add(_from_bytes(vector), key, embedder=self._name or "")

    def of(self, runs: Sequence[PastRun]) -> Iterator[Replayed]:
        """Replay the next runs; those not selected are only remembered."""
        traces = {run.seq: trace for run in runs if (trace := self._read(run)) is not None}
        unembedded = [traces[run.seq] for run in runs if run.seq in traces and not run.vector]
        vectors = self._embedded(unembedded)
        for run in runs:
            yield self._replayed(run, traces.get(run.seq), vectors)

    def _read(self, run: PastRun) -> ReasoningTrace | None:
        """Return the document of a run, or None if it is not needed or cannot be read."""
        if not run.is_selected:
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
        shape = replace(run.shape, types=trace.shape.types)
        today = self._scorer.compare(trace, vector, shape, known=self._gone(run))
        seen = Seen(kind_of(trace), features(trace), vector)
        return Replayed(run, _settled(run, today), new, seen)

    def weights(self, domain: str) -> Weights:
        """Return today's weights of a domain."""
        return self._scorer.weights(domain)

    def _remembered(self, run: PastRun, vector: Vector | None) -> Replayed:
        if vector is not None:
            self._cache.add(vector, run.id, embedder=self._name or "")
        return Replayed(run)

    def _gone(self, run: PastRun) -> Nearest | None:
        """Return the stored nearest run if it is not in the file, or None."""
        if run.score is None or run.nearest_seq is not None or run.score.embedder != self._name:
            return None
        return run.score.nearest


def _settled(run: PastRun, today: Run) -> Run:
    """Return the run with the similarity that is stored, where they differ by rounding alone."""
    stored = None if run.score is None else run.score.nearest
    nearest = today.nearest
    if stored is None or nearest is None or abs(nearest.similarity - stored.similarity) > ROUNDING:
        return today
    return replace(today, nearest=nearest._replace(similarity=stored.similarity))


def _from_bytes(vector: bytes) -> Vector:
    return np.frombuffer(vector, dtype="<f4")
