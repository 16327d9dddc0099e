"""Whatever was noted becomes a valid document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notebook import Notebook, run_of

from kp_middleware import ReasoningTrace
from kp_middleware.traces import Limits

TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
NAMES = st.none() | TEXT | st.integers()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.integers(), inner),
    max_leaves=6,
)
NUMBERS = st.none() | st.floats() | st.integers()
NOTES = st.one_of(
    st.tuples(st.just("thought"), st.tuples(TEXT), st.just({})),
    st.tuples(
        st.just("tool_call"),
        st.tuples(TEXT, st.none() | st.dictionaries(TEXT, JSON, max_size=3)),
        st.fixed_dictionaries({"mcp_server": st.none() | TEXT}),
    ),
    st.tuples(
        st.just("observation"),
        st.tuples(st.none() | TEXT),
        st.fixed_dictionaries(
            {"tool": st.none() | TEXT, "output_summary": JSON, "latency_ms": NUMBERS}
        ),
    ),
    st.tuples(
        st.just("error"),
        st.tuples(TEXT | st.builds(ValueError, TEXT)),
        st.fixed_dictionaries({"tool": st.none() | TEXT, "latency_ms": NUMBERS}),
    ),
    st.tuples(
        st.just("outcome"),
        st.tuples(JSON),
        st.fixed_dictionaries({"confidence": NUMBERS, "success": st.none() | st.booleans()}),
    ),
    st.tuples(st.just("set_objective"), st.tuples(JSON), st.just({})),
)


@given(
    notes=st.lists(NOTES, max_size=12),
    names=st.tuples(NAMES, NAMES, NAMES, NAMES),
    tags=st.lists(NAMES, max_size=3),
    error=st.none() | st.builds(ValueError, TEXT) | st.just(KeyboardInterrupt()),
    steps=st.integers(1, 6),
    field_bytes=st.integers(0, 40),
)
def test_whatever_is_noted_becomes_a_document_that_equals_itself(
    notes, names, tags, error, steps, field_bytes
):
    recorder = Notebook(Limits(field_bytes=field_bytes, steps=steps, trace_bytes=500)).start()
    recorder.thought("it begins")
    recorder.agent_name, recorder.domain, recorder.thread_id, recorder.model = names
    recorder.tags = tuple(tags)

    [getattr(recorder, note)(*args, **kwargs) for note, args, kwargs in notes]
    recorder.finish(error)
    run = run_of(recorder)

    document = json.loads(run.trace.model_dump_json())
    assert ReasoningTrace.model_validate(document) == run.trace
    assert [step.step_id for step in run.trace.steps] == [*range(len(run.trace.steps))]
    assert len(run.trace.steps) <= steps + 1
    assert run.shape.steps == recorder.log.count


def test_a_run_without_a_step_is_no_run(recorder):
    recorder.finish()

    assert run_of(recorder) is None


def test_a_run_has_its_own_facts_and_those_of_the_pipeline(recorder):
    recorder.thought("well")
    recorder.started_at_s = 0.25
    recorder.agent_name, recorder.model, recorder.thread_id = "researcher", "gpt-9", 42
    recorder.tags = ("nightly", 7)
    recorder.finish()
    pipeline = {"domain": "finance", "visibility": "org", "privacy_level": "federated"}

    run = run_of(recorder, agent_id="agent-1", **pipeline)

    assert (run.agent_name, run.model, run.thread_id) == ("researcher", "gpt-9", "42")
    assert run.tags == ("nightly", "7")
    assert run.duration_ms >= 0
    metadata = run.trace.metadata
    assert (metadata.task_domain, metadata.visibility) == ("finance", "org")
    assert (metadata.privacy_level, metadata.agent_id) == ("federated", "agent-1")
    assert (metadata.created_at, metadata.framework) == ("1970-01-01T00:00:00.250Z", "python")
    assert metadata.quality_score == 0


@pytest.mark.parametrize(
    ("domain", "kept"), [("code", "code"), ("", "general"), (None, "general"), (5, "5")]
)
def test_the_run_s_own_domain_wins(recorder, domain, kept):
    recorder.thought("well")
    recorder.domain = domain
    recorder.finish()

    assert run_of(recorder).trace.metadata.task_domain == kept


@pytest.mark.parametrize(
    ("objective", "agent_name", "kept"),
    [("find it", "a", "find it"), ("", "researcher", "researcher"), ("", None, "(not said)")],
    ids=["said", "named", "neither"],
)
def test_a_document_always_has_an_objective(recorder, objective, agent_name, kept):
    recorder.thought("well")
    recorder.set_objective(objective)
    recorder.agent_name = agent_name
    recorder.finish()

    assert run_of(recorder).trace.task.objective == kept
