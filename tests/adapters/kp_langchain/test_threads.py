"""Threads of the user's own, inside a tool: they belong to the run if they are told so."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.tools import tool
from scripted_agents import agent
from scripted_models import ScriptedModel, calls, says
from versions import needs
from ways_to_run import ainvoke, invoke

from kp_middleware import KnowledgePulse, current_trace

GO = {"messages": "go"}


@pytest.fixture
def kp(tmp_path):
    with KnowledgePulse(db=tmp_path / "kp.db", embedder=None) as kp:
        yield kp


def ask_in_threads(kp):
    """A tool that asks an agent, in three threads of its own."""

    def ask_agent(question):
        number = int(question.split()[-1])
        inner = agent(calls(add={"a": number, "b": 0}), says(question))
        return inner.invoke({"messages": question})["messages"][-1].text

    @tool
    def ask(question: str) -> str:
        """Ask three agents."""
        with ThreadPoolExecutor(max_workers=3) as pool:
            answers = pool.map(kp.wrap_context(ask_agent), [f"{question} {n}" for n in range(3)])
            return ", ".join(answers)

    return ask


@needs("tool calls with ids")
@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_agents_in_wrapped_threads_are_part_of_the_trace(kp, config, notebook, way):
    turns = [calls(ask={"question": "q"}), says("done")]

    way(agent(*turns, tools=[ask_in_threads(kp)]), GO, config)

    assert sorted(notebook.story[1:-2]) == [
        *(f"observation add: {number}" for number in range(3)),
        *(f"thought: q {number}" for number in range(3)),
        *(f"tool_call add(a={number}, b=0)" for number in range(3)),
    ]
    assert notebook.story[-2:] == ["observation ask: q 0, q 1, q 2", "thought: done"]


def test_notes_of_a_wrapped_thread_are_in_the_trace(kp, config, notebook):
    @tool
    def think(topic: str) -> str:
        """Think elsewhere."""
        note = kp.wrap_context(lambda: current_trace().thought(f"Hm, {topic}."))
        thread = threading.Thread(target=note)
        thread.start()
        thread.join()
        return "thought"

    agent(calls(think={"topic": "kp"}), says("done"), tools=[think]).invoke(GO, config)

    assert notebook.story == [
        "tool_call think(topic='kp')",
        "thought: Hm, kp.",
        "observation think: thought",
        "thought: done",
    ]


def test_an_async_function_in_another_event_loop_is_part_of_the_trace(kp, config, notebook):
    model = ScriptedModel(turns=[says("deep")])

    async def ask_model(question):
        return (await model.ainvoke(question)).text

    @tool
    def delegate(task: str) -> str:
        """Ask in an event loop of its own."""
        ask = kp.wrap_context(ask_model)
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(lambda: asyncio.run(ask(task))).result()

    agent(calls(delegate={"task": "t"}), says("done"), tools=[delegate]).invoke(GO, config)

    assert notebook.story == [
        "tool_call delegate(task='t')",
        "thought: deep",
        "observation delegate: deep",
        "thought: done",
    ]
