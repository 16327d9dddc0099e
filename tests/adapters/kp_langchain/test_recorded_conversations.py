"""Whole conversations, turn by turn on one thread: everything is recorded, in order, once."""

import json
import sqlite3
from contextlib import closing
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
from kp_middleware import KnowledgePulse, ReasoningTrace
from kp_middleware.privacy import redact_trace
from kp_middleware.recording import Limits, ended, joined

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


@pytest.fixture(params=[*numbered("ours", OURS), *numbered("airline", AIRLINE)])
def recording(request):
    """Each recorded conversation."""
    source, number = request.param
    return request.getfixturevalue(source)[number]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kp.db"


@pytest.fixture
def kp(path):
    with KnowledgePulse(db=path, embedder=None, sync=True) as kp:
        yield kp


def held(recording, handler, way=invoke, **options):
    """Hold the conversation again: an invoke for each human turn, as you iterate."""
    talking, config = agent_of(recording), on_one_thread(handler, **options)
    for said in human_turns(recording):
        yield way(talking, {"messages": said}, config)


def hold(recording, handler, way=invoke, **options):
    """Hold the whole conversation again."""
    list(held(recording, handler, way, **options))


def stored(path):
    """State and document of each trace in the file."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT t.state, d.body FROM traces t JOIN documents d ON d.trace_seq = t.seq"
        ).fetchall()
    return [(state, json.loads(body)) for state, body in rows]


def whole(runs):
    """One run out of the parts of a thread."""
    return reduce(lambda first, second: joined(first, second, Limits()), runs)


def succeeded(recording):
    return recording["reward"] == 1.0


def redacted(document):
    trace = ReasoningTrace.model_validate(document)
    return redact_trace(trace, level="private").trace


def test_every_call_result_and_text_is_in_the_traces_of_the_turns_in_order_and_once(
    notebook, recording
):
    hold(recording, KPCallbackHandler(notebook))

    recorded = [act for run in notebook.runs for act in acts(run.trace)]
    assert recorded == acts(document_of(recording))


@pytest.mark.parametrize("way", [invoke, ainvoke])
@pytest.mark.parametrize("number", OURS)
def test_each_turn_that_is_answered_is_a_trace_of_its_own(notebook, ours, number, way):
    hold(ours[number], KPCallbackHandler(notebook), way)

    asked = [run.trace.task.objective for run in notebook.runs]
    assert asked == answered_turns(ours[number])


@pytest.mark.parametrize("way", [invoke, ainvoke])
@pytest.mark.parametrize("number", PARALLEL)
def test_tools_that_run_at_once_are_recorded_once_in_whatever_order(notebook, ours, number, way):
    hold(ours[number], KPCallbackHandler(notebook, scope="thread"), way, at_once=None)

    recorded = acts(whole(notebook.runs).trace)
    assert sorted(recorded, key=repr) == sorted(acts(document_of(ours[number])), key=repr)


def test_a_thread_is_the_document_of_its_conversation(notebook, recording):
    hold(recording, KPCallbackHandler(notebook, scope="thread"))

    thread = ended(whole(notebook.runs), success=succeeded(recording), confidence=0.8)
    assert comparable(thread.trace) == comparable(document_of(recording))


@pytest.mark.parametrize("number", OURS)
def test_a_thread_is_that_document_also_in_an_event_loop(notebook, ours, number):
    hold(ours[number], KPCallbackHandler(notebook, scope="thread"), ainvoke)

    thread = ended(whole(notebook.runs), success=succeeded(ours[number]), confidence=0.8)
    assert comparable(thread.trace) == comparable(document_of(ours[number]))


@pytest.mark.parametrize(
    "recording",
    [*numbered("ours", OURS), *numbered("airline", AIRLINE[::4])],  # redaction takes its time
    indirect=True,
)
def test_a_thread_is_stored_as_that_document_without_its_secrets(kp, path, recording):
    hold(recording, KPCallbackHandler(kp, scope="thread"))

    kp.end_thread("conversation", success=succeeded(recording), confidence=0.8)

    [(state, document)] = stored(path)
    assert state == "scored"
    assert comparable(document) == comparable(redacted(document_of(recording)))


@pytest.mark.parametrize("number", OURS)
def test_a_thread_waits_in_the_file_after_each_turn(kp, path, ours, number):
    handler = KPCallbackHandler(kp, scope="thread")

    after_each = [stored(path) for _ in held(ours[number], handler)]

    states = [[state for state, _ in traces] for traces in after_each]
    assert states == [["paused"]] * len(human_turns(ours[number]))


def test_how_sure_the_agent_is_holds_where_its_thread_ends_without_success(kp, path, ours):
    unsuccessful = next(recording for recording in ours if not succeeded(recording))
    hold(unsuccessful, KPCallbackHandler(kp, scope="thread", confidence=lambda _: 0.8))

    kp.end_thread("conversation", success=False)

    [(_, document)] = stored(path)
    assert document["outcome"]["confidence"] == 0.8


def test_the_first_human_turn_is_the_objective_also_where_nothing_answered_it(kp, path):
    said = [("user", "One rye loaf."), ("assistant", ""), ("user", "Hello?"), ("assistant", "Yes.")]
    messages = [{"role": role, "content": content} for role, content in said]
    unanswered = {"task_id": "silence", "trial": 0, "reward": 1.0, "messages": messages}
    hold(unanswered, KPCallbackHandler(kp, scope="thread"))

    kp.end_thread("conversation", success=True)

    [(_, document)] = stored(path)
    assert comparable(document) == comparable(document_of(unanswered))


@pytest.mark.parametrize("number", OURS)
def test_our_own_conversations_hold_nothing_that_would_be_taken_out(ours, number):
    document = document_of(ours[number])

    assert comparable(redacted(document)) == comparable(document)


def test_our_rule_makes_the_documents_that_the_shared_one_makes(airline, theirs):
    made = [comparable(document_of(recording)) for recording in airline]

    assert made == [comparable(theirs.trace(recording)) for recording in airline]
