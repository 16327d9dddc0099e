"""What is written of a run: within bounds, and nothing that must not be."""

import json

import pytest
from pipeline_helpers import column_of, warnings_in

from kp_middleware import ReasoningTrace, Step
from kp_middleware.recording import Place
from kp_middleware.traces import Entity, KnowledgeGraphDelta

SECRET = "password=hunter2" + "horse" * 3


@pytest.fixture
def kp(pulse):
    return pulse(sync=True)


def bottomless():
    inner = {}
    [inner := {"deeper": inner} for _ in range(200)]
    return inner


def thoughts(count, size):
    return [Step(step_id=at, type="thought", content=f"{at} " * (size // 2)) for at in range(count)]


FACTS = {
    **dict.fromkeys(("thread_id", "model", "agent_name", "error_type"), SECRET),
    "tags": ("nightly", SECRET),
}


@pytest.mark.parametrize("fact", [*FACTS, "agent of a step"])
def test_a_secret_in_a_fact_about_the_run_is_not_written(kp, written, fact):
    recorder = kp.start_recording("python")
    place = Place(agent="an agent within" if fact in FACTS else SECRET)
    recorder.note("thought", "said", place=place)
    if fact in FACTS:
        setattr(recorder, fact, FACTS[fact])

    recorder.finish()

    assert kp.stats().scored == 1
    assert (b"an agent within" in written(), b"nightly" in written()) == (
        fact in FACTS,
        fact == "tags",
    )
    assert b"hunter2" not in written()


def test_where_redaction_fails_no_text_is_written_from_whatever_field(kp, written, stored, caplog):
    steps = [Step(step_id=0, type="tool_call", input=bottomless())]
    trace = ReasoningTrace.of("a private errand", steps, domain=f"of {SECRET}")
    delta = KnowledgeGraphDelta(entities=[Entity(name="private", type="x")], relationships=[])

    kp.submit(
        trace.model_copy(update={"knowledge_graph_delta": delta, "source_skill": "a private skill"})
    )

    assert (stored()["state"], stored()["step_count"]) == ("failed", 1)
    assert "too_deep" in stored()["reason"]
    assert len(warnings_in(caplog)) == 1
    for text in b"private errand", b"private skill", b'"name":"private"', b"hunter2":
        assert text not in written()


def test_a_submitted_trace_is_bounded_like_a_captured_run(kp, stored, db):
    kp.submit(ReasoningTrace.of("many", thoughts(3000, 20)))

    trace, [body] = stored(), column_of(db, "body", "documents")
    assert (trace["state"], trace["step_count"], len(trace["steps"])) == ("scored", 3000, 1000)
    assert len(json.loads(body)["steps"]) == 1000


def test_a_submitted_trace_has_its_bound_in_bytes(kp, stored):
    kp.submit(ReasoningTrace.of("large", thoughts(60, 30_000)))

    assert stored()["step_count"] == 60
    assert len(str(stored()["steps"])) < 1.1 * 2**20


@pytest.mark.parametrize(
    ("settings", "large", "told"),
    [
        (
            {"max_field_bytes": 10**8, "max_trace_bytes": 10**8},
            Step(step_id=0, type="thought", content="0 " * 1_250_000),
            "[cut: 2500000 characters in all]",
        ),
        (
            {"max_field_bytes": 900_000},
            Step(step_id=0, type="tool_call", input={"values": [0] * 150_000}, content="of many"),
            "(not kept: it is too large to be redacted)",
        ),
    ],
    ids=["a text", "too many values"],
)
def test_what_is_too_large_to_be_redacted_goes_and_the_other_steps_stay(
    pulse, stored, settings, large, told
):
    kp = pulse(sync=True, **settings)

    kp.submit(ReasoningTrace.of("large", [large, Step(step_id=1, type="thought", content="b")]))

    trace, (first, second) = stored(), stored()["steps"]
    assert (trace["state"], trace["objective"], second["content"]) == ("scored", "large", "b")
    assert told in (first.get("content") or first["output_summary"])[-60:]
