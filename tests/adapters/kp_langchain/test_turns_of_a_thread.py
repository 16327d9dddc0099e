"""The turns of a conversation are one trace when their thread ends."""

import uuid

import pytest
from langchain_notebook import stored_run, stored_runs, story
from scripted_agents import GO, agent
from scripted_models import FlakyModel, answer_of
from versions import create_agent, needs
from waiting_agents import on_thread

from kp_middleware import KnowledgePulse

ANY_UUID = pytest.param(uuid.UUID(int=7), marks=needs("thread ids of any kind"))


@pytest.mark.parametrize("thread_id", [ANY_UUID, 7, 7.5, "ü\0" * 300], ids=repr)
def test_turns_of_a_thread_are_one_trace_whatever_its_id_and_whoever_takes_them(kp, thread_id):
    turns = on_thread(kp, thread_id, scope="thread")
    agent(answer_of("hi"), name="one").invoke(GO, turns)
    agent(answer_of("bye"), name="two").invoke({"messages": "and you?"}, turns)

    kp.end_thread(thread_id, success=True)

    assert story(stored_run(kp)) == ["thought: hi", "observation: and you?", "thought: bye"]


@pytest.mark.parametrize(
    ("goes_on", "step", "ended"),
    [
        (True, "error_recovery: ConnectionError: gone", (None, None, 1)),
        (False, "observation: ConnectionError: gone", (False, "ConnectionError", 0)),
    ],
)
def test_a_thread_has_failed_if_its_last_turn_did(kp, goes_on, step, ended):
    graph = create_agent(FlakyModel(turns=[answer_of("hi")], errors=["gone"]), [])
    turns = on_thread(kp, scope="thread")
    with pytest.raises(ConnectionError):
        graph.invoke(GO, turns)
    if goes_on:
        graph.invoke({"messages": "again"}, turns)

    kp.end_thread("T")

    run = stored_run(kp)
    assert story(run)[0] == step
    assert (run.known_success, run.error_type, run.recovery_count) == ended


def test_an_idle_thread_ends_also_where_everything_is_done_at_once(db):
    with KnowledgePulse(db=db, embedder=None, sync=True, thread_idle_s=0.0) as kp:
        agent(answer_of("hi")).invoke(GO, on_thread(kp, scope="thread"))

        kp.flush()

        assert stored_run(kp).state == "scored"


def test_turns_that_tell_nothing_keep_no_thread_waiting(kp):
    silent, turns = agent(answer_of("")), on_thread(kp, scope="thread")
    [silent.invoke({"messages": []}, turns) for _ in range(3)]
    agent(answer_of("hi")).invoke(GO, on_thread(kp, "another", scope="thread"))

    kp.end_thread("T")
    kp.end_thread("another")

    assert (stored_run(kp).state, story(stored_run(kp))) == ("scored", ["thought: hi"])


def test_a_run_that_waits_and_cannot_be_read_keeps_no_other_waiting(kp, connection):
    for thread in ("broken", "T"):
        agent(answer_of("hi")).invoke(GO, on_thread(kp, thread, scope="thread"))
    connection.execute("UPDATE documents SET body = '{}' WHERE trace_seq = 1")

    kp.end_thread("broken")
    kp.end_thread("T")

    assert [run.state for run in stored_runs(kp)] == ["failed", "scored"]
