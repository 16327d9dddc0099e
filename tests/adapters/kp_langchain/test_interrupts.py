"""A graph that waits for a human is one trace when it goes on: wherever, whenever, or never."""

import subprocess
import sys
import time
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path

import pytest
from conversations_in_a_file import risk, risking, save
from langchain_core.tools import tool
from langchain_notebook import line_of_row
from scripted_agents import add, agent
from scripted_models import ScriptedModel, calls, says
from versions import (
    START,
    Command,
    HumanInTheLoopMiddleware,
    InMemorySaver,
    MessagesState,
    StateGraph,
    create_agent,
    interrupt,
    needs,
)
from ways_to_run import ainvoke, astream, invoke, stream

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.storage import History

GO = {"messages": "go"}
ALLOWED = [
    "tool_call risk(amount=5)",
    "observation: may I?",
    "observation: yes",
    "observation risk: risked 5: yes",
    "thought: done",
]


@pytest.fixture
def pipeline(tmp_path):
    """A pipeline with settings of its own, on the one file of the test."""
    opened = []

    def open_one(**settings):
        kp = KnowledgePulse(db=tmp_path / "kp.db", embedder=None, sync=True, **settings)
        opened.append(kp)
        return kp

    yield open_one
    [kp.close() for kp in opened]


@pytest.fixture
def kp(pipeline):
    return pipeline()


@pytest.fixture
def traces(tmp_path):
    """Reads what is in the file."""

    def read():
        with closing(connect(tmp_path / "kp.db", read_only=True)) as connection:
            history = History(connection)
            return [history.trace(history.find(row["id"])) for row in history.latest(100)][::-1]

    return read


def on_thread(kp, thread_id="T", **options):
    return {
        "callbacks": [KPCallbackHandler(kp, **options)],
        "configurable": {"thread_id": thread_id},
    }


def story(trace):
    return [line_of_row(step) for step in trace["steps"]]


def test_case_21_a_run_that_waits_for_a_human_is_kept_and_not_scored(kp, traces):
    risking(InMemorySaver()).invoke(GO, on_thread(kp))

    [trace] = traces()
    assert story(trace) == ALLOWED[:2]
    assert (trace["state"], trace["score"], trace["error_type"]) == ("paused", None, None)


@pytest.mark.parametrize("run", [invoke, ainvoke, stream, astream])
def test_case_21_a_resumed_run_is_one_trace_with_the_human_s_decision(kp, traces, run):
    graph = risking(InMemorySaver())
    run(graph, GO, on_thread(kp))
    [paused] = traces()

    run(graph, Command(resume="yes"), on_thread(kp))

    [trace] = traces()
    assert story(trace) == ALLOWED
    assert (trace["id"], trace["seq"]) == (paused["id"], paused["seq"])
    assert (trace["state"], trace["success"], trace["objective"]) == ("scored", 1, "go")
    assert (trace["step_count"], trace["tool_count"]) == (5, 1)


GO_ON = """
import sys
from pathlib import Path
from conversations_in_a_file import load, risking
from versions import Command
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

with KnowledgePulse(db=sys.argv[1], embedder=None) as kp:
    config = {"callbacks": [KPCallbackHandler(kp)], "configurable": {"thread_id": "T"}}
    risking(load(Path(sys.argv[2]))).invoke(Command(resume="yes"), config)
"""


def test_case_21_another_process_may_resume_it(kp, traces, tmp_path):
    saver = InMemorySaver()
    risking(saver).invoke(GO, on_thread(kp))
    save(saver, tmp_path / "saver")
    kp.close()

    subprocess.run(
        [sys.executable, "-c", GO_ON, tmp_path / "kp.db", tmp_path / "saver"],
        check=True,
        cwd=Path(__file__).parent,
    )

    [trace] = traces()
    assert story(trace) == ALLOWED
    assert trace["state"] == "scored"


def test_case_21_what_nobody_resumes_is_incomplete_in_time(pipeline, traces):
    kp = pipeline(paused_ttl_s=0)
    risking(InMemorySaver()).invoke(GO, on_thread(kp))

    agent(says("hi")).invoke(GO, on_thread(kp, "another"))

    waited, _ = traces()
    assert (waited["state"], waited["score"]) == ("incomplete", None)
    assert waited["reason"] == "it was not resumed"


def test_case_21_a_worker_ends_it_with_no_run_to_wake_it(tmp_path, traces):
    with KnowledgePulse(db=tmp_path / "kp.db", embedder=None, paused_ttl_s=0.05) as kp:
        risking(InMemorySaver()).invoke(GO, on_thread(kp))
        kp.flush()
        while traces()[0]["state"] == "paused":
            time.sleep(0.01)

    [trace] = traces()
    assert trace["state"] == "incomplete"


def test_case_21_the_end_of_its_thread_ends_it(kp, traces):
    risking(InMemorySaver()).invoke(GO, on_thread(kp))

    kp.end_thread("T")

    [trace] = traces()
    assert (trace["state"], trace["reason"]) == ("incomplete", "it was not resumed")


def test_case_21_who_knows_better_may_end_it_well(kp, traces):
    risking(InMemorySaver()).invoke(GO, on_thread(kp))

    kp.end_thread("T", success=True, confidence=0.7)

    [trace] = traces()
    assert (trace["state"], trace["success"], trace["confidence"]) == ("scored", 1, 0.7)


def test_case_21_it_may_wait_more_than_once(kp, traces):
    @tool
    def ask_twice(about: str) -> str:
        """Ask two things."""
        return f"{about}: {interrupt('one?')}, {interrupt('two?')}"

    asking = agent(
        calls(ask_twice={"about": "all"}),
        says("done"),
        tools=[ask_twice],
        checkpointer=InMemorySaver(),
    )
    asking.invoke(GO, on_thread(kp))

    asking.invoke(Command(resume="1"), on_thread(kp))
    [between] = traces()
    asking.invoke(Command(resume="2"), on_thread(kp))

    [trace] = traces()
    assert between["state"] == "paused"
    assert story(trace) == [
        "tool_call ask_twice(about='all')",
        "observation: one?",
        "observation: 1",
        "observation: two?",
        "observation: 2",
        "observation ask_twice: all: 1, 2",
        "thought: done",
    ]


def test_case_21_in_a_subgraph_it_is_one_question(kp, traces):
    inner = StateGraph(MessagesState)
    inner.add_node("ask", lambda _: {"messages": [("ai", interrupt("sure?"))]})
    inner.add_edge(START, "ask")
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=InMemorySaver())
    graph.invoke(GO, on_thread(kp))

    graph.invoke(Command(resume="sure"), on_thread(kp))

    [trace] = traces()
    assert story(trace) == ["observation: sure?", "observation: sure"]
    assert (trace["state"], trace["result_summary"]) == ("scored", "sure")


@needs("pauses that are told")
def test_case_21_a_pause_before_a_node_is_one_as_well(kp, traces):
    graph = agent(
        calls("I add.", add={"a": 1, "b": 2}),
        says("3"),
        checkpointer=InMemorySaver(),
        interrupt_before=["tools"],
    )
    graph.invoke(GO, on_thread(kp))
    [paused] = traces()

    graph.invoke(None, on_thread(kp))

    [trace] = traces()
    assert paused["state"] == "paused"
    assert story(trace) == [
        "thought: I add.",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: 3",
    ]
    assert (trace["state"], trace["objective"]) == ("scored", "go")


@pytest.mark.parametrize(
    ("decision", "result"),
    [
        ({"type": "approve"}, "observation add: 3"),
        ({"type": "reject", "message": "no way"}, "error_recovery add: *no way"),
        pytest.param(
            {"type": "edit", "edited_action": {"name": "add", "args": {"a": 5, "b": 5}}},
            "observation add: 10",
            marks=needs("tool calls with ids"),
        ),
    ],
    ids=["approved", "rejected", "edited"],
)
def test_case_05_what_a_human_made_of_a_call_is_its_result(kp, traces, decision, result):
    graph = agent(
        calls("I add.", add={"a": 1, "b": 2}),
        says("ok"),
        tools=[add],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"add": True})],
        checkpointer=InMemorySaver(),
    )
    graph.invoke(GO, on_thread(kp))

    graph.invoke(Command(resume={"decisions": [decision]}), on_thread(kp))

    [trace] = traces()
    steps = story(trace)
    assert steps[:2] == ["thought: I add.", "tool_call add(a=1, b=2)"]
    assert "action_requests" in steps[2]
    assert decision["type"] in steps[3]
    assert fnmatch(steps[4], result)
    assert steps[5:] == ["thought: ok"]


def test_what_was_done_before_the_pause_is_not_told_twice(kp, traces):
    graph = agent(
        calls(add={"a": 1, "b": 2}, risk={"amount": 5}),
        says("done"),
        tools=[add, risk],
        checkpointer=InMemorySaver(),
    )
    graph.invoke(GO, on_thread(kp))

    graph.invoke(Command(resume="yes"), on_thread(kp))

    [trace] = traces()
    assert sorted(story(trace)) == sorted(
        [
            "tool_call add(a=1, b=2)",
            "tool_call risk(amount=5)",
            "observation add: 3",
            "observation: may I?",
            "observation: yes",
            "observation risk: risked 5: yes",
            "thought: done",
        ]
    )


def test_two_agents_of_one_thread_wait_apart(kp, traces):
    one, two = (
        agent(
            calls(risk={"amount": amount}),
            says("done"),
            tools=[risk],
            checkpointer=InMemorySaver(),
            name=name,
        )
        for name, amount in (("one", 1), ("two", 2))
    )
    one.invoke(GO, on_thread(kp))
    two.invoke(GO, on_thread(kp))

    one.invoke(Command(resume="yes"), on_thread(kp))

    first, second = traces()
    assert (first["state"], second["state"]) == ("scored", "paused")
    assert "observation risk: risked 1: yes" in story(first)


def test_an_answer_by_its_question_s_id_goes_to_who_asked(kp, traces):
    asked = risking(InMemorySaver())
    other = risking(InMemorySaver())
    [question] = asked.invoke(GO, on_thread(kp))["__interrupt__"]
    other.invoke(GO, on_thread(kp))

    asked.invoke(Command(resume={question.id: "yes"}), on_thread(kp))

    first, second = traces()
    assert (first["state"], second["state"]) == ("scored", "paused")
    assert story(first) == ALLOWED


def test_a_captured_function_may_ask_the_human_itself(kp, traces):
    graph = risking(InMemorySaver())

    @kp.capture
    def answer(question):
        graph.invoke({"messages": question}, on_thread(kp))
        return graph.invoke(Command(resume="yes"), on_thread(kp))["messages"][-1].text

    answer("go")

    [trace] = traces()
    assert story(trace) == ALLOWED
    assert (trace["state"], trace["result_summary"]) == ("scored", "done")


def test_captured_functions_around_a_pause_are_one_trace(kp, traces):
    graph = risking(InMemorySaver())

    @kp.capture(name="risking")
    def begin(question):
        graph.invoke({"messages": question}, on_thread(kp))

    @kp.capture(name="risking")
    def decide(decision):
        return graph.invoke(Command(resume=decision), on_thread(kp))["messages"][-1].text

    begin("go")
    [paused] = traces()
    decide("yes")

    [trace] = traces()
    assert (paused["state"], trace["state"], trace["objective"]) == ("paused", "scored", "go")
    assert story(trace)[:2] == ALLOWED[:2]
    assert story(trace)[-3:] == ALLOWED[-3:]


def test_a_pause_with_no_thread_to_find_it_by_is_incomplete(kp, traces):
    inner = risking(InMemorySaver())

    @kp.capture
    def answer(question):
        inner.invoke({"messages": question}, {"configurable": {"thread_id": "T"}})

    with_handler = agent(says("hi"))
    with_handler.invoke(GO, {"callbacks": [KPCallbackHandler(kp)]})
    answer("go")

    assert {trace["state"] for trace in traces()} == {"scored"}


def test_an_agent_that_a_tool_runs_with_a_thread_of_its_own_may_wait_alone(kp, traces):
    inner = risking(InMemorySaver())

    @tool
    def delegate(task: str) -> str:
        """Let another agent do it."""
        inner.invoke({"messages": task}, {"configurable": {"thread_id": "inner"}})
        return "they wait for you"

    outer = agent(calls(delegate={"task": "risk it"}), says("ok"), tools=[delegate])
    outer.invoke(GO, {"callbacks": [KPCallbackHandler(kp)]})

    [trace] = traces()
    assert trace["state"] == "scored"
    assert story(trace)[-2:] == ["observation delegate: they wait for you", "thought: ok"]


def test_an_answer_that_nobody_waits_for_is_a_trace_of_its_own(kp, traces):
    graph = risking(InMemorySaver())
    graph.invoke(GO, {"configurable": {"thread_id": "T"}})

    graph.invoke(Command(resume="yes"), on_thread(kp))

    [trace] = traces()
    assert story(trace) == [
        "observation: yes",
        "tool_call risk(amount=5)",
        "observation risk: risked 5: yes",
        "thought: done",
    ]


def test_a_thread_id_that_reads_like_a_secret_is_found_and_not_written(kp, traces, tmp_path):
    secret = "ghp_" + "a1B2" * 9
    graph = risking(InMemorySaver())
    graph.invoke(GO, on_thread(kp, secret))

    graph.invoke(Command(resume="yes"), on_thread(kp, secret))

    [trace] = traces()
    assert story(trace) == ALLOWED
    assert secret.encode() not in (tmp_path / "kp.db").read_bytes()


def test_a_model_that_fails_after_the_pause_fails_the_whole_run(kp, traces):
    class Falls(ScriptedModel):
        def _generate(self, messages, *_, **__):
            if any(message.type == "tool" for message in messages):
                raise ConnectionError("gone")
            return super()._generate(messages)

    graph = create_agent(
        Falls(turns=[calls(risk={"amount": 5})]), [risk], checkpointer=InMemorySaver()
    )
    graph.invoke(GO, on_thread(kp))

    with pytest.raises(ConnectionError):
        graph.invoke(Command(resume="yes"), on_thread(kp))

    [trace] = traces()
    assert (trace["state"], trace["success"], trace["error_type"]) == (
        "scored",
        0,
        "ConnectionError",
    )
