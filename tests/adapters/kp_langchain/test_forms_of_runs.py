"""Runs whose input and output are of any kind, and events that are the program's own."""

import pytest
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import agent
from scripted_models import ScriptedModel, calls, says


@pytest.mark.parametrize(
    ("given", "objective"), [(7, "7"), (["a", "b"], "b"), ("go", "go"), ({"n": 7}, '{"n": 7}')]
)
@pytest.mark.parametrize(
    ("returned", "result"),
    [(None, "hi"), (7, "7"), ([1, 2], "[1, 2]"), (AIMessage("bye"), "bye"), ("bye", "bye")],
)
def test_case_14_input_and_output_may_be_of_any_kind(
    config, notebook, given, objective, returned, result
):
    def run(_):
        ScriptedModel(turns=[says("hi")]).invoke("go")
        return returned

    RunnableLambda(run).invoke(given, config)

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.task.objective == objective
    assert notebook.trace.outcome.result_summary == result


def test_case_16_the_program_s_own_events_are_not_steps(config, notebook):
    @tool
    def work() -> str:
        """Tell how it goes."""
        dispatch_custom_event("progress", {"percent": 50})
        return "worked"

    agent(calls(work={}), says("done"), tools=[work]).invoke({"messages": "go"}, config)

    assert notebook.story == ["tool_call work", "observation work: worked", "thought: done"]
