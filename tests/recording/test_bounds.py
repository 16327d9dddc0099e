"""A document that somebody built himself is bounded like a captured run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.recording import bounded
from kp_middleware.traces import Entity, KnowledgeGraphDelta, Limits, Relationship

LIMITS = Limits(field_bytes=1000, steps=10, trace_bytes=6000)
CUT = "… [cut: 5000 characters in all]"


def trace_of(*steps, **facts):
    return ReasoningTrace.of("asked", steps, **facts)


def step(**fields):
    return Step(**{"step_id": 7, "type": "tool_call", **fields})


def test_what_is_within_the_bounds_stays_as_it_is():
    trace = trace_of(
        step(content="said", tool=Tool(name="t", mcp_server="m"), input={"q": [1, 2**60, None]}),
        step(output_summary="ü", latency_ms=0.1234567),
    )

    run = bounded(trace, LIMITS)

    assert run.trace == trace
    assert (run.shape.steps, run.shape.tools) == (2, 1)


def test_each_long_text_is_cut_in_its_place_and_the_others_are_not():
    long = {"content": "c" * 5000, "output_summary": "o" * 5000, "tool": Tool(name="t" * 5000)}
    steps = [step(**long, input={"q": "why", "page": "p" * 5000}), step(content="whole")]
    trace = ReasoningTrace.of("x" * 5000, steps, domain="d" * 5000, result_summary="y" * 5000)

    cut = bounded(trace, LIMITS).trace

    first, second = cut.steps
    assert (first.content, first.output_summary) == ("c" * 1000 + CUT, "o" * 1000 + CUT)
    assert first.tool.name == "t" * 256 + CUT
    assert first.input["q"] == "why"
    assert first.input["page"].endswith(CUT)
    assert second.content == "whole"
    assert cut.metadata.task_domain == "d" * 256 + CUT
    assert cut.task.objective == "x" * 1000 + CUT
    assert cut.outcome.result_summary == "y" * 1000 + CUT


def test_many_steps_keep_their_beginning_and_their_end_and_all_are_counted():
    steps = [step(type="thought", content=str(number)) for number in range(50)]
    steps[25] = step(type="error_recovery", tool=Tool(name="left out"))

    run = bounded(trace_of(*steps), LIMITS)

    said = [kept.content or kept.output_summary for kept in run.trace.steps]
    assert said[:5] == ["0", "1", "2", "3", "[41 of 50 steps left out here]"]
    assert said[5:] == ["45", "46", "47", "48", "49"]
    assert [kept.step_id for kept in run.trace.steps] == [*range(10)]
    assert (run.shape.steps, run.shape.tools, run.shape.recoveries) == (50, 1, 1)
    assert run.shape.types == {"thought", "error_recovery"}


@pytest.mark.parametrize(("size", "is_kept"), [(1, True), (5000, False)], ids=["small", "large"])
def test_a_large_graph_is_left_out(size, is_kept):
    facts = (Relationship(fact="f", valid_from="2026"),)
    delta = KnowledgeGraphDelta(entities=(Entity(name="n" * size, type="t"),), relationships=facts)
    trace = trace_of(step()).model_copy(update={"knowledge_graph_delta": delta})

    kept = bounded(trace, LIMITS).trace.knowledge_graph_delta

    assert kept == (delta if is_kept else None)


@given(
    st.lists(
        st.tuples(st.sampled_from('x日"'), st.integers(0, 3000), st.integers(0, 3000)),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_is_given_is_kept_within_bounds_and_counted_truly(given_steps):
    steps = [
        step(content=character * size, input={"q": "x" * input_size})
        for character, size, input_size in given_steps
    ]

    run = bounded(trace_of(*steps), LIMITS)

    written = len("".join(kept.model_dump_json() for kept in run.trace.steps).encode())
    assert run.shape.steps == len(steps)
    assert len(run.trace.steps) <= LIMITS.steps + 1
    assert written < 3 * LIMITS.trace_bytes
