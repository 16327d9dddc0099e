"""Whole conversations, turn by turn on one thread: everything is recorded, in order, once."""

import json
from functools import reduce
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from recorded_conversations import (
    acts,
    agent_of,
    answered_turns,
    comparable,
    document_of,
    human_turns,
    on_one_thread,
    read_recordings,
)
from ways_to_run import ainvoke, invoke

from kp_langchain import KPCallbackHandler
from kp_middleware import ReasoningTrace
from kp_middleware.privacy import redact_trace
from kp_middleware.recording import ended, joined
from kp_middleware.traces import Limits

OURS = [*range(5)]
PARALLEL = [2, 4]  # those of ours that call several tools in one message
AIRLINE = [*range(100)]


@pytest.fixture(scope="session")
def ours():
    """Our own conversations, one of each kind."""
    return read_recordings(Path(__file__).with_name("conversations.jsonl"))


@pytest.fixture(scope="session")
def airline(shared):
    """A hundred recorded conversations of gpt-4o at an airline's desk."""
    path = shared / "data" / "tau_airline_gpt4o_open.jsonl.gz"
    return read_recordings(path) if path.exists() else pytest.skip(f"{path.name} is not here")


@pytest.fixture(scope="session")
def theirs(shared):
    """The shared module that makes the documents."""
    path = shared / "data" / "tau_to_traces.py"
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbered(source, numbers):
    return [pytest.param((source, number), id=f"{source} {number}") for number in numbers]


@pytest.fixture
def recording(request):
    """A recorded conversation."""
    source, number = request.param
    return request.getfixturevalue(source)[number]


def every_recording(ours=OURS, airline=()):
    """Parametrize with these conversations."""
    params = [*numbered("ours", ours), *numbered("airline", airline)]
    return pytest.mark.parametrize("recording", params, indirect=True)


def replay_turns(recording, handler, way=invoke, **options):
    """Hold the conversation again: an invoke for each human turn, as you iterate."""
    talking, config = agent_of(recording), on_one_thread(handler, **options)
    for said in human_turns(recording):
        yield way(talking, {"messages": said}, config)


def replay(recording, handler, way=invoke, **options):
    """Hold the whole conversation again."""
    list(replay_turns(recording, handler, way, **options))


def stored(connection):
    """State and document of each trace in the file."""
    rows = connection.execute(
        "SELECT t.state, d.body FROM traces t JOIN documents d ON d.trace_seq = t.seq"
    )
    return [(state, json.loads(body)) for state, body in rows]


def joined_run(runs):
    """One run out of the parts of a thread."""
    return reduce(lambda first, second: joined(first, second, Limits()), runs)


def redacted(document):
    trace = ReasoningTrace.model_validate(document)
    return redact_trace(trace, level="private").trace


@every_recording(airline=AIRLINE[2::8])
@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_each_answered_turn_is_a_trace_with_every_call_result_and_text_in_order_and_once(
    notebook, recording, way
):
    replay(recording, KPCallbackHandler(notebook), way)

    recorded = [act for run in notebook.runs for act in acts(run.trace)]
    assert recorded == acts(document_of(recording))
    assert [run.trace.task.objective for run in notebook.runs] == answered_turns(recording)


@every_recording(PARALLEL)
@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_tools_that_run_at_once_are_recorded_once_in_whatever_order(notebook, recording, way):
    replay(recording, KPCallbackHandler(notebook, scope="thread"), way, at_once=None)

    recorded = acts(joined_run(notebook.runs).trace)
    assert sorted(recorded, key=repr) == sorted(acts(document_of(recording)), key=repr)


STORED = AIRLINE[::4]  # redaction takes its time


@every_recording(airline=sorted({*AIRLINE} - {*STORED}))
def test_a_thread_is_the_document_of_its_conversation(notebook, recording):
    replay(recording, KPCallbackHandler(notebook, scope="thread"))

    thread = ended(joined_run(notebook.runs), success=recording["reward"] == 1, confidence=0.8)
    assert comparable(thread.trace) == comparable(document_of(recording))


@every_recording(airline=STORED)
def test_a_thread_is_stored_as_that_document_without_its_secrets(kp, connection, recording):
    states = [
        stored(connection)[0][0]
        for _ in replay_turns(recording, KPCallbackHandler(kp, scope="thread"))
    ]

    kp.end_thread("conversation", success=recording["reward"] == 1, confidence=0.8)

    [(state, document)] = stored(connection)
    assert states == ["paused"] * len(human_turns(recording))
    assert state == "scored"
    assert comparable(document) == comparable(redacted(document_of(recording)))


@every_recording()
def test_a_thread_is_that_document_also_in_an_event_loop(notebook, recording):
    replay(recording, KPCallbackHandler(notebook, scope="thread"), ainvoke)

    thread = ended(joined_run(notebook.runs), success=recording["reward"] == 1, confidence=0.8)
    assert comparable(thread.trace) == comparable(document_of(recording))


def test_how_sure_the_agent_is_holds_where_its_thread_ends_without_success(kp, connection, ours):
    unsuccessful = next(recording for recording in ours if recording["reward"] < 1)
    replay(unsuccessful, KPCallbackHandler(kp, scope="thread", confidence=lambda _: 0.8))

    kp.end_thread("conversation", success=False)

    [(_, document)] = stored(connection)
    assert document["outcome"]["confidence"] == 0.8


def test_the_first_human_turn_is_the_objective_also_where_nothing_answered_it(kp, connection):
    said = [("user", "One rye loaf."), ("assistant", ""), ("user", "Hello?"), ("assistant", "Yes.")]
    messages = [{"role": role, "content": content} for role, content in said]
    unanswered = {"task_id": "silence", "trial": 0, "reward": 1.0, "messages": messages}
    replay(unanswered, KPCallbackHandler(kp, scope="thread"))

    kp.end_thread("conversation", success=True)

    [(_, document)] = stored(connection)
    assert comparable(document) == comparable(document_of(unanswered))


def test_our_rule_makes_the_documents_that_the_shared_one_makes(airline, theirs):
    made = [comparable(document_of(recording)) for recording in airline]

    assert made == [comparable(theirs.trace(recording)) for recording in airline]
