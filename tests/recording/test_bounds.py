"""A document that somebody built himself is bounded like a captured run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.recording import Limits, bounded
from kp_middleware.traces import Entity, KnowledgeGraphDelta, Relationship

LIMITS = Limits(field_bytes=1000, steps=10, trace_bytes=6000)
CUT = "… [cut: 5000 characters in all]"


def of(*steps, **facts):
    return ReasoningTrace.of("asked", steps, **facts)


def step(**fields):
    return Step(**{"step_id": 7, "type": "tool_call", **fields})


def with_delta(entities=(), relationships=()):
    delta = KnowledgeGraphDelta(entities=entities, relationships=relationships)
    return of(step()).model_copy(update={"knowledge_graph_delta": delta})


def test_what_is_within_the_bounds_stays_as_it_is():
    trace = of(
        step(content="said", tool=Tool(name="t", mcp_server="m"), input={"q": [1, 2**60, None]}),
        step(output_summary="ü", latency_ms=0.1234567),
    )

    run = bounded(trace, LIMITS)

    assert run.trace == trace
    assert (run.shape.steps, run.shape.tools) == (2, 1)


@pytest.mark.parametrize("field", ["content", "output_summary"])
def test_a_long_text_is_cut_and_the_others_are_not(field):
    trace = of(step(**{field: "x" * 5000}), step(content="whole"))

    first, second = bounded(trace, LIMITS).trace.steps

    assert getattr(first, field) == "x" * 1000 + CUT
    assert second.content == "whole"


def test_a_long_input_is_cut_in_place():
    given_input = {"q": "why", "page": "x" * 5000}

    (only,) = bounded(of(step(input=given_input)), LIMITS).trace.steps

    assert only.input["q"] == "why"
    assert only.input["page"].endswith(CUT)


def test_names_are_cut():
    trace = of(step(tool=Tool(name="t" * 5000)), domain="d" * 5000)

    run = bounded(trace, LIMITS)

    assert run.trace.steps[0].tool.name == "t" * 256 + CUT
    assert run.trace.metadata.task_domain == "d" * 256 + CUT


def test_what_was_asked_and_answered_is_cut():
    trace = ReasoningTrace.of("x" * 5000, [step()], result_summary="y" * 5000)

    run = bounded(trace, LIMITS)

    assert run.trace.task.objective == "x" * 1000 + CUT
    assert run.trace.outcome.result_summary == "y" * 1000 + CUT


def test_many_steps_keep_their_beginning_and_their_end_and_all_are_counted():
    steps = [step(type="thought", content=str(number)) for number in range(50)]
    steps[25] = step(type="error_recovery", tool=Tool(name="left out"))

    run = bounded(of(*steps), LIMITS)

    said = [kept.content or kept.output_summary for kept in run.trace.steps]
    assert said[:5] == ["0", "1", "2", "3", "[41 of 50 steps left out here]"]
    assert said[5:] == ["45", "46", "47", "48", "49"]
    assert [kept.step_id for kept in run.trace.steps] == [*range(10)]
    assert (run.shape.steps, run.shape.tools, run.shape.recoveries) == (50, 1, 1)
    assert run.shape.types == {"thought", "error_recovery"}


def test_a_large_document_keeps_its_beginning_and_its_end():
    steps = [step(content=f"{number:03}" + "x" * 900) for number in range(9)]

    run = bounded(of(*steps), LIMITS)

    assert [(kept.content or kept.output_summary)[:3] for kept in run.trace.steps] == [
        *("000", "001", "002"),
        "[3 ",
        *("006", "007", "008"),
    ]


def test_a_large_graph_is_left_out():
    entities = [Entity(name=f"{number} " + "n" * 5000, type="t") for number in range(50)]
    facts = [Relationship(fact="f" * 5000, valid_from="2026") for _ in range(50)]

    assert bounded(with_delta(entities, facts), LIMITS).trace.knowledge_graph_delta is None


def test_a_small_graph_stays_as_it_is():
    trace = with_delta([Entity(name="n", type="t")], [Relationship(fact="f", valid_from="2026")])

    assert bounded(trace, LIMITS).trace == trace


@given(st.lists(st.tuples(st.text(max_size=3000), st.integers(0, 3000)), min_size=1, max_size=30))
def test_whatever_is_given_is_kept_within_bounds_and_counted_truly(given_steps):
    steps = [step(content=text, input={"q": "x" * size}) for text, size in given_steps]

    run = bounded(of(*steps), LIMITS)

    written = len("".join(kept.model_dump_json() for kept in run.trace.steps).encode())
    assert run.shape.steps == len(steps)
    assert len(run.trace.steps) <= LIMITS.steps + 1
    assert written < 3 * LIMITS.trace_bytes
