"""Runs inside runs: one root, one trace, which says whose each step is."""

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_notebook import story
from scripted_agents import GO, agent, graph_of, speaking
from scripted_events import answering
from scripted_models import FlakyModel, ScriptedModel, answer_of, calls
from versions import create_agent, needs
from ways_to_run import ainvoke, invoke

from kp_langchain import KPCallbackHandler
from kp_middleware.recording import current_trace, recorded_tool


def delegating(inner, **options):
    """An agent whose tool runs another agent."""

    @tool
    def delegate(task: str) -> str:
        """Let another agent do it."""
        return inner.invoke({"messages": task})["messages"][-1].text

    return agent(
        calls(delegate={"task": "add"}), answer_of("outer done"), tools=[delegate], **options
    )


def adder(**options):
    return agent(calls(add={"a": 1, "b": 2}), answer_of("inner done"), **options)


def story_with(name):
    """The steps of an agent that delegates to one of this name."""
    return [
        (None, "tool_call delegate(task='add')"),
        (name, "tool_call add(a=1, b=2)"),
        (name, "observation add: 3"),
        (name, "thought: inner done"),
        (None, "observation delegate: inner done"),
        (None, "thought: outer done"),
    ]


@needs("agents that say their name")
@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_case_10_an_agent_in_a_tool_is_part_of_the_trace_by_its_name(config, notebook, way):
    way(delegating(adder(name="adder"), name="boss"), GO, config)

    assert notebook.scopes == story_with("adder")
    assert (notebook.trace.task.objective, notebook.run.agent_name) == ("go", "boss")


def test_an_agent_without_a_name_goes_by_the_tool_that_it_runs_in_which_is_stored(kp):
    delegating(adder()).invoke(GO, {"callbacks": [KPCallbackHandler(kp)]})

    agents = [name for name, _ in story_with("delegate")]
    assert [step.agent for step in kp.run("@last").steps] == agents


def test_a_subgraph_goes_by_its_node(config, notebook):
    speak = speaking(answer_of("paid"), answer_of("bye"))
    inner = graph_of({"answer": speak})

    graph_of({"billing": inner, "end": speak}, in_turn=True).invoke(GO, config)

    assert notebook.scopes == [("billing", "thought: paid"), (None, "thought: bye")]


def test_parallel_agents_in_one_tool_may_have_calls_with_equal_ids(config, notebook):
    twice = [adder(), adder()]

    @tool
    def delegate() -> str:
        """Let two agents do it, step by step."""
        streams = [inner.stream(GO) for inner in twice]
        _ = [*zip(*streams, strict=True)]
        return "both done"

    agent(calls(delegate={}), answer_of("done"), tools=[delegate]).invoke(GO, config)

    assert notebook.story.count("tool_call add(a=1, b=2)") == 2
    assert notebook.story.count("observation add: 3") == 2


def test_calls_of_an_inner_agent_may_have_the_ids_of_the_outer_ones(config, notebook):
    @tool
    def echo(depth: int) -> str:
        """Echo, through agents."""
        if depth:
            return str(depth)
        turns = [calls(echo={"depth": 1}), answer_of("inner")]
        turns[0].tool_calls[0]["id"] = "same"
        return create_agent(ScriptedModel(turns=turns), [echo]).invoke(GO)["messages"][-1].text

    turns = [calls(echo={"depth": 0}), answer_of("outer")]
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
    with pytest.raises(ConnectionError):
        delegating(failing()).invoke(GO, config)

    assert notebook.story == [
        "tool_call delegate(task='add')",
        "observation: ConnectionError: 500",
        "observation delegate: ConnectionError",
    ]


def failing():
    return create_agent(FlakyModel(turns=[], errors=["500"]), [])


def test_an_agent_in_a_captured_function_is_part_of_its_trace(config, notebook):
    def answer(question):
        current_trace().thought("I ask the agent.")
        adder().invoke({"messages": question}, config)
        return "They say 3."

    async def answer_later(question):
        current_trace().thought("I ask the agent.")
        await adder().ainvoke({"messages": question}, config)
        return "They say 3."

    notebook.capture(answer)("How much is it?")
    asyncio.run(notebook.capture(answer_later)("How much is it?"))

    for run in notebook.runs:
        assert [story(run)[0], story(run)[-1]] == [
            "thought: I ask the agent.",
            "thought: inner done",
        ]
        assert run.trace.task.objective == "How much is it?"
        assert run.trace.outcome.result_summary == "They say 3."
        assert run.trace.metadata.framework == "python"
    assert len(notebook.runs) == 2


def test_an_agents_error_that_a_captured_function_survives_is_a_recovery(config, notebook):
    def answer(question):
        with pytest.raises(ConnectionError):
            failing().invoke({"messages": question}, config)

    notebook.capture(answer)("How much is it?")

    assert notebook.story == ["error_recovery: ConnectionError: 500"]
    assert notebook.trace.metadata.success is True


def test_an_agents_error_that_ends_a_captured_function_is_noted_once(config, notebook):
    with pytest.raises(ConnectionError):
        notebook.capture(lambda question: failing().invoke({"messages": question}, config))("?")

    assert notebook.story == ["observation: ConnectionError: 500"]
    assert notebook.trace.metadata.success is False


def test_a_captured_function_inside_an_agent_is_part_of_the_agents_trace(config, notebook):
    @tool
    def delegate(task: str) -> str:
        """Give it to a captured function."""
        solve = notebook.capture(
            lambda question: agent(answer_of("deep")).invoke({"messages": question})
        )
        return solve(task)["messages"][-1].text

    agent(calls(delegate={"task": "t"}), answer_of("done"), tools=[delegate]).invoke(GO, config)

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
    turns = [calls(**{thinker.name: {"topic": "kp"}}), answer_of("done")]

    way(create_agent(ScriptedModel(turns=turns), [thinker]), GO, config)

    assert notebook.story == [
        f"tool_call {thinker.name}(topic='kp')",
        "thought: Hm, kp.",
        "tool_call shout(text='kp')",
        "observation shout: KP",
        f"observation {thinker.name}: KP",
        "thought: done",
    ]


def test_code_in_concurrent_runs_notes_into_the_trace_of_its_own_and_nowhere_after_it(
    config, notebook
):
    thinking = agent(calls(think={"topic": "kp"}), answer_of("done"), tools=[think])

    thinking.batch([GO] * 8, config)
    current_trace().thought("too late")

    assert [len(run.trace.steps) for run in notebook.runs] == [6] * 8


@needs("tool calls with ids")
@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_agents_in_wrapped_threads_are_part_of_the_trace(kp, config, notebook, way):
    def ask_agent(question):
        current_trace().thought(f"I ask {question}")
        inner = agent(calls(add={"a": int(question[-1]), "b": 0}), answer_of(question))
        return inner.invoke({"messages": question})["messages"][-1].text

    @tool
    def ask(question: str) -> str:
        """Ask three agents, in threads of its own."""
        with ThreadPoolExecutor(max_workers=3) as pool:
            answers = pool.map(kp.wrap_context(ask_agent), [f"{question} {n}" for n in range(3)])
            return ", ".join(answers)

    way(agent(calls(ask={"question": "q"}), answer_of("done"), tools=[ask]), GO, config)

    assert sorted(notebook.story[1:-2]) == [
        *(f"observation add: {number}" for number in range(3)),
        *(f"thought: I ask q {number}" for number in range(3)),
        *(f"thought: q {number}" for number in range(3)),
        *(f"tool_call add(a={number}, b=0)" for number in range(3)),
    ]
    assert notebook.story[-2:] == ["observation ask: q 0, q 1, q 2", "thought: done"]


def test_an_async_function_in_another_event_loop_is_part_of_the_trace(kp, config, notebook):
    async def ask_model(question):
        return (await ScriptedModel(turns=[answer_of("deep")]).ainvoke(question)).text

    @tool
    def delegate(task: str) -> str:
        """Ask in an event loop of its own."""
        ask = kp.wrap_context(ask_model)
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(lambda: asyncio.run(ask(task))).result()

    agent(calls(delegate={"task": "t"}), answer_of("done"), tools=[delegate]).invoke(GO, config)

    assert notebook.story == [
        "tool_call delegate(task='t')",
        "thought: deep",
        "observation delegate: deep",
        "thought: done",
    ]


def test_a_run_of_another_tracer_may_be_between(handler, config, notebook):
    called = answering(calls(add={"a": 1, "b": 2}))
    call_id = called.generations[0][0].message.tool_calls[0]["id"]

    def work(_):
        model, add, between = (uuid.uuid4() for _ in range(3))
        handler.on_chat_model_start({}, [[]], run_id=model, parent_run_id=between)
        handler.on_llm_end(called, run_id=model)
        handler.on_tool_start(
            {"name": "add"}, "", run_id=add, parent_run_id=between, tool_call_id=call_id
        )
        handler.on_tool_end("3", run_id=add)
        return "done"

    RunnableLambda(work).invoke("go", config)

    assert notebook.story == ["tool_call add(a=1, b=2)", "observation add: 3"]
