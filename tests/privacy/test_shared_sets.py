"""Against the reference's answers and the labeled set, where they are beside this repository."""

import gzip
import importlib.util
import json
from functools import cache
from pathlib import Path

import pytest
from labelled import Tally, leaks, spans

from kp_middleware.privacy import Policy

SHARED = Path(__file__).parents[3] / "shared"
VECTORS = SHARED / "conformance" / "pii_vectors.jsonl.gz"
GENERATOR = SHARED / "bench" / "pii_set.py"


@pytest.fixture(scope="module")
def vectors():
    if not VECTORS.exists():
        pytest.skip("no conformance vectors beside the repository")
    with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def build():
    pytest.importorskip("faker", reason="the labeled set is made with Faker")
    pytest.importorskip("phonenumbers", reason="the labeled set is made with phonenumbers")
    if not GENERATOR.exists():
        pytest.skip("no labeled set beside the repository")
    spec = importlib.util.spec_from_file_location("pii_set", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cache(module.build)


@pytest.mark.parametrize("level", ["aggregated", "federated", "private"])
def test_all_that_the_reference_removes_goes(vectors, level):
    assert [leak for vector in vectors for leak in leaks(vector, level)] == []


@pytest.mark.parametrize("seed", [20251120, pytest.param(777, marks=pytest.mark.slow)])
def test_the_labelled_set_is_cleaned(build, seed):
    tally = Tally(build(seed))

    assert tally.recall("secret") >= 0.99
    assert tally.recall("identifier") >= 0.95
    assert tally.recall("id beside a word") >= 0.95
    assert tally.precision >= 0.99
    assert tally.kept_but_hit == []


@pytest.mark.parametrize("seed", [20251120, pytest.param(777, marks=pytest.mark.slow)])
def test_ids_without_a_word_go_in_the_regions_of_the_labelled_set(build, seed):
    regions = ("US", "GB", "FR", "ES", "DE", "IT", "SE", "BR", "IN", "TW", "KR")
    alone = [record for record in build(seed) if record["context"] == "bare"]

    tally = Tally(alone, Policy(phone_regions=regions))

    assert tally.recall("id alone") >= 0.85  # a BSN or PESEL is like any other number


def test_all_that_goes_before_the_file_is_a_secret_or_a_card(build):
    identifiers = [
        record["text"]
        for record in build(20251120)
        if record["group"] in {"identifier", "person", "nearmiss"}
    ]

    labels = {label for text in identifiers for _, label in spans(text, "private")}

    assert labels == {"credit_card"}
