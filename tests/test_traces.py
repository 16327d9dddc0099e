"""The document: what is read, what is refused, what is written."""

import gzip
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kp_middleware import Metadata, Outcome, ReasoningTrace, Step, Task, Tool
from kp_middleware.instants import instant
from kp_middleware.traces import CONTEXT

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)


def document(**changes):
    return {
        "@context": CONTEXT,
        "@type": "ReasoningTrace",
        "id": "kp:trace:1",
        "metadata": metadata(),
        "task": {"objective": "add 1 and 2"},
        "steps": [{"step_id": 0, "type": "thought", "content": "3"}],
        "outcome": {"result_summary": "3", "confidence": 1},
        **changes,
    }


def metadata(**changes):
    return {
        "created_at": "2026-11-01T09:14:03.120Z",
        "task_domain": "general",
        "success": True,
        "quality_score": 0,
        "visibility": "network",
        "privacy_level": "aggregated",
        **changes,
    }


def read(**changes):
    return ReasoningTrace.model_validate(document(**changes))


def written(trace):
    return json.loads(trace.model_dump_json())


def verdict(doc):
    """The document as it was understood, or the paths of what is wrong with it."""
    try:
        return written(ReasoningTrace.model_validate(doc))
    except ValidationError as error:
        return sorted(".".join(str(part) for part in issue["loc"]) for issue in error.errors())


def expected_verdict(case):
    if case["valid"]:
        return case.get("parsed", case["doc"])
    return sorted(".".join(str(part) for part in issue["path"]) for issue in case["issues"])


@pytest.fixture(scope="module")
def cases(shared):
    with gzip.open(shared / "conformance" / "schema_vectors.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def test_every_document_is_understood_or_refused_as_by_the_reference(cases):
    verdicts = [(case["mutation"], verdict(case["doc"])) for case in cases]

    assert verdicts == [(case["mutation"], expected_verdict(case)) for case in cases]
    assert len(cases) == 200


def test_every_valid_document_of_the_reference_survives_the_round_trip(cases):
    traces = [ReasoningTrace.model_validate(case["doc"]) for case in cases if case["valid"]]

    assert [ReasoningTrace.model_validate_json(one.model_dump_json()) for one in traces] == traces


def test_the_legacy_context_is_read_and_today_s_is_written():
    trace = read(**{"@context": "https://knowledgepulse.dev/schema/v1"})

    assert written(trace)["@context"] == "https://openknowledgepulse.org/schema/v1"


def test_unknown_keys_are_dropped_but_kept_within_an_input():
    step = {"step_id": 0, "type": "tool_call", "input": {"mine": {"too": None}}, "mood": "good"}

    trace = read(steps=[step], colour="red")

    assert "colour" not in written(trace)
    assert written(trace)["steps"] == [
        {"step_id": 0, "type": "tool_call", "input": {"mine": {"too": None}}}
    ]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"@context": "https://example.org"}, "@context"),
        ({"@type": "Trace"}, "@type"),
        ({"id": "trace:1"}, "id"),
        ({"id": "x\nkp:trace:1"}, "id"),
        ({"source_skill": None}, "source_skill"),
        ({"steps": []}, "steps"),
        ({"steps": [{"step_id": 0, "type": "musing"}]}, "steps.0.type"),
        ({"steps": [{"step_id": 0.5, "type": "thought"}]}, "steps.0.step_id"),
        ({"steps": [{"step_id": True, "type": "thought"}]}, "steps.0.step_id"),
        ({"steps": [{"step_id": -1, "type": "thought"}]}, "steps.0.step_id"),
        ({"steps": [{"step_id": 0, "type": "thought", "tool": {}}]}, "steps.0.tool.name"),
        ({"steps": [{"step_id": 0, "type": "thought", "input": []}]}, "steps.0.input"),
        (
            {"steps": [{"step_id": 0, "type": "thought", "latency_ms": float("nan")}]},
            "steps.0.latency_ms",
        ),
        ({"outcome": {"result_summary": "", "confidence": 1.01}}, "outcome.confidence"),
        ({"outcome": {"result_summary": "", "confidence": "1"}}, "outcome.confidence"),
        ({"metadata": metadata(success=1)}, "metadata.success"),
        ({"metadata": metadata(visibility="public")}, "metadata.visibility"),
        ({"metadata": metadata(validated_by=[1])}, "metadata.validated_by.0"),
        ({"task": {"objective": ""}}, "task.objective"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_wrong_field_is_named(changes, path):
    assert verdict(document(**changes)) == [path]


@pytest.mark.parametrize(
    "created_at",
    [
        "2026-11-01T09:14Z",
        "2026-11-01T09:14:03Z",
        "2026-11-01T09:14:03.123456789Z",
        "2024-02-29T00:00:00Z",
        "2000-02-29T23:59:59Z",
    ],
)
def test_an_instant_is_kept_as_it_was_read(created_at):
    trace = read(metadata=metadata(created_at=created_at))

    assert written(trace)["metadata"]["created_at"] == created_at


@pytest.mark.parametrize(
    "created_at",
    [
        "2026-11-01T09:14:03+00:00",
        "2026-11-01T09:14:03",
        "2026-11-01t09:14:03Z",
        "2026-02-29T09:14:03Z",
        "1900-02-29T09:14:03Z",
        "2026-04-31T09:14:03Z",
        "2026-11-01T24:00:00Z",
        "2026-11-01T09:14:60Z",
        "2026-11-01T09:14:03.Z",
        "2026-11-01T09:14:03Z\n",
        "٢٠٢٦-11-01T09:14:03Z",
    ],
)
def test_what_is_no_instant_in_utc_is_refused(created_at):
    assert verdict(document(metadata=metadata(created_at=created_at))) == ["metadata.created_at"]


def test_a_whole_number_may_be_written_as_a_float():
    assert written(read(steps=[{"step_id": 2.0, "type": "thought"}]))["steps"][0]["step_id"] == 2


def test_a_lone_surrogate_becomes_the_replacement_character_so_that_it_can_be_written():
    given = {
        "step_id": 0,
        "type": "tool_call",
        "content": "a\ud800",
        "input": {"\udfff": ["\ud800"]},
    }

    trace = written(read(steps=[given], task={"objective": "naïve \ud800"}))

    assert trace["steps"] == [{**given, "content": "a\ufffd", "input": {"\ufffd": ["\ufffd"]}}]
    assert trace["task"]["objective"] == "naïve \ufffd"


def test_a_trace_does_not_change_with_the_arguments_it_was_made_of():
    given = {"cities": ["Rome"], "when": (1, float("nan"))}

    step = Step(step_id=0, type="tool_call", input=given)
    given["cities"].append("Oslo")

    assert step.input == {"cities": ["Rome"], "when": [1, None]}


def test_an_input_that_is_no_json_or_its_own_part_is_left_for_redaction_to_refuse():
    circle, thing = {}, object()
    circle["again"] = circle

    own_part, no_json = (
        Step(step_id=0, type="tool_call", input=given).input for given in (circle, {"thing": thing})
    )

    assert own_part["again"]["again"] is not None
    assert no_json == {"thing": thing}


def test_a_trace_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        read().id = "kp:trace:2"


def test_nothing_is_written_as_null():
    trace = read(
        steps=[{"step_id": 0, "type": "tool_call", "tool": {"name": "add"}, "input": {}}],
        knowledge_graph_delta={"entities": [{"name": "Rome", "type": "city"}], "relationships": []},
    )

    assert "null" not in trace.model_dump_json()
    assert written(trace)["steps"][0]["tool"] == {"name": "add"}


@given(
    texts=st.lists(ANY_TEXT, min_size=1, max_size=4),
    inputs=st.dictionaries(ANY_TEXT, JSON, max_size=3),
    confidence=st.floats(0, 1),
    success=st.booleans(),
)
def test_any_trace_equals_itself_after_a_round_trip(texts, inputs, confidence, success):
    steps = [
        Step(step_id=number, type="tool_call", content=text, tool=Tool(name=text), input=inputs)
        for number, text in enumerate(texts)
    ]

    trace = ReasoningTrace.of(
        f"do {texts[0]}", steps, result_summary=texts[-1], success=success, confidence=confidence
    )

    assert ReasoningTrace.model_validate_json(trace.model_dump_json()) == trace
    assert ReasoningTrace.model_validate(written(trace)) == trace


@pytest.mark.parametrize(
    ("told", "kept"),
    [({}, 0.8), ({"success": False}, 0.2), ({"confidence": 0.0}, 0)],
    ids=["success", "failure", "stated as zero"],
)
def test_an_agent_that_does_not_say_how_sure_it_is_has_the_reference_s_confidence(told, kept):
    trace = ReasoningTrace.of("x", [Step(step_id=0, type="thought")], **told)

    assert trace.outcome.confidence == kept


def test_a_new_trace_has_an_id_of_its_own_and_is_made_now():
    before = instant(time.time())
    steps = [Step(step_id=0, type="thought")]

    one, other = ReasoningTrace.of("x", steps), ReasoningTrace.of("x", iter(steps))

    assert one.id != other.id
    assert before <= one.metadata.created_at <= instant(time.time())
    assert one.steps == other.steps


def test_the_parts_can_be_put_together_by_name():
    trace = ReasoningTrace(
        context=CONTEXT,
        kind="ReasoningTrace",
        id="kp:trace:1",
        metadata=Metadata(**metadata()),
        task=Task(objective="add 1 and 2"),
        steps=[Step(step_id=0, type="thought", content="3")],
        outcome=Outcome(result_summary="3", confidence=1),
    )

    assert trace == read()
