"""A graph that waits for a human is one trace when it goes on: wherever, whenever, or never."""

import time
from dataclasses import asdict
from fnmatch import fnmatch

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_notebook import stored_run, stored_runs, story
from scripted_agents import GO, add, agent, graph_of, speaking
from scripted_models import answer_of, calls
from versions import Command, HumanInTheLoopMiddleware, InMemorySaver, interrupt, needs
from waiting_agents import on_thread, risk, risking
from ways_to_run import ainvoke, astream, invoke, stream

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.recording import current_recorder

ALLOWED = [
    "tool_call risk(amount=5)",
    "observation: may I?",
    "observation: yes",
    "observation risk: risked 5: yes",
    "thought: done",
]
SECRET = "Quiet" + "-7q4x-" + "Zk29"
TELLS, TYPES = f"log in with password={SECRET}", f"I typed {SECRET}"


def answered(kp, graph, answer="yes", *, asked="go", thread="T"):
    """The newest run, after a graph has asked a human, and was answered."""
    graph.invoke({"messages": asked}, on_thread(kp, thread))
    graph.invoke(Command(resume=answer), on_thread(kp, thread))
    return kp.run("@last")


def answered_by_a_captured_function(kp, graph):
    """The same where a captured function asks the graph, and answers what it asks."""

    @kp.capture
    def answer(question):
        graph.invoke({"messages": question}, on_thread(kp))
        return graph.invoke(Command(resume="yes"), on_thread(kp))["messages"][-1].text

    answer("go")
    return kp.run("@last")


def asks(question):
    """A node that asks a human, and says what the answer is."""
    return lambda _: {"messages": [("ai", interrupt(question))]}


@pytest.mark.parametrize("run", [invoke, ainvoke, stream, astream])
def test_case_21_a_run_that_waits_for_a_human_is_one_trace_when_it_goes_on(kp, run):
    graph = risking()
    run(graph, GO, {**on_thread(kp), "run_name": "ask"})
    waits = stored_run(kp)

    run(graph, Command(resume="yes"), {**on_thread(kp), "run_name": "go on"})

    ended = stored_run(kp)
    assert (story(waits), story(ended)) == (ALLOWED[:2], ALLOWED)
    assert (waits.state, waits.scoring, waits.error_type) == ("paused", None, None)
    assert (ended.id, ended.seq) == (waits.id, waits.seq)
    assert (ended.state, ended.known_success, ended.objective) == ("scored", None, "go")
    assert (ended.step_count, ended.tool_count) == (5, 1)


def test_case_21_what_nobody_resumes_is_incomplete_in_time(db):
    with KnowledgePulse(db=db, embedder=None, paused_ttl_s=0.05) as kp:
        risking().invoke(GO, on_thread(kp))
        kp.flush()
        while (run := stored_run(kp)).state == "paused":
            time.sleep(0.001)

    assert (run.state, run.scoring, run.reason) == ("incomplete", None, "it was not resumed")


def test_case_21_what_may_wait_for_ever_is_kept(db):
    with KnowledgePulse(db=db, embedder=None, paused_ttl_s=1e12) as kp:
        risking().invoke(GO, on_thread(kp))
        kp.flush()

        assert stored_run(kp).state == "paused"


@pytest.mark.parametrize(
    ("known", "ended"),
    [
        ({}, {"state": "incomplete", "reason": "it was not resumed"}),
        (
            {"success": True, "confidence": 0.7},
            {"state": "scored", "known_success": True, "confidence": 0.7},
        ),
    ],
    ids=["nothing known", "known to be well"],
)
def test_case_21_the_end_of_its_thread_ends_it(kp, known, ended):
    risking().invoke(GO, on_thread(kp))

    kp.end_thread("T", **known)

    run = stored_run(kp)
    assert {name: getattr(run, name) for name in ended} == ended


def test_case_21_it_may_wait_more_than_once(kp):
    @tool
    def ask_twice(about: str) -> str:
        """Ask two things."""
        return f"{about}: {interrupt('one?')}, {interrupt('two?')}"

    asking = risking(calls(ask_twice={"about": "all"}), answer_of("done"), tools=[ask_twice])
    between = answered(kp, asking, "1")

    asking.invoke(Command(resume="2"), on_thread(kp))

    assert between.state == "paused"
    assert story(stored_run(kp)) == [
        "tool_call ask_twice(about='all')",
        "observation: one?",
        "observation: 1",
        "observation: two?",
        "observation: 2",
        "observation ask_twice: all: 1, 2",
        "thought: done",
    ]


def test_case_21_in_a_subgraph_it_is_one_question(kp):
    inner = graph_of({"ask": asks("sure?")})

    run = answered(kp, graph_of({"inner": inner}, checkpointer=InMemorySaver()), "sure")

    assert story(run) == ["observation: sure?", "observation: sure"]
    assert (run.state, run.result_summary) == ("scored", "sure")


@needs("pauses that are told")
def test_case_21_a_pause_before_a_node_is_one_as_well(kp):
    turns = calls("I add.", add={"a": 1, "b": 2}), answer_of("3")
    graph = risking(*turns, tools=[add], interrupt_before=["tools"])
    graph.invoke(GO, on_thread(kp))
    waits = stored_run(kp)

    graph.invoke(None, on_thread(kp))

    run = stored_run(kp)
    assert waits.state == "paused"
    assert story(run) == [
        "thought: I add.",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: 3",
    ]
    assert (run.state, run.objective) == ("scored", "go")


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
def test_case_05_what_a_human_made_of_a_call_is_its_result(kp, decision, result):
    review = HumanInTheLoopMiddleware(interrupt_on={"add": True})
    turns = calls("I add.", add={"a": 1, "b": 2}), answer_of("ok")

    run = answered(kp, risking(*turns, tools=[add], middleware=[review]), {"decisions": [decision]})

    thought, call, question, answer, given, end = story(run)
    assert (thought, call, end) == ("thought: I add.", "tool_call add(a=1, b=2)", "thought: ok")
    assert "action_requests" in question
    assert decision["type"] in answer
    assert fnmatch(given, result)


@pytest.mark.parametrize("answer", [answered, answered_by_a_captured_function])
def test_what_was_done_before_the_pause_is_not_told_twice(kp, answer):
    turns = calls(add={"a": 1, "b": 2}, risk={"amount": 5}), answer_of("done")

    run = answer(kp, risking(*turns, tools=[add, risk]))

    assert (run.state, run.result_summary) == ("scored", "done")
    assert sorted(story(run)) == sorted([*ALLOWED, "tool_call add(a=1, b=2)", "observation add: 3"])


@pytest.mark.parametrize(
    "names", [pytest.param(["one", "two"], marks=needs("agents that say their name")), [None] * 2]
)
def test_agents_of_one_thread_wait_apart_and_an_answer_goes_to_who_asked(kp, names):
    """Older versions tell it by their names, or by the id of the question."""
    one, two = (risking(name=name) for name in names)
    [question] = one.invoke(GO, on_thread(kp))["__interrupt__"]
    two.invoke(GO, on_thread(kp))

    one.invoke(Command(resume="yes" if names[0] else {question.id: "yes"}), on_thread(kp))

    first, second = stored_runs(kp)
    assert (first.state, second.state) == ("scored", "paused")
    assert story(first) == ALLOWED


def test_captured_functions_around_a_pause_are_one_trace(kp):
    graph = risking()

    @kp.capture(name="risking")
    def begin(question):
        graph.invoke({"messages": question}, on_thread(kp))

    @kp.capture(name="risking")
    def decide(decision):
        return graph.invoke(Command(resume=decision), on_thread(kp))["messages"][-1].text

    begin("go")
    waits = stored_run(kp)
    decide("yes")

    run = stored_run(kp)
    assert (waits.state, run.state, run.objective) == ("paused", "scored", "go")
    assert story(run)[:2] == ALLOWED[:2]
    assert story(run)[-3:] == ALLOWED[-3:]


def test_a_pause_with_no_thread_to_find_it_by_is_incomplete(kp):
    @kp.capture
    def answer(_):
        current_trace().tool_call("ask")
        current_recorder().thread_notes.awaits = "human"

    answer("go")

    assert (stored_run(kp).state, stored_run(kp).known_success) == ("incomplete", None)


def test_an_agent_that_a_tool_runs_with_a_thread_of_its_own_may_wait_alone(kp):
    inner = risking()

    @tool
    def delegate(task: str) -> str:
        """Let another agent do it."""
        inner.invoke({"messages": task}, {"configurable": {"thread_id": "inner"}})
        return "they wait for you"

    outer = agent(calls(delegate={"task": "risk it"}), answer_of("ok"), tools=[delegate])
    outer.invoke(GO, {"callbacks": [KPCallbackHandler(kp)]})

    assert stored_run(kp).state == "scored"
    assert story(stored_run(kp))[-2:] == [
        "observation delegate: they wait for you",
        "thought: ok",
    ]


def test_an_answer_that_nobody_waits_for_is_a_trace_of_its_own_and_a_second_one_is_no_run(kp):
    graph = risking()
    graph.invoke(GO, {"configurable": {"thread_id": "T"}})

    for _ in range(2):
        graph.invoke(Command(resume="yes"), on_thread(kp))

    assert story(stored_run(kp)) == [
        "observation: yes",
        "tool_call risk(amount=5)",
        "observation risk: risked 5: yes",
        "thought: done",
    ]


def test_a_thread_id_that_reads_like_a_secret_is_found_and_not_written(kp, tmp_path):
    secret, graph = "ghp_" + "a1B2" * 9, risking()
    graph.invoke(GO, on_thread(kp, secret))
    written = [path.read_bytes() for path in tmp_path.iterdir()]

    graph.invoke(Command(resume="yes"), on_thread(kp, secret))

    written += [path.read_bytes() for path in tmp_path.iterdir()]
    assert story(stored_run(kp)) == ALLOWED
    assert all(secret.encode() not in some for some in written)


def test_a_model_that_fails_after_the_pause_fails_the_whole_run(kp):
    with pytest.raises(IndexError):  # its script has no further turn
        answered(kp, risking(calls(risk={"amount": 5})))

    run = stored_run(kp)
    assert (run.state, run.known_success, run.error_type) == ("scored", False, "IndexError")


@pytest.mark.parametrize(
    "around",
    [
        lambda graph: graph.with_retry(),
        lambda graph: graph.with_fallbacks([graph]),
        lambda graph: RunnableLambda(lambda given: given) | graph,
    ],
    ids=["retries", "fallbacks", "a chain"],
)
def test_a_graph_in_a_chain_may_wait_as_well(kp, around):
    answered(kp, around(risking()))

    assert (stored_run(kp).state, story(stored_run(kp))) == ("scored", ALLOWED)


def resumed_at_once(question):
    """A graph that waits, and is answered by the program."""
    graph, own = risking(), {"configurable": {"thread_id": "inner"}}
    graph.invoke({"messages": question}, own)
    return graph.invoke(Command(resume="yes"), own)["messages"][-1].text


@needs("tool calls with ids")
def test_a_run_that_answers_itself_is_complete(kp):
    RunnableLambda(resumed_at_once).invoke("go", {"callbacks": [KPCallbackHandler(kp)]})

    assert (stored_run(kp).state, stored_run(kp).known_success) == ("scored", None)
    assert story(stored_run(kp)) == ALLOWED


def leaves_a_graph_waiting(question):
    risking().invoke({"messages": question}, {"configurable": {"thread_id": "inner"}})
    return "it waits"


@pytest.mark.parametrize("say", [resumed_at_once, leaves_a_graph_waiting])
def test_a_node_that_calls_a_graph_with_a_thread_of_its_own_ends_as_a_node(kp, say):
    outer = graph_of(
        {"node": lambda _: {"messages": [("ai", say("go"))]}}, checkpointer=InMemorySaver()
    )

    outer.invoke(GO, on_thread(kp))

    assert (stored_run(kp).state, stored_run(kp).known_success) == ("scored", None)


def test_a_question_that_nobody_answers_is_left_when_the_thread_goes_another_way(kp):
    graph = risking(calls(risk={"amount": 5}), answer_of("bye"))
    graph.invoke(GO, on_thread(kp))
    graph.invoke({"messages": "forget it"}, on_thread(kp))

    graph.invoke(None, on_thread(kp))

    waits, *_ = stored_runs(kp)
    assert (waits.state, story(waits)) == ("paused", ALLOWED[:2])


def test_questions_asked_at_once_and_answered_one_by_one_are_each_asked_once(kp):
    nodes = {f"ask {number}": asks(f"{number}?") for number in range(3)}
    graph = graph_of(nodes, checkpointer=InMemorySaver())
    questions = graph.invoke(GO, on_thread(kp))["__interrupt__"]

    for question in questions:
        graph.invoke(Command(resume={question.id: f"{question.value}!"}), on_thread(kp))

    assert stored_run(kp).state == "scored"
    assert sorted(story(stored_run(kp))) == sorted(
        f"observation: {number}?{end}" for number in range(3) for end in ("", "!")
    )


def test_a_run_that_fails_beside_a_question_has_failed(kp):
    def fail(_):
        raise ValueError("no")

    nodes = {"ask": asks("sure?"), "fail": fail, "speak": speaking(answer_of("hi"))}

    with pytest.raises(ValueError, match="no"):
        graph_of(nodes, checkpointer=InMemorySaver()).invoke(GO, on_thread(kp))

    assert (stored_run(kp).state, stored_run(kp).error_type) == ("scored", "ValueError")


def kept(kp, connection):
    """All that is kept of the newest run."""
    [document] = connection.execute("SELECT body FROM documents ORDER BY trace_seq DESC").fetchone()
    return f"{asdict(kp.run('@last'))} {document}"


def test_a_secret_that_an_earlier_part_tells_is_not_written_of_a_later_one(kp, connection, db):
    answered(kp, risking(), TYPES, asked=TELLS)

    written = b"".join(path.read_bytes() for path in db.parent.glob("kp.db*"))
    assert "I typed [REDACTED:password]" in kept(kp, connection)
    assert SECRET.encode() not in written


def test_a_secret_that_a_later_part_tells_goes_from_the_earlier_ones(kp, connection):
    answered(kp, risking(), TELLS, asked=TYPES)

    assert "I typed [REDACTED:password]" in kept(kp, connection)
    assert SECRET not in kept(kp, connection)


@pytest.mark.parametrize("thread", ["T", "another"])
def test_when_a_run_has_ended_its_secrets_are_forgotten(kp, connection, thread):
    answered(kp, risking(), asked=TELLS)
    answered(kp, risking(), asked=TYPES, thread=thread)

    assert TYPES in kept(kp, connection)
