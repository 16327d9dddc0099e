"""A graph that waits for a human is one trace when it goes on: wherever, whenever, or never."""

import subprocess
import sys
import time
import uuid
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path

import pytest
from conversations_in_a_file import risk, risking, save
from langchain_core.runnables import RunnableLambda
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
from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.recording import current_recorder
from kp_middleware.storage import History
from kp_middleware.views.trace import run_as_json

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
            return [
                run_as_json(history.run(history.find(row.id))) for row in history.runs(limit=100)
            ][::-1]

    return read


def answering_itself(kp, graph):
    """A captured function that asks the graph, and answers what the graph asks."""

    @kp.capture
    def answer(question):
        graph.invoke({"messages": question}, on_thread(kp))
        return graph.invoke(Command(resume="yes"), on_thread(kp))["messages"][-1].text

    return answer


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
    assert (trace["state"], trace["success"], trace["objective"]) == ("scored", None, "go")
    assert (trace["step_count"], trace["tool_count"]) == (5, 1)


GO_ON = """
import sys
from pathlib import Path
from conversations_in_a_file import load, risking
from versions import Command
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse, current_trace

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


@needs("agents that say their name")
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

    answering_itself(kp, graph)("go")

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
    @kp.capture
    def answer(_):
        current_trace().tool_call("ask")
        current_recorder().thread_notes.awaits = "human"

    answer("go")

    [trace] = traces()
    assert (trace["state"], trace["success"]) == ("incomplete", 0)


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
    written = [b"".join(path.read_bytes() for path in tmp_path.iterdir())]

    graph.invoke(Command(resume="yes"), on_thread(kp, secret))

    [trace] = traces()
    written += [path.read_bytes() for path in tmp_path.iterdir()]
    assert story(trace) == ALLOWED
    assert all(secret.encode() not in some for some in written)


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


ANY_UUID = pytest.param(uuid.UUID(int=7), marks=needs("thread ids of any kind"))


@pytest.mark.parametrize("thread_id", [ANY_UUID, 7, 7.5, "ü\0" * 300], ids=repr)
def test_a_thread_id_may_be_anything(kp, traces, thread_id):
    graph = agent(says("1"), says("2"))
    turns = on_thread(kp, thread_id, scope="thread")
    graph.invoke({"messages": "one"}, turns)
    graph.invoke({"messages": "two"}, turns)

    kp.end_thread(thread_id, success=True)

    [trace] = traces()
    assert story(trace) == ["thought: 1", "observation: two", "thought: 1"]


def test_runs_of_one_thread_may_be_named_as_they_like(kp, traces):
    graph = risking(InMemorySaver())
    graph.invoke(GO, {**on_thread(kp), "run_name": "ask"})

    graph.invoke(Command(resume="yes"), {**on_thread(kp), "run_name": "go on"})

    [trace] = traces()
    assert story(trace) == ALLOWED


@pytest.mark.parametrize(
    "around",
    [
        lambda graph: graph.with_retry(),
        lambda graph: graph.with_fallbacks([graph]),
        lambda graph: RunnableLambda(lambda given: given) | graph,
    ],
    ids=["retries", "fallbacks", "a chain"],
)
def test_a_graph_in_a_chain_may_wait_as_well(kp, traces, around):
    chain = around(risking(InMemorySaver()))
    chain.invoke(GO, on_thread(kp))

    chain.invoke(Command(resume="yes"), on_thread(kp))

    [trace] = traces()
    assert story(trace) == ALLOWED
    assert trace["state"] == "scored"


def resumed_at_once(question):
    """A graph that waits, and is answered by the program."""
    graph, own = risking(InMemorySaver()), {"configurable": {"thread_id": "inner"}}
    graph.invoke({"messages": question}, own)
    return graph.invoke(Command(resume="yes"), own)["messages"][-1].text


@needs("tool calls with ids")
def test_a_run_that_answers_itself_is_complete(kp, traces):
    RunnableLambda(resumed_at_once).invoke("go", {"callbacks": [KPCallbackHandler(kp)]})

    [trace] = traces()
    assert (trace["state"], trace["success"]) == ("scored", None)
    assert story(trace) == ALLOWED


@pytest.mark.parametrize("leaves", [False, True], ids=["and answers it", "and leaves it waiting"])
def test_a_node_that_calls_a_graph_with_a_thread_of_its_own_ends_as_a_node(kp, traces, leaves):
    def node(_):
        if leaves:
            risking(InMemorySaver()).invoke(GO, {"configurable": {"thread_id": "inner"}})
            return {"messages": [("ai", "it waits")]}
        return {"messages": [("ai", resumed_at_once("go"))]}

    outer = StateGraph(MessagesState)
    outer.add_node("node", node)
    outer.add_edge(START, "node")

    outer.compile(checkpointer=InMemorySaver()).invoke(GO, on_thread(kp))

    [trace] = traces()
    assert (trace["state"], trace["success"]) == ("scored", None)


def test_a_question_that_nobody_answers_is_left_when_the_thread_goes_another_way(kp, traces):
    graph = agent(
        calls(risk={"amount": 5}), says("bye"), tools=[risk], checkpointer=InMemorySaver()
    )
    graph.invoke(GO, on_thread(kp))
    graph.invoke({"messages": "forget it"}, on_thread(kp))

    graph.invoke(None, on_thread(kp))

    waits, *_ = traces()
    assert (waits["state"], story(waits)) == ("paused", ALLOWED[:2])


def test_questions_asked_at_once_and_answered_one_by_one_are_each_asked_once(kp, traces):
    def ask(number):
        return lambda _: {"messages": [("human", interrupt(f"{number}?"))]}

    asking = StateGraph(MessagesState)
    for number in range(3):
        asking.add_node(f"ask {number}", ask(number))
        asking.add_edge(START, f"ask {number}")
    graph = asking.compile(checkpointer=InMemorySaver())
    asked = graph.invoke(GO, on_thread(kp))["__interrupt__"]

    for question in asked:
        graph.invoke(Command(resume={question.id: f"{question.value}!"}), on_thread(kp))

    [trace] = traces()
    assert trace["state"] == "scored"
    assert sorted(story(trace)) == sorted(
        f"observation: {number}?{end}" for number in range(3) for end in ("", "!")
    )


def test_a_captured_function_that_asks_itself_tells_nothing_twice(kp, traces):
    graph = agent(
        calls(add={"a": 1, "b": 2}, risk={"amount": 5}),
        says("done"),
        tools=[add, risk],
        checkpointer=InMemorySaver(),
    )

    answering_itself(kp, graph)("go")

    [trace] = traces()
    assert len(story(trace)) == len(set(story(trace))) == 7


def test_a_run_that_fails_beside_a_question_has_failed(kp, traces):
    def fail(_):
        raise ValueError("no")

    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda _: {"messages": [("human", interrupt("sure?"))]})
    graph.add_node("fail", fail)
    graph.add_node(
        "speak", lambda _: {"messages": [ScriptedModel(turns=[says("hi")]).invoke("go")]}
    )
    [graph.add_edge(START, node) for node in ("ask", "fail", "speak")]

    with pytest.raises(ValueError, match="no"):
        graph.compile(checkpointer=InMemorySaver()).invoke(GO, on_thread(kp))

    [trace] = traces()
    assert (trace["state"], trace["error_type"]) == ("scored", "ValueError")


def test_answering_twice_is_no_run(kp, traces):
    graph = risking(InMemorySaver())
    graph.invoke(GO, on_thread(kp))
    graph.invoke(Command(resume="yes"), on_thread(kp))

    graph.invoke(Command(resume="yes"), on_thread(kp))

    assert len(traces()) == 1


def test_a_thread_that_fails_in_one_turn_and_goes_on_has_recovered(kp, traces):
    class Falls(ScriptedModel):
        def _turn(self, messages):
            if messages[-1].text == "fail":
                raise ConnectionError("gone")
            return says("hi")

    graph = create_agent(Falls(turns=[]), [])
    turns = on_thread(kp, scope="thread")
    with pytest.raises(ConnectionError):
        graph.invoke({"messages": "fail"}, turns)

    graph.invoke({"messages": "again"}, turns)
    kp.end_thread("T")

    [trace] = traces()
    assert story(trace)[0] == "error_recovery: ConnectionError: gone"
    assert (trace["success"], trace["recovery_count"]) == (None, 1)


def test_a_thread_whose_last_turn_fails_has_failed(kp, traces):
    class Falls(ScriptedModel):
        def _turn(self, _):
            raise ConnectionError("gone")

    turns = on_thread(kp, scope="thread")
    with pytest.raises(ConnectionError):
        create_agent(Falls(turns=[]), []).invoke(GO, turns)

    kp.end_thread("T")

    [trace] = traces()
    assert story(trace) == ["observation: ConnectionError: gone"]
    assert (trace["success"], trace["error_type"]) == (0, "ConnectionError")


def test_agents_of_one_thread_take_turns_in_one_trace(kp, traces):
    turns = on_thread(kp, scope="thread")
    agent(says("hi"), name="one").invoke(GO, turns)
    agent(says("bye"), name="two").invoke({"messages": "and you?"}, turns)

    kp.end_thread("T", success=True)

    [trace] = traces()
    assert story(trace) == ["thought: hi", "observation: and you?", "thought: bye"]


def test_an_idle_thread_ends_also_where_everything_is_done_at_once(pipeline, traces):
    kp = pipeline(thread_idle_s=0.0)
    agent(says("hi")).invoke(GO, on_thread(kp, scope="thread"))

    kp.flush()

    [trace] = traces()
    assert trace["state"] == "scored"


def test_turns_that_tell_nothing_keep_no_thread_waiting(kp, traces):
    silent = agent(says(""))
    turns = on_thread(kp, scope="thread")
    [silent.invoke({"messages": []}, turns) for _ in range(3)]
    agent(says("hi")).invoke(GO, on_thread(kp, "another", scope="thread"))

    kp.end_thread("T")
    kp.end_thread("another")

    assert [(trace["state"], story(trace)) for trace in traces()] == [("scored", ["thought: hi"])]


def test_a_run_that_waits_and_cannot_be_read_keeps_no_other_waiting(kp, traces, tmp_path):
    for thread in ("broken", "T"):
        agent(says("hi")).invoke(GO, on_thread(kp, thread, scope="thread"))
    with closing(connect(tmp_path / "kp.db")) as connection:
        connection.execute("UPDATE documents SET body = '{}' WHERE trace_seq = 1")

    kp.end_thread("broken")
    kp.end_thread("T")

    assert [trace["state"] for trace in traces()] == ["failed", "scored"]
