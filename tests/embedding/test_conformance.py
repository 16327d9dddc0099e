"""The reference implementation's own answers, where its vectors are beside the checkout."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from kp_middleware import ReasoningTrace, Scorer, VectorCache
from kp_middleware.testing import FakeClock

VECTORS = Path(__file__).parents[3] / "shared" / "conformance"
pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason="the reference's vectors are not here")

OTHERWISE_DECIDED = {
    "query of another dimension is not rejected": [1, 2, 3, 4, 5, 6],  # ours is an error
    "clock runs backwards": [3, 4],  # our stamps never decrease
    "clock backwards with capacity": [4, 5],
}


class ScriptedEmbedder:
    """Returns the vector that the reference's stand-in returned for the same text."""

    name = "scripted"

    def __init__(self, items):
        self._vectors = {item["embed_text"]: item["embedding_sparse"] for item in items}

    def embed(self, text, /):
        vector = np.zeros(384, dtype=np.float32)
        for index, value in self._vectors[text]:
            vector[index] = value
        return vector


def _read(name):
    with gzip.open(VECTORS / name, "rt") as file:
        return [json.loads(line) for line in file] if ".jsonl" in name else json.load(file)


def _sequences(name):
    return _read(name)["sequences"] if VECTORS.exists() else []


def _name(sequence):
    return sequence["name"]


def _score(document):
    try:
        return Scorer().score(ReasoningTrace.model_validate(document)).value
    except ValidationError:
        return None


def test_every_valid_trace_scores_as_the_reference_and_every_other_is_refused():
    cases = _read("scoring_vectors.jsonl.gz")

    scores = [_score(case["trace"]) for case in cases]

    expected = [c["expected_score"] if c["schema_valid"] else None for c in cases]
    assert [score is None for score in scores] == [score is None for score in expected]
    np.testing.assert_allclose(_numbers(scores), _numbers(expected), atol=1e-9, rtol=0)
    assert (len(_numbers(scores)), len(scores)) == (376, 400)


def _numbers(scores):
    return [score for score in scores if score is not None]


@pytest.mark.parametrize("sequence", _sequences("novelty_vectors.json.gz"), ids=_name)
def test_novelty_agrees_where_the_reference_stays_within_0_and_1(sequence):
    cache = VectorCache()
    scorer = Scorer(embedder=ScriptedEmbedder(sequence["items"]), cache=cache)

    results = [_scored(scorer, cache, item) for item in sequence["items"]]

    values, expected, sizes = zip(*results, strict=True)
    np.testing.assert_allclose(values, expected, atol=1e-6, rtol=0)
    assert list(sizes) == [item["cache_size_after"] for item in sequence["items"]]


def _scored(scorer, cache, item):
    score = scorer.score(ReasoningTrace.model_validate(item["trace"]))
    similarity = 0.0 if score.nearest is None else score.nearest.similarity
    beyond = 0.0 if "single_thought" in score.rules else max(0.0, -similarity)
    expected = item["expected_score"] - beyond * score.weights.novelty
    return score.value, min(1.0, expected), cache.size


@pytest.mark.parametrize("sequence", _sequences("cache_vectors.json.gz"), ids=_name)
@pytest.mark.parametrize("persisted", [False, True], ids=["memory", "file"])
def test_the_cache_does_what_the_reference_does(sequence, persisted, tmp_path):
    clock = FakeClock(sequence["ops"][0]["now"] / 1000)
    options = sequence["options"]
    cache = VectorCache(
        options.get("maxElements", 1000),
        options.get("dimensions", 384),
        options.get("ttlMs"),
        path=tmp_path / "kp.db" if persisted else None,
        clock=clock.ms,
    )

    differing = [
        index
        for index, operation in enumerate(sequence["ops"])
        if not _agrees(_do(cache, clock, sequence["vectors"], operation), operation["result"])
    ]

    cache.close()
    assert differing == OTHERWISE_DECIDED.get(sequence["name"], [])


def _do(cache, clock, vectors, operation):
    clock.advance(operation["now"] / 1000 - clock())
    vector = vectors[operation.get("v", 0)]
    try:
        match operation["op"]:
            case "add":
                return cache.add(vector)
            case "query":
                return cache.max_cosine_similarity(vector)
            case "size":
                return cache.size
            case "clear":
                return cache.clear()
    except ValueError:
        return "error"


def _agrees(ours, theirs):
    if isinstance(theirs, dict):
        return ours == "error"
    return ours == (theirs if theirs is None else pytest.approx(theirs, abs=1e-6))
