"""The scorer of traces, which compares each with those seen before."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from kp_middleware.core.evaluation import Ending, RunFacts, score_run
from kp_middleware.core.formula import DEFAULT_PROFILE, PROFILES, Nearest, Score, Shape, Weights
from kp_middleware.embedding._index import VectorCache
from kp_middleware.embedding._model import (
    DEFAULT_EMBEDDER,
    Embedder,
    MiniLMEmbedder,
    Vector,
    embedded_text,
)
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.recall_text import LONG_CHARS
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")


class Embedded(NamedTuple):
    """The unit vectors of a run and of the user's first words, or None."""

    run: Vector | None = None
    task: Vector | None = None


class Scorer:
    """A thread-safe scorer that compares each trace with those scored before it.

    Args:
        embedder: Measures novelty; None means novelty is 0.5.
        cache: The vectors of earlier traces; None means a new cache in memory.
        profiles: Weights by domain, which extend or replace the protocol's; ``"default"`` is the
            profile of all other domains.

    Raises:
        ValueError: If a profile's weights do not sum to 1.

    >>> from kp_middleware.traces import Step
    >>> steps = [Step(step_id=0, type="thought", content="Paris")]
    >>> trace = ReasoningTrace.of("What is the capital of France?", steps)
    >>> score = Scorer().score(trace)
    >>> score.value, score.rules
    (0.1, ('single_thought',))
    """

    def __init__(
        self,
        *,
        embedder: Embedder | None = None,
        cache: VectorCache | None = None,
        profiles: Mapping[str, Weights | Mapping[str, float]] | None = None,
    ) -> None:
        self._embedder = embedder
        self._cache = VectorCache() if cache is None else cache
        self._profiles = dict(PROFILES)
        for name, own in (profiles or {}).items():
            self._profiles[name] = own if isinstance(own, Weights) else Weights(**own)
        self._warned: set[str] = set()

    def score(self, trace: ReasoningTrace, *, vector: Vector | None = None) -> Score:
        """Score one trace, then remember it; without its ``vector``, embed it."""
        if vector is None:
            try:
                vector = self.embed_with(trace, "").run
            except EmbedderNotReadyError as error:
                self._warn_once("novelty is 0.5", error)
        run = self.compare(trace, vector, trace.shape)
        return score_run(run, self.weights(trace.metadata.task_domain))

    def compare(
        self,
        trace: ReasoningTrace,
        vector: Vector | None,
        shape: Shape,
        *,
        known: Nearest | None = None,
    ) -> RunFacts:
        """Compare one trace with those before it, then remember it, without embedding it.

        ``known`` is an earlier trace that the cache no longer has.
        """
        nearest, embedder = known, None
        if vector is not None:
            embedder = None if self._embedder is None else self._embedder.name
            found = self._cache.nearest_then_add(vector, trace.id, embedder=embedder or "")
            if found is not None and (known is None or found.similarity >= known.similarity):
                nearest = Nearest(found.key or "", found.similarity)
        ending = Ending(trace.metadata.success, trace.outcome.confidence, "said", "said")
        return RunFacts(shape, ending, nearest, embedder)

    def embed_with(self, trace: ReasoningTrace, said: str) -> Embedded:
        """Return the embeddings of a trace and of the user's words in it.

        Without a model, warn once.

        Raises:
            EmbedderNotReadyError: If the model is being downloaded; try again later.
            ValueError: If the embedder has no name, or returns a vector that cannot be compared.
        """
        embedder, task = self._embedder, None
        if embedder is None:
            return Embedded()
        try:
            if not embedder.name:
                raise ValueError("an embedder needs a name, which distinguishes its vectors")
            text = embedded_text(trace, embedder)
            if isinstance(embedder, MiniLMEmbedder):
                run, task = embedder.embed_with(text, said)
                return Embedded(self._cache.unit(run), task)
            run = self._cache.unit(embedder.embed(text))
        except EmbedderUnavailableError as error:
            self._warn_once("novelty is 0.5", error)
            return Embedded()
        try:
            if said.strip():
                task = self._cache.unit(embedder.embed(said[:LONG_CHARS]))
        except Exception as error:  # noqa: BLE001 - a user's embedder may raise anything
            self._warn_once("the embedder failed: recall compares words only", error)
        return Embedded(run, task)

    def weights(self, domain: str) -> Weights:
        """Return the weights of the signals in a domain."""
        return self._profiles.get(domain, self._profiles[DEFAULT_PROFILE])

    def _warn_once(self, words: str, error: Exception) -> None:
        if words not in self._warned:
            self._warned.add(words)
            logger.warning("%s: %s", words, error)


_scorer: Final = Scorer(embedder=DEFAULT_EMBEDDER)  # nothing is loaded or allocated yet


def evaluate_value(trace: ReasoningTrace) -> float:
    """Return how much a trace is worth sharing, 0 to 1, compared with those evaluated before.

    The first call loads the embedding model; without one, novelty is 0.5.
    """
    return _scorer.score(trace).value


async def aevaluate_value(trace: ReasoningTrace) -> float:
    """Run `evaluate_value` in a thread, without blocking the event loop."""
    return await asyncio.to_thread(evaluate_value, trace)
