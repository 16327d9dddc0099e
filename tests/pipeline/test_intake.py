"""What is written of a run: within bounds, and nothing that must not be."""

import json
from contextlib import closing

import pytest

from kp_middleware import ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.traces import Entity, KnowledgeGraphDelta

SECRET = "password=hunter2" + "horse" * 3


@pytest.fixture
def written(db):
    """All that is in the file, and in its WAL."""
    return lambda: b"".join(path.read_bytes() for path in db.parent.glob("kp.db*"))


@pytest.fixture
def kp(pulse):
    return pulse(sync=True)


def bottomless():
    inner = {}
    [inner := {"deeper": inner} for _ in range(200)]
    return inner


def texts(count, size):
    return [Step(step_id=at, type="thought", content=f"{at} " * (size // 2)) for at in range(count)]


@pytest.mark.parametrize("fact", ["thread_id", "model", "agent_name", "error_type"])
def test_a_secret_in_a_fact_about_the_run_is_not_written(kp, written, fact):
    recorder = kp.start_recording("python")
    recorder.thought("said")
    setattr(recorder, fact, SECRET)

    recorder.finish()

    assert kp.stats().scored == 1
    assert b"hunter2" not in written()


def test_a_secret_in_a_tag_is_not_written(kp, written):
    recorder = kp.start_recording("python")
    recorder.thought("said")
    recorder.tags = ("nightly", SECRET)

    recorder.finish()

    assert b"nightly" in written()
    assert b"hunter2" not in written()


def test_a_secret_in_the_name_of_an_agent_within_is_not_written(kp, written):
    from kp_middleware.recording import Place

    recorder = kp.start_recording("python")
    recorder.note("thought", "said", place=Place(agent=SECRET))

    recorder.finish()

    assert kp.stats().scored == 1
    assert b"hunter2" not in written()


def test_where_redaction_fails_no_text_is_written_from_whatever_field(kp, written, stored):
    trace = ReasoningTrace.of(
        "a private errand", [Step(step_id=0, type="tool_call", input=bottomless())]
    )
    delta = KnowledgeGraphDelta(entities=[Entity(name="private", type="x")], relationships=[])

    kp.submit(
        trace.model_copy(update={"knowledge_graph_delta": delta, "source_skill": "a private skill"})
    )

    assert stored()["state"] == "failed"
    assert b"private errand" not in written()
    assert b"private skill" not in written()
    assert b'"name":"private"' not in written()


def test_a_submitted_trace_is_bounded_like_a_captured_run(kp, stored, db):
    kp.submit(ReasoningTrace.of("many", texts(3000, 20)))

    with closing(connect(db)) as connection:
        (body,) = connection.execute("SELECT body FROM documents").fetchone()
    trace = stored()
    assert (trace["state"], trace["step_count"], len(trace["steps"])) == ("scored", 3000, 1000)
    assert len(json.loads(body)["steps"]) == 1000


def test_a_submitted_trace_has_its_bound_in_bytes(kp, stored):
    kp.submit(ReasoningTrace.of("large", texts(60, 30_000)))

    assert stored()["step_count"] == 60
    assert len(str(stored()["steps"])) < 1.1 * 2**20


def test_a_text_too_large_to_be_redacted_is_cut_and_the_others_stay(pulse, stored):
    kp = pulse(sync=True, max_field_bytes=10**8, max_trace_bytes=10**8)

    kp.submit(
        ReasoningTrace.of(
            "large", [*texts(1, 2_500_000), Step(step_id=1, type="thought", content="b")]
        )
    )

    trace = stored()
    assert (trace["state"], trace["objective"], trace["steps"][1]["content"]) == (
        "scored",
        "large",
        "b",
    )
    assert "[cut: 2500000 characters in all]" in trace["steps"][0]["content"][-60:]


def test_a_step_of_too_many_values_goes_and_the_others_stay(pulse, stored, caplog):
    kp = pulse(sync=True, max_field_bytes=900_000)
    many = Step(step_id=0, type="tool_call", input={"values": [0] * 150_000}, content="of many")

    kp.submit(ReasoningTrace.of("large", [many, Step(step_id=1, type="thought", content="b")]))

    trace = stored()
    assert (trace["state"], trace["objective"], trace["steps"][1]["content"]) == (
        "scored",
        "large",
        "b",
    )
    assert trace["steps"][0]["output_summary"] == "(not kept: it is too large to be redacted)"
    assert "too_large" in caplog.text
