"""Confidence extractors."""

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.confidence import Field, log_probabilities, unit


@dataclass
class Review:
    certainty: float | None


def tokens(*logs):
    """As OpenAI's chat models give them."""
    return [{"token": f"t{n}", "logprob": log, "top_logprobs": []} for n, log in enumerate(logs)]


def as_objects(document):
    """As OpenAI's client gives it."""
    return json.loads(json.dumps(document), object_hook=lambda fields: SimpleNamespace(**fields))


@pytest.mark.parametrize(
    ("result", "field", "sure"),
    [
        ({"certainty": 0.7}, Field("certainty"), 0.7),
        ({"certainty": 85}, Field("certainty", of=100), 0.85),
        ({"certainty": 4}, Field("certainty", of=5), 0.8),
        (Review(0.7), Field("certainty"), 0.7),
        ({"review": Review(0.7)}, Field("review.certainty"), 0.7),
        ({"certainty": 0}, Field("certainty"), 0.0),
        ({"certainty": 100}, Field("certainty", of=100), 1.0),
    ],
    ids=["key", "percent", "of five", "attribute", "inside", "not at all", "entirely"],
)
def test_a_field_tells_how_sure_the_agent_is(result, field, sure):
    assert field(result) == sure


@pytest.mark.parametrize(
    "result",
    [{}, {"certainty": None}, Review(None), "certainty", None, {"review": 1}],
    ids=["empty", "null", "attribute", "text", "nothing", "other"],
)
def test_a_field_that_is_not_there_tells_nothing(result):
    assert Field("certainty")(result) is None
    assert Field("review.certainty")(result) is None


@pytest.mark.parametrize(
    "value",
    [
        *(1.1, -0.1, 85, math.nan, math.inf, "0.9", "high", True, [0.9], np.bool_(True)),
        Decimal("0.9"),  # is left to a function
        *(log_probabilities({"logprobs": tokens(log)}) for log in (0.9, math.nan)),
    ],
    ids=repr,
)
def test_what_is_no_share_of_the_whole_is_an_error(value):
    with pytest.raises(ValueError, match=r"confidence must be a number \(0 to 1\), got "):
        Field("certainty")({"certainty": value})


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), Fraction(1, 2)], ids=str)
def test_a_number_may_be_of_another_library_and_becomes_a_float(value):
    assert unit(value) == 0.5
    assert type(unit(value)) is float


def test_a_long_text_in_place_of_a_number_is_cut_in_the_message():
    with pytest.raises(ValueError, match=r"got 'x{40,49}$"):
        unit("x" * 10_000)


@pytest.mark.parametrize("of", [0, -1, math.nan, math.inf])
def test_the_whole_is_above_zero(of):
    with pytest.raises(ValueError, match="must be above 0"):
        Field("certainty", of=of)


CHAT = {"logprobs": {"content": tokens(-0.1, -0.3), "refusal": None}}
COMPLETION = {"logprobs": {"tokens": ["a", "b", "c"], "token_logprobs": [None, -0.1, -0.3]}}


@pytest.mark.parametrize(
    "answer",
    [
        CHAT,
        {"logprobs": tokens(-0.1, -0.3)},
        COMPLETION,
        {"choices": [{"message": {"content": "yes"}, **CHAT}]},
        {"choices": [{"text": "yes", **COMPLETION}]},
        as_objects({"choices": [{"message": {"content": "yes"}, **CHAT}]}),
        as_objects({"choices": [{"text": "yes", **COMPLETION}]}),
        {"finish_reason": "STOP", "avg_logprobs": -0.2},
    ],
    ids=[
        *("chat", "Ollama", "completion", "chat response", "completion response"),
        *("chat objects", "completion objects", "Gemini"),
    ],
)
def test_log_probabilities_in_any_form_give_the_geometric_mean_of_the_probabilities(answer):
    assert log_probabilities(answer) == pytest.approx(math.exp(-0.2), abs=1e-6)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"logprobs": None},
        {"logprobs": {"content": None, "refusal": tokens(-0.1)}},
        {"logprobs": {"content": []}},
        {"logprobs": []},
        {"choices": [{"message": {"content": "yes"}, "logprobs": None}]},
        {"choices": []},
        "yes",
        None,
    ],
    ids=[
        *("empty", "not asked for", "a refusal", "no token", "none", "response", "no choice"),
        *("text", "nothing"),
    ],
)
def test_without_log_probabilities_nothing_is_reported(answer):
    assert log_probabilities(answer) is None


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=20), st.integers(1, 5))
def test_log_probabilities_give_a_share_between_those_of_the_tokens_whatever_their_number(
    logs, times
):
    once, again = (log_probabilities({"logprobs": tokens(*logs * n)}) for n in (1, times))

    assert unit(once) == once
    assert math.exp(min(logs)) - 1e-6 <= once <= math.exp(max(logs)) + 1e-6
    assert again == pytest.approx(once, abs=2e-6)


def test_rounding_of_float32_is_no_reason_to_be_refused():
    assert unit(log_probabilities({"logprobs": tokens(1.2e-7, 0.0)})) == 1.0
