# ruff: noqa: ARG001 - agents are asked something
"""Facts about each step beside the document: its start, call and parent."""

import json
import time

import pytest

from kp_middleware import current_trace
from kp_middleware.instants import epoch_s

FACTS = "type, agent, call_id, parent, model, input_tokens, output_tokens, model_latency_ms"


@pytest.fixture
def rows(connection):
    return lambda query: connection.execute(query).fetchall()


def test_steps_in_a_tool_have_its_call_as_their_parent(kp, rows):
    @kp.tool
    def look(what):
        current_trace().thought(f"looking for {what}")
        return what

    @kp.capture
    def ask(question):
        current_trace().thought("I look twice.")
        return look("cats") + look("dogs")

    ask("What is there?")

    first, second = rows("SELECT call_id FROM steps WHERE type = 'tool_call' ORDER BY step_id")
    assert first != second
    assert rows("SELECT type, call_id, parent FROM steps ORDER BY step_id") == [
        ("thought", None, None),
        *[("tool_call", *first, None), ("thought", None, *first), ("observation", *first, None)],
        *[("tool_call", *second, None), ("thought", None, *second)],
        ("observation", *second, None),
    ]


def test_a_step_begins_when_its_tool_or_model_began(kp, rows):
    @kp.tool
    def look():
        time.sleep(0.05)

    @kp.capture
    def ask(question):
        look()
        current_trace().thought("slow", latency_ms=60_000)

    before = time.time()
    ask("What is there?")

    call, result, thought = [epoch_s(at) for (at,) in rows("SELECT started_at FROM steps")]
    assert before - 0.001 <= call <= result + 0.001  # each is rounded
    assert result < time.time() - 0.04
    assert thought < before - 50


@pytest.mark.parametrize("latency_ms", ["7", -1, float("nan"), float("inf"), 10**400], ids=repr)
def test_an_invalid_latency_is_left_out(kp, rows, latency_ms):
    @kp.capture
    def ask(question):
        current_trace().thought("3", latency_ms=latency_ms)
        current_trace().observation("4", latency_ms=latency_ms)

    ask("1 + 2?")

    assert rows("SELECT model_latency_ms, latency_ms FROM steps") == [(None, None)] * 2


def test_a_thought_has_the_facts_of_its_model_call(kp, rows):
    @kp.capture
    def ask(question):
        current_trace().thought("3", model="m-1", input_tokens=9, output_tokens=4, latency_ms=1.5)

    ask("1 + 2?")

    assert rows(f"SELECT {FACTS} FROM steps") == [("thought", None, None, None, "m-1", 9, 4, 1.5)]
    assert rows("SELECT model, input_tokens, output_tokens FROM traces") == [("m-1", 9, 4)]
    assert rows("SELECT body ->> '$.steps' FROM documents") == [
        (json.dumps([{"step_id": 0, "type": "thought", "content": "3"}], separators=(",", ":")),)
    ]


def test_a_call_has_the_id_that_it_is_given_but_not_in_clear(kp, rows):
    @kp.capture
    def ask(question):
        current_trace().tool_call("look", {}, call_id="c-1")
        current_trace().observation("found", tool="look", call_id="c-1")

    ask("What is there?")

    (one, other) = rows("SELECT call_id FROM steps")
    assert one == other
    assert "c-1" not in one[0]


@pytest.mark.parametrize(
    ("feedback", "sources"),
    [
        ({"success": False}, ("assumed", "feedback")),
        ({"confidence": 0.9}, ("feedback", "assumed")),
        ({"confidence": 0.9, "success": True}, ("feedback", "feedback")),
    ],
)
def test_feedback_is_the_source_of_what_it_states(kp, rows, feedback, sources):
    kp.capture(str.upper)("Is it?")
    [(trace_id, *before)] = rows("SELECT id, confidence_source, success_source FROM traces")

    kp.feedback(trace_id, **feedback)

    assert before == ["assumed", "assumed"]
    assert rows("SELECT confidence_source, success_source FROM traces") == [sources]
