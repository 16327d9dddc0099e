import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kp_middleware import ReasoningTrace, Step
from kp_middleware.export import payload
from kp_middleware.outbox_items import idempotency_key

any_text = st.text(st.characters(exclude_categories=()))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=10,
)
agent_ids = st.none() | st.text()


def trace_of(objective="add 1 and 2", **step):
    steps = [Step(step_id=0, type="thought", content="3", **step)]
    return ReasoningTrace.of(objective, steps)


@pytest.mark.parametrize("score", [0, 0.0, 0.83, 1, 1.0], ids=repr)
@pytest.mark.parametrize(("agent_id", "said"), [("agent-7", "agent-7"), (None, "left out")])
def test_the_score_and_the_agent_if_it_is_known_are_in_the_metadata(score, agent_id, said):
    document = json.loads(payload(trace_of(), score=score, agent_id=agent_id))

    assert document["metadata"]["quality_score"] == score
    assert document["metadata"].get("agent_id", "left out") == said


def test_without_a_registered_agent_the_one_in_the_trace_stays():
    trace = ReasoningTrace.model_validate_json(payload(trace_of(), score=0, agent_id="its own"))

    document = json.loads(payload(trace, score=1, agent_id=None))

    assert document["metadata"]["agent_id"] == "its own"


def test_the_rest_of_the_document_is_as_it_was_with_all_its_letters():
    objective = r"größer 日本 😀 C:\u0000"
    trace = trace_of(objective, input={"q": "größer", "deep": [None, {"a": 1.5}]}, latency_ms=3.5)

    body = payload(trace, score=0.0, agent_id=None)

    assert ReasoningTrace.model_validate_json(body) == trace
    assert "größer 日本 😀".encode() in body


@pytest.mark.parametrize("score", [-0.001, 1.001, math.nan, math.inf], ids=repr)
def test_what_is_not_on_the_scale_is_refused(score):
    with pytest.raises(ValueError, match="from 0 to 1"):
        payload(trace_of(), score=score, agent_id=None)


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["null", "lone surrogate"])
def test_what_no_registry_can_store_is_replaced(text):
    trace = trace_of(input={text: [text, {text: text}]})

    body = payload(trace, score=0.5, agent_id=None)

    assert json.loads(body)["steps"][0]["input"] == {"a�b": ["a�b", {"a�b": "a�b"}]}


@given(st.dictionaries(any_text, any_json, max_size=4), st.floats(0, 1), agent_ids)
def test_any_input_becomes_strict_json_that_is_a_valid_document(given_input, score, agent_id):
    trace = trace_of(input=given_input)

    body = payload(trace, score=score, agent_id=agent_id)

    assert ReasoningTrace.model_validate_json(body).metadata.quality_score == score
    assert json.loads(body, parse_constant=pytest.fail)


@given(st.floats(0, 1), agent_ids)
def test_the_same_trace_is_always_the_same_bytes(score, agent_id):
    trace = trace_of(input={"b": 1, "a": 2})

    first = payload(trace, score=score, agent_id=agent_id)

    assert payload(trace, score=score, agent_id=agent_id) == first


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1)
attempts = st.tuples(st.binary(max_size=8), st.none() | names, st.integers(0, 9))


@given(attempts, attempts)
@example((b"{}", "größer\nX-Evil: 1", 0), (b"{}", None, 0))
def test_only_the_same_body_agent_and_number_of_rejections_share_a_key_and_it_fits_a_header(
    one, other
):
    (body, agent_id, rejections), (body_2, agent_id_2, rejections_2) = one, other

    key = idempotency_key(body, agent_id=agent_id, rejections=rejections)
    key_2 = idempotency_key(body_2, agent_id=agent_id_2, rejections=rejections_2)

    assert (key == key_2) == (one == other)
    assert (len(key), key.isalnum(), key.isascii()) == (64, True, True)
