"""The confidence of a run: what its agent states, else the first extractor's, else 0.8."""

import numpy as np
import pytest
from hostile_objects import HOSTILE

from kp_middleware.confidence import Field, log_probabilities
from kp_middleware.recording import Extractors, current_trace, shield

LIKELY = {"logprobs": [{"token": "yes", "logprob": 0.0}]}
UNLIKELY = {"logprobs": [{"token": "yes", "logprob": -1.0}]}


@pytest.fixture
def confidence_of(notebook):
    """The confidence of a run that returns this, by these extractors."""

    def run(result, extractors):
        assert notebook.capture(lambda: result, confidence=Extractors(extractors))() is result
        return notebook.run.trace.outcome.confidence

    return run


@pytest.fixture
def failures():
    return shield.failures.total


@pytest.mark.parametrize(
    ("extractors", "confidence"),
    [
        (Field("certainty", of=100), 0.85),
        (lambda result: len(result["answer"]) / 10, 0.3),
        ([Field("missing"), Field("certainty", of=100)], 0.85),
        ((lambda _: None, Field("certainty", of=100), lambda _: 0.1), 0.85),
        ([], 0.8),
        (None, 0.8),
        (Field("missing"), 0.8),
    ],
    ids=["field", "function", "list", "tuple", "empty", "none", "none knows"],
)
def test_the_first_extractor_with_an_answer_counts(confidence_of, failures, extractors, confidence):
    assert confidence_of({"answer": "yes", "certainty": 85}, extractors) == confidence
    assert failures() == 0


def test_what_the_agent_says_itself_counts_more_than_its_field_and_any_extractor(notebook):
    def agent():
        current_trace().outcome("short", confidence=0.4)
        return {"long": "answer", "confidence": 0.9}

    notebook.capture(agent, confidence=Extractors(lambda _: 0.1))()

    outcome = notebook.run.trace.outcome
    assert (outcome.result_summary, outcome.confidence) == ("short", 0.4)


def test_the_agents_own_field_counts_more_than_an_extractor(confidence_of):
    assert confidence_of({"confidence": 0.9}, lambda _: 0.1) == 0.9


@pytest.mark.parametrize(
    "result",
    [
        *({"confidence": value} for value in (90, -1, "0.9", True, None, [0.9], float("nan"))),
        *(ValueError("x"), np.float64(0.5)),
    ],
    ids=repr,
)
def test_an_own_field_that_holds_something_else_is_no_failure(confidence_of, failures, result):
    assert confidence_of(result, None) == 0.8
    assert failures() == 0


@pytest.mark.parametrize(
    ("result", "field"),
    [
        ({"confidence": 1}, "confidence"),
        ({"confidence": 0.9, "review": {"confidence": 1}}, "review.confidence"),
    ],
    ids=["own", "deep inside"],
)
def test_an_own_field_on_another_scale_is_read_on_that_scale(confidence_of, result, field):
    assert confidence_of(result, Field(field, of=100)) == 0.01


@pytest.mark.parametrize(
    "extractor",
    [
        *(lambda _, said=said: said for said in (2.0, -1, float("nan"), "high", True, b"1", [1])),
        lambda result: result["missing"],
        lambda: 1.0,
        Field("answer"),
    ],
    ids=[
        *("too high", "too low", "NaN", "word", "bool", "bytes", "list"),
        *("raises", "takes nothing", "no number"),
    ],
)
def test_what_an_extractor_gets_wrong_is_counted_and_the_next_is_asked(
    confidence_of, failures, extractor
):
    assert confidence_of({"answer": "yes"}, [extractor, lambda _: 0.3]) == 0.3
    assert failures() == 1


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_no_result_and_no_return_value_can_break_the_run(confidence_of, make):
    hostile = make()

    confidence = confidence_of(hostile, [Field("a.b"), log_probabilities, lambda _: hostile])

    assert confidence in {0.8, 1.0}  # one of them is a mapping that says 1 to any question


def test_an_extractor_is_not_asked_of_a_run_that_failed(notebook):
    def failing():
        raise KeyError("why")

    asked = []
    agent = notebook.capture(failing, confidence=Extractors(asked.append))

    with pytest.raises(KeyError):
        agent()
    assert asked == []
    assert notebook.run.trace.outcome.confidence == 0.2
    assert (notebook.run.confidence_source, notebook.run.success_source) == ("assumed", "said")


def test_the_function_inside_does_not_ask_for_the_run(notebook):
    inner = notebook.capture(lambda: "yes", confidence=Extractors(lambda _: 0.1))
    outer = notebook.capture(inner, confidence=Extractors(lambda _: 0.6))

    outer()

    assert notebook.run.trace.outcome.confidence == 0.6


def test_of_a_generator_what_it_yielded_is_asked(notebook):
    extractors = Extractors(lambda text: 0.7 if text == "certainly yes" else None)

    [*notebook.capture(lambda: (word for word in ("certainly ", "yes")), confidence=extractors)()]

    assert notebook.run.trace.outcome.confidence == 0.7


@pytest.mark.parametrize("wrong", ["certainty", 0.9, [0.9], [Field("a"), "b"]], ids=str)
def test_what_is_no_function_is_refused_at_once(wrong):
    with pytest.raises(TypeError):
        Extractors(wrong)


@pytest.mark.parametrize(
    ("answers", "confidence"),
    [
        ([UNLIKELY, LIKELY], 1.0),
        ([LIKELY, {}], None),
        ([LIKELY, {"logprobs": [1]}], None),
        ([], None),
    ],
    ids=["the last", "the last has none", "the last is odd", "none"],
)
def test_log_probabilities_are_those_of_the_last_answer(recorder, answers, confidence):
    recorder.extractors = Extractors(log_probabilities)

    for answer in answers:
        recorder.record_logprobs(answer)
    recorder.extract_confidence("a result")

    assert recorder.confidence == confidence


def test_log_probabilities_may_be_in_the_result_itself(confidence_of):
    assert confidence_of({"choices": [UNLIKELY]}, log_probabilities) == 0.367879


@pytest.mark.parametrize(
    ("extractors", "uses_logprobs"),
    [(None, False), (Field("certainty"), False), ([Field("certainty"), log_probabilities], True)],
    ids=["none", "other", "asked for"],
)
def test_answers_are_only_read_where_log_probabilities_are_asked_for(extractors, uses_logprobs):
    assert Extractors(extractors).uses_logprobs is uses_logprobs
