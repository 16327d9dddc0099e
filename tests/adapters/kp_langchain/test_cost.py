"""The cost of an event in function calls; the benchmark times it."""

import sys
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult


def history(turns):
    """A conversation of so many turns."""
    messages = [HumanMessage("q" * 200)]
    for number in range(turns):
        call = {"name": "look_up", "args": {"q": "x" * 80}, "id": f"c{number}"}
        messages += [
            AIMessage("t" * 300, tool_calls=[call]),
            ToolMessage("r" * 800, tool_call_id=f"c{number}"),
        ]
    return messages


def function_calls(event):
    """Count the calls of Python functions for an event."""
    count = 0

    def watch(_frame, kind, _arg):
        nonlocal count
        count += kind == "call"

    sys.setprofile(watch)
    try:
        event()
    finally:
        sys.setprofile(None)
    return count


def begun(handler):
    root = uuid4()
    handler.on_chain_start({}, {"messages": "go"}, run_id=root, name="agent")
    return root


@pytest.mark.parametrize("turns", [1, 10, 1000])
def test_case_28_a_model_event_costs_the_same_however_long_the_history(handler, turns):
    root, run, messages = begun(handler), uuid4(), history(turns)
    answer = LLMResult(generations=[[ChatGeneration(message=AIMessage("hi"))]])

    def model_runs():
        handler.on_chat_model_start({}, [messages], run_id=run, parent_run_id=root)
        handler.on_llm_end(answer, run_id=run, parent_run_id=root)

    assert function_calls(model_runs) < 80


@pytest.mark.parametrize("turns", [1, 1000])
def test_case_28_a_node_event_does_not_look_into_its_state(handler, turns):
    root, run, state = begun(handler), uuid4(), {"messages": history(turns)}

    def node_runs():
        handler.on_chain_start({}, state, run_id=run, parent_run_id=root)
        handler.on_chain_end(state, run_id=run, parent_run_id=root)

    assert function_calls(node_runs) < 20


@pytest.mark.parametrize("steps", [1, 5000])
def test_case_28_a_tool_event_costs_the_same_however_long_the_run(handler, steps):
    root, run, result = begun(handler), uuid4(), ToolMessage("r" * 800, tool_call_id="c1")

    def tool_runs():
        handler.on_tool_start(
            {"name": "t"}, "", run_id=run, parent_run_id=root, inputs={"a": 1}, tool_call_id="c1"
        )
        handler.on_tool_end(result, run_id=run, parent_run_id=root)

    for _ in range(steps):
        tool_runs()

    assert function_calls(tool_runs) < 60
