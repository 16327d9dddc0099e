"""What a run says of itself beside its steps."""

import pytest
from pydantic import BaseModel
from scripted_agents import agent
from scripted_models import ScriptedModel, calls, says
from versions import START, MessagesState, StateGraph, ToolStrategy, needs

from kp_langchain import KPCallbackHandler


def test_the_objective_is_what_was_asked_and_the_result_is_the_final_answer(
    adding, config, notebook
):
    adding.invoke({"messages": [("user", "What is 1 + 2?")]}, config)

    assert notebook.trace.task.objective == "What is 1 + 2?"
    assert notebook.trace.outcome.result_summary == "The answer is 3."


def test_tokens_and_the_models_name_are_summed_up(config, notebook):
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    turns = [calls(add={"a": 1, "b": 2}), says("3")]
    metered = [
        turn.model_copy(
            update={"usage_metadata": usage, "response_metadata": {"model_name": "m-1"}}
        )
        for turn in turns
    ]

    agent(*metered).invoke({"messages": "1 + 2?"}, config)

    run = notebook.run
    assert (run.model, run.input_tokens, run.output_tokens) == ("m-1", 20, 4)


def test_the_agents_name_thread_and_tags_are_kept(config, notebook):
    named = agent(says("hi"), name="greeter")

    named.invoke(
        {"messages": "hello"}, config | {"tags": ["t1"], "configurable": {"thread_id": "T-1"}}
    )

    run = notebook.run
    assert (run.agent_name, run.thread_id, run.tags) == ("greeter", "T-1", ("t1",))


def test_other_metadata_is_not_kept(config, notebook):
    agent(says("hi")).invoke({"messages": "hello"}, config | {"metadata": {"api_key": "s3cret"}})

    assert "s3cret" not in notebook.run.model_dump_json()


class Sum(BaseModel):
    value: int
    confidence: float = 0.93


def test_structured_output_is_the_result_and_states_the_confidence(config, notebook):
    summing = agent(calls(Sum={"value": 3}), tools=(), response_format=ToolStrategy(Sum))

    summing.invoke({"messages": "1 + 2?"}, config)

    assert notebook.trace.outcome.result_summary == '{"value": 3, "confidence": 0.93}'
    assert notebook.trace.outcome.confidence == 0.93


def test_a_callable_tells_the_confidence_where_the_output_does_not(notebook):
    handler = KPCallbackHandler(notebook, confidence=lambda output: len(output["messages"]) / 10)

    agent(says("hi")).invoke({"messages": "hello"}, {"callbacks": [handler]})

    assert notebook.trace.outcome.confidence == 0.2


def test_without_a_stated_confidence_it_is_the_references_default(adding, config, notebook):
    adding.invoke({"messages": "1 + 2?"}, config)

    assert notebook.trace.outcome.confidence == 0.8


@pytest.mark.parametrize("confidence", [lambda _: 7, lambda _: 1 / 0], ids=["too high", "raises"])
def test_a_wrong_confidence_costs_nothing_else(notebook, confidence):
    handler = KPCallbackHandler(notebook, confidence=confidence)

    agent(says("hi")).invoke({"messages": "hello"}, {"callbacks": [handler]})

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.outcome.confidence == 0.8


def test_the_handler_may_name_the_domain(notebook):
    handler = KPCallbackHandler(notebook, domain="finance")

    agent(says("hi")).invoke({"messages": "hello"}, {"callbacks": [handler]})

    assert notebook.trace.metadata.task_domain == "finance"


@needs("agents that say so")
def test_the_framework_is_langgraph_for_graphs_and_langchain_for_agents(adding, notebook, config):
    graph = StateGraph(MessagesState)
    graph.add_node("say", lambda state: {"messages": [says_hi.invoke(state["messages"])]})
    says_hi = ScriptedModel(turns=[says("hi")])
    graph.add_edge(START, "say")

    adding.invoke({"messages": "1 + 2?"}, config)
    graph.compile().invoke({"messages": "hello"}, config)

    assert [run.trace.metadata.framework for run in notebook.runs] == ["langchain", "langgraph"]
