"""Stored and sent runs are bounded; a secret found in one place is removed everywhere."""

import json
import random
import string

import pytest
from pipeline_helpers import column_of, trace_of, warnings_in

from kp_middleware import ReasoningTrace, Step, current_trace
from kp_middleware.recording import Place
from kp_middleware.traces import Entity, KnowledgeGraphDelta

_random = random.Random(20260612)
SECRET = "Quiet-" + "".join(_random.choices(string.ascii_letters + string.digits, k=10)) + "7!"
TOLD = f"Log in with password={SECRET} please"


class RefusedError(Exception):
    """Quotes what it was given, as errors do."""


WAYS = {
    "in the same text": [("thought", f"{TOLD}. I typed {SECRET}.")],
    "in an earlier step": [("thought", f"I try {SECRET}"), ("thought", TOLD)],
    "in a later step": [("thought", TOLD), ("observation", f"you typed {SECRET}")],
    "in an error of a tool": [
        ("thought", TOLD),
        ("tool_call", "login", {"as": "anna", "with": [SECRET]}),
        ("error", RefusedError(f"{SECRET!r} is not right")),
    ],
    "in a key": [("thought", TOLD), ("tool_call", "count", {SECRET: 1})],
    "in JSON in a text": [
        ("tool_call", "login", {"password": SECRET}),
        ("observation", f'{{"log": "{{\\"typed\\": \\"{SECRET}\\"}}"}}'),
    ],
}
FACTS = {
    "in a tag": {"tags": ("nightly", SECRET)},
    "in the id of its thread": {"thread_id": SECRET},
    "in the name of its agent": {"agent_name": SECRET},
}


@pytest.fixture
def kp(pulse, sending):
    return pulse(**sending, privacy_level="private")


@pytest.fixture
def assert_secret_is_nowhere(kp, registry, written):
    """Holds the file, and what was sent, against the secret."""

    def look():
        kp.flush()
        [sent] = registry.requests
        assert b"[REDACTED:" in sent.body
        assert SECRET.encode() not in written() + sent.body

    return look


@pytest.mark.parametrize("steps", WAYS.values(), ids=WAYS.keys())
def test_a_secret_found_once_is_in_no_step(kp, assert_secret_is_nowhere, steps):
    @kp.capture
    def agent():
        for kind, *what in steps:
            getattr(current_trace(), kind)(*what)

    agent()

    assert_secret_is_nowhere()


@pytest.mark.parametrize("facts", FACTS.values(), ids=FACTS.keys())
def test_nor_is_it_in_a_fact_about_the_run_its_task_or_its_result(
    kp, assert_secret_is_nowhere, facts
):
    @kp.capture
    def agent(question):
        current_trace().thought(TOLD)
        for name, value in facts.items():
            setattr(current_trace(), name, value)
        return f"it was {question}"

    agent(SECRET)

    assert_secret_is_nowhere()


def test_a_secret_told_by_a_tag_is_in_no_step(kp, assert_secret_is_nowhere):
    @kp.capture
    def agent():
        current_trace().thought(f"I typed {SECRET}")
        current_trace().tags = (TOLD,)

    agent()

    assert_secret_is_nowhere()


def test_the_text_of_an_error_that_ends_a_run_is_not_written_with_its_secret(kp, written):
    @kp.capture
    def ask():
        current_trace().thought(TOLD)
        raise RefusedError(SECRET)

    with pytest.raises(RefusedError):
        ask()
    kp.flush()

    assert SECRET.encode() not in written()
    assert b"RefusedError" in written()


def test_what_was_taken_out_is_counted_in_every_place_of_its_run_and_in_no_other(pulse, stored):
    kp = pulse(sync=True)
    said = [Step(step_id=0, type="thought", content=f"I typed {SECRET}")]

    kp.submit(trace_of(TOLD, steps=said, result_summary=SECRET))
    first = stored()
    kp.submit(trace_of("hello", steps=said))

    assert first["redactions"] == {"password": 3}
    assert stored()["steps"][0]["content"] == f"I typed {SECRET}"


LOGIN = "password=hunter2" + "horse" * 3


@pytest.fixture
def at_once(pulse):
    return pulse(sync=True)


def deeply_nested():
    inner = {}
    [inner := {"deeper": inner} for _ in range(200)]
    return inner


def thoughts(count, size):
    return [Step(step_id=at, type="thought", content=f"{at} " * (size // 2)) for at in range(count)]


FACTS_ALONE = {
    **dict.fromkeys(("thread_id", "model", "agent_name", "error_type"), LOGIN),
    "tags": ("nightly", LOGIN),
}


@pytest.mark.parametrize("fact", [*FACTS_ALONE, "agent of a step"])
def test_a_secret_in_a_fact_about_the_run_is_not_written(at_once, written, fact):
    recorder = at_once.start_recording("python")
    place = Place(agent="an agent within" if fact in FACTS_ALONE else LOGIN)
    recorder.note("thought", "said", place=place)
    if fact in FACTS_ALONE:
        setattr(recorder, fact, FACTS_ALONE[fact])

    recorder.finish()

    assert at_once.stats().scored == 1
    assert (b"an agent within" in written(), b"nightly" in written()) == (
        fact in FACTS_ALONE,
        fact == "tags",
    )
    assert b"hunter2" not in written()


def test_where_redaction_fails_no_text_is_written_from_any_field(at_once, written, stored, caplog):
    steps = [Step(step_id=0, type="tool_call", input=deeply_nested())]
    trace = ReasoningTrace.of("a private errand", steps, domain=f"of {LOGIN}")
    delta = KnowledgeGraphDelta(entities=[Entity(name="private", type="x")], relationships=[])

    at_once.submit(
        trace.model_copy(update={"knowledge_graph_delta": delta, "source_skill": "a private skill"})
    )

    assert (stored()["state"], stored()["step_count"]) == ("failed", 1)
    assert "too_deep" in stored()["reason"]
    assert len(warnings_in(caplog)) == 1
    for text in b"private errand", b"private skill", b'"name":"private"', b"hunter2":
        assert text not in written()


def test_a_submitted_trace_is_bounded_like_a_captured_run(at_once, stored, db):
    at_once.submit(ReasoningTrace.of("many", thoughts(3000, 20)))

    trace, [body] = stored(), column_of(db, "body", "documents")
    assert (trace["state"], trace["step_count"], len(trace["steps"])) == ("scored", 3000, 1000)
    assert len(json.loads(body)["steps"]) == 1000


def test_a_submitted_trace_has_its_bound_in_bytes(at_once, stored):
    at_once.submit(ReasoningTrace.of("large", thoughts(60, 30_000)))

    assert stored()["step_count"] == 60
    assert len(str(stored()["steps"])) < 1.1 * 2**20


@pytest.mark.parametrize(
    ("settings", "large", "told"),
    [
        (
            {"max_field_bytes": 10**6, "max_trace_bytes": 10**8},
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
