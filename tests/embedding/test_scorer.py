import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from traces import trace

from kp_middleware import Scorer, VectorCache, aevaluate_value, evaluate_value
from kp_middleware.core.formula import PROFILES, Weights
from kp_middleware.embedding import embedded_text
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.testing import StandInEmbedder


class RefusingEmbedder:
    """Raises what it is told to."""

    name = "refusing"

    def __init__(self, error):
        self.error = error

    def embed(self, _text, /):
        raise self.error


def test_the_first_trace_is_half_novel_and_its_repeat_not_at_all():
    scorer = Scorer(embedder=StandInEmbedder())

    first, repeat = scorer.score(trace()), scorer.score(trace())

    assert (first.signals.novelty, first.nearest) == (0.5, None)
    assert repeat.signals.novelty == pytest.approx(0, abs=1e-6)


def test_the_nearest_trace_is_named_with_its_similarity():
    scorer = Scorer(embedder=StandInEmbedder())
    far = trace(objective="book flights to Rome")
    near = trace(objective="sort a list")
    scorer.score(far)
    scorer.score(near)

    score = scorer.score(trace(objective="sort a long list"))

    assert score.nearest.id == near.id
    assert score.signals.novelty == pytest.approx(1 - score.nearest.similarity)


def test_without_an_embedder_novelty_is_half_and_the_score_says_so():
    score = Scorer().score(trace())

    assert (score.signals.novelty, score.embedder, score.nearest) == (0.5, None, None)


@pytest.mark.parametrize(
    ("domain", "profile"),
    [
        *(("finance", "finance"), ("Finance", "default"), ("constructor", "default")),
        *(("law", "law"), ("code", "code")),
    ],
)
def test_the_score_carries_the_weights_of_the_domain(domain, profile):
    law = {"complexity": 0, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 1}
    profiles = {**PROFILES, "law": Weights(**law)}

    score = Scorer(profiles={"law": law}).score(trace(domain=domain))

    assert score.weights == profiles[profile]


def test_a_missing_model_is_logged_once_and_scoring_goes_on(caplog):
    scorer = Scorer(embedder=RefusingEmbedder(EmbedderUnavailableError("install the weights")))

    with caplog.at_level(logging.WARNING):
        scores = [scorer.score(trace()), scorer.score(trace())]

    assert [score.embedder for score in scores] == [None, None]
    assert [record.message for record in caplog.records] == ["novelty is 0.5: install the weights"]


def test_a_model_on_its_way_counts_as_missing_and_embedding_alone_raises():
    scorer = Scorer(embedder=RefusingEmbedder(EmbedderNotReadyError("downloading")))

    assert scorer.score(trace()).signals.novelty == 0.5
    with pytest.raises(EmbedderNotReadyError):
        scorer.embed_with(trace(), "")


def test_a_vector_that_is_given_is_not_made_again():
    embedder = StandInEmbedder()
    scorer = Scorer(embedder=embedder)

    scorer.score(trace(), vector=np.eye(384, dtype=np.float32)[0])

    assert embedder.asked == []


def test_an_embedder_that_chooses_what_it_reads_is_asked():
    embedder = StandInEmbedder()
    embedder.text_of = lambda recorded: recorded.task.objective

    Scorer(embedder=embedder).score(trace(objective="sort a list"))

    assert embedder.asked == ["sort a list"]


def test_vectors_of_different_embedders_never_meet():
    cache, other = VectorCache(), StandInEmbedder()
    other.name = "other"
    Scorer(embedder=StandInEmbedder(), cache=cache).score(trace())

    score = Scorer(embedder=other, cache=cache).score(trace())

    assert (score.signals.novelty, score.embedder) == (0.5, "other")


def test_of_equal_traces_scored_at_once_exactly_one_is_novel():
    scorer = Scorer(embedder=StandInEmbedder())

    with ThreadPoolExecutor(8) as pool:
        scores = [*pool.map(scorer.score, [trace()] * 64)]

    assert sum(score.signals.novelty > 0.1 for score in scores) == 1


@pytest.mark.model
def test_evaluating_remembers_within_the_process():
    unheard_of = trace(objective="how do cuttlefish see polarised light through their w pupil")

    first = evaluate_value(unheard_of)
    repeat = asyncio.run(aevaluate_value(unheard_of))

    assert repeat < first


def test_a_cache_that_was_filled_by_hand_is_compared_with():
    cache = VectorCache()
    embedder = StandInEmbedder()
    cache.add(embedder.embed(embedded_text(trace())), "kp:trace:by-hand")

    score = Scorer(embedder=embedder, cache=cache).score(trace())

    assert score.nearest == ("kp:trace:by-hand", pytest.approx(1))
