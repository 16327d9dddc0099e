"""Runs inside runs: one root, one trace."""

import asyncio

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import add
from scripted_models import FlakyModel, ScriptedModel, calls, says
from versions import START, MessagesState, StateGraph, create_agent
from ways_to_run import ainvoke, invoke

from kp_langchain import KPCallbackHandler
from kp_middleware.recording import captured, current_trace, recorded_tool

GO = {"messages": "go"}


@tool
def ask(question: str) -> str:
    """Ask another agent."""
    inner = create_agent(
        ScriptedModel(turns=[calls(add={"a": 1, "b": 2}), says("It is 3.")]), [add], name="inner"
    )
    return inner.invoke({"messages": question})["messages"][-1].text


@pytest.fixture
def outer():
    """An agent that asks another agent."""
    model = ScriptedModel(turns=[calls(ask={"question": "1 + 2?"}), says("They say 3.")])
    return create_agent(model, [ask], name="outer")


@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_case_10_an_agent_in_a_tool_is_part_of_the_trace(outer, config, notebook, way):
    way(outer, GO, config)

    assert notebook.story == [
        "tool_call ask(question='1 + 2?')",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: It is 3.",
        "observation ask: It is 3.",
        "thought: They say 3.",
    ]
    assert notebook.trace.task.objective == "go"
    assert notebook.run.agent_name == "outer"


def test_calls_of_an_inner_agent_may_have_the_ids_of_the_outer_ones(config, notebook):
    @tool
    def echo(depth: int) -> str:
        """Echo, through agents."""
        if depth:
            return str(depth)
        turns = [calls(echo={"depth": 1}), says("inner")]
        turns[0].tool_calls[0]["id"] = "same"
        return create_agent(ScriptedModel(turns=turns), [echo]).invoke(GO)["messages"][-1].text

    turns = [calls(echo={"depth": 0}), says("outer")]
    turns[0].tool_calls[0]["id"] = "same"

    create_agent(ScriptedModel(turns=turns), [echo]).invoke(GO, config)

    assert notebook.story == [
        "tool_call echo(depth=0)",
        "tool_call echo(depth=1)",
        "observation echo: 1",
        "thought: inner",
        "observation echo: inner",
        "thought: outer",
    ]


def test_an_error_of_an_inner_agent_is_counted_once_and_its_tool_is_answered(config, notebook):
    @tool
    def delegate(task: str) -> str:
        """Give it to an agent that fails."""
        failing = create_agent(FlakyModel(turns=[], errors=["500"]), [])
        return str(failing.invoke({"messages": task}))

    turns = [calls(delegate={"task": "t"})]

    with pytest.raises(ConnectionError):
        create_agent(ScriptedModel(turns=turns), [delegate]).invoke(GO, config)

    assert notebook.story == [
        "tool_call delegate(task='t')",
        "observation: ConnectionError: 500",
        "observation delegate: ConnectionError",
    ]


def test_case_10_a_subgraph_is_part_of_the_trace(config, notebook):
    inner = create_agent(ScriptedModel(turns=[says("hi")]), [], name="greeter")
    graph = StateGraph(MessagesState)
    graph.add_node("greet", inner)
    graph.add_edge(START, "greet")

    graph.compile().invoke(GO, config)

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.metadata.framework == "langgraph"


def test_a_run_that_is_given_the_handler_again_stays_in_the_trace(handler, config, notebook):
    def again(text):
        return ScriptedModel(turns=[says("inner")]).invoke(text, {"callbacks": [handler]}).text

    RunnableLambda(again).invoke("go", config)

    assert notebook.story == ["thought: inner"]
    assert notebook.trace.task.objective == "go"


def test_case_18_a_handler_given_twice_records_once(handler, config, notebook):
    agent = create_agent(ScriptedModel(turns=[says("hi")]), []).with_config(callbacks=[handler])

    agent.invoke(GO, config)

    assert notebook.story == ["thought: hi"]


def test_an_agent_in_a_captured_function_is_part_of_its_trace(outer, config, notebook):
    def answer(question):
        current_trace().thought("I ask the agent.")
        return outer.invoke({"messages": question}, config)["messages"][-1].text

    capture(answer, notebook)("How much is it?")

    assert notebook.story[0] == "thought: I ask the agent."
    assert notebook.story[-1] == "thought: They say 3."
    assert notebook.trace.task.objective == "How much is it?"
    assert notebook.trace.outcome.result_summary == "They say 3."
    assert notebook.trace.metadata.framework == "python"


def test_an_agents_error_that_a_captured_function_survives_is_a_recovery(config, notebook):
    failing = create_agent(FlakyModel(turns=[], errors=["500"]), [])

    def answer(question):
        try:
            failing.invoke({"messages": question}, config)
        except ConnectionError:
            return "no answer"

    capture(answer, notebook)("How much is it?")

    assert notebook.story == ["error_recovery: ConnectionError: 500"]
    assert notebook.trace.metadata.success is True


def test_an_agents_error_that_ends_a_captured_function_is_noted_once(config, notebook):
    failing = create_agent(FlakyModel(turns=[], errors=["500"]), [])

    def answer(question):
        failing.invoke({"messages": question}, config)

    with pytest.raises(ConnectionError):
        capture(answer, notebook)("How much is it?")

    assert notebook.story == ["observation: ConnectionError: 500"]
    assert notebook.trace.metadata.success is False


def test_an_agent_in_a_captured_async_function_is_part_of_its_trace(outer, config, notebook):
    async def answer(question):
        return (await outer.ainvoke({"messages": question}, config))["messages"][-1].text

    asyncio.run(capture(answer, notebook)("How much is it?"))

    assert notebook.story[-1] == "thought: They say 3."


def test_a_captured_function_inside_an_agent_is_part_of_the_agents_trace(config, notebook):
    def solve(question):
        return create_agent(ScriptedModel(turns=[says("deep")]), []).invoke({"messages": question})

    @tool
    def delegate(task: str) -> str:
        """Give it to a captured function."""
        return capture(solve, notebook)(task)["messages"][-1].text

    turns = [calls(delegate={"task": "t"}), says("done")]

    create_agent(ScriptedModel(turns=turns), [delegate]).invoke(GO, config)

    assert notebook.story == [
        "tool_call delegate(task='t')",
        "thought: deep",
        "observation delegate: deep",
        "thought: done",
    ]


def shout(text):
    return text.upper()


@tool
def think(topic: str) -> str:
    """Think aloud."""
    current_trace().thought(f"Hm, {topic}.")
    return recorded_tool(shout, None)(topic)


@tool
async def athink(topic: str) -> str:
    """Think aloud."""
    current_trace().thought(f"Hm, {topic}.")
    return recorded_tool(shout, None)(topic)


@pytest.mark.parametrize(
    ("thinker", "way"),
    [(think, invoke), (think, ainvoke), (athink, ainvoke)],
    ids=["sync", "sync tool of an async run", "async"],
)
def test_code_in_a_tool_notes_into_the_trace_of_its_run(config, notebook, thinker, way):
    turns = [calls(**{thinker.name: {"topic": "kp"}}), says("done")]

    way(create_agent(ScriptedModel(turns=turns), [thinker]), GO, config)

    assert notebook.story == [
        f"tool_call {thinker.name}(topic='kp')",
        "thought: Hm, kp.",
        "tool_call shout(text='kp')",
        "observation shout: KP",
        f"observation {thinker.name}: KP",
        "thought: done",
    ]


def test_code_in_concurrent_runs_notes_into_the_trace_of_its_own(config, notebook):
    turns = [calls(think={"topic": "kp"}), says("done")]
    agent = create_agent(ScriptedModel(turns=turns), [think])

    agent.batch([GO] * 8, config)

    assert [len(run.trace.steps) for run in notebook.runs] == [6] * 8


def test_outside_of_runs_there_is_no_current_trace(config, notebook):
    create_agent(ScriptedModel(turns=[says("hi")]), []).invoke(GO, config)

    current_trace().thought("too late")

    assert notebook.story == ["thought: hi"]


def test_two_pipelines_beside_each_other_each_get_the_trace(config, notebook):
    other = type(notebook)()
    both = {"callbacks": [*config["callbacks"], KPCallbackHandler(other)]}

    create_agent(ScriptedModel(turns=[calls(add={"a": 1, "b": 2}), says("3")]), [add]).invoke(
        GO, both
    )

    assert notebook.story == other.story
    assert len(notebook.story) == 3


def capture(function, notebook):
    return captured(function, lambda: notebook.start_recording("python"))
