"""What becomes of errors: those that a run survives, and those that end it."""

import gc
import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import add, agent, graph_of, look_up, speaking
from scripted_models import FlakyModel, ScriptedModel, calls, says
from versions import (
    GraphRecursionError,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    RetryPolicy,
    ToolNode,
    ToolRetryMiddleware,
    create_agent,
    needs,
)
from ways_to_run import ainvoke, invoke


@pytest.fixture(autouse=True, scope="module")
def quick_collections():
    """What is there already is not looked at again."""
    gc.freeze()
    yield
    gc.unfreeze()


@tool
def explode(x: int) -> int:
    """Fail, always."""
    gc.collect()  # so that the next error may get the place in memory that this one had
    raise ValueError(f"bad {x}")


GO = {"messages": "go"}
AT_ONCE = {"initial_delay": 0.0, "backoff_factor": 0.0}


def test_case_04_an_error_that_ends_the_run_is_an_observation_and_no_success(config, notebook):
    with pytest.raises(ValueError, match="bad 1"):
        agent(calls("Try.", explode={"x": 1}), tools=[explode]).invoke(GO, config)

    assert notebook.story == [
        "thought: Try.",
        "tool_call explode(x=1)",
        "observation explode: ValueError: bad 1",
    ]
    assert notebook.trace.metadata.success is False
    assert notebook.trace.outcome.confidence == 0.2
    assert notebook.run.error_type == "ValueError"
    assert notebook.run.complete is True


def test_case_04_a_soft_error_of_a_tool_is_a_recovery(config, notebook):
    agent(calls(look_up={"word": "kp"}), says("Unknown."), tools=[look_up]).invoke(GO, config)

    assert notebook.story == [
        "tool_call look_up(word='kp')",
        "error_recovery look_up: Error: kp is not in the book",
        "thought: Unknown.",
    ]
    assert notebook.trace.metadata.success is True
    assert notebook.trace.steps[1].latency_ms > 0


def test_case_04_wrong_arguments_are_a_recovery(config, notebook):
    agent(calls(add={"a": "x", "b": 1}), says("Sorry.")).invoke(GO, config)

    [call, recovery, _] = notebook.story
    assert call == "tool_call add(a='x', b=1)"
    assert recovery.startswith("error_recovery add: ValidationError: 1 validation error for add")


def test_case_05_a_tool_that_does_not_exist_is_called_and_recovered_from(config, notebook):
    agent(calls(nope={"x": 1}), says("Sorry.")).invoke(GO, config)

    assert notebook.story == [
        "tool_call nope(x=1)",
        "error_recovery nope: Error: nope is not a valid tool, try one of [add].",
        "thought: Sorry.",
    ]


def test_case_04_an_error_that_the_tool_node_handles_is_a_recovery(config, notebook):
    speak = speaking(calls(explode={"x": 1}), says("Sorry."))
    tools = ToolNode([explode], handle_tool_errors=True)

    graph_of({"ask": speak, "tools": tools, "answer": speak}, in_turn=True).invoke(GO, config)

    assert notebook.story == [
        "tool_call explode(x=1)",
        "error_recovery explode: ValueError: bad 1",
        "thought: Sorry.",
    ]


@needs("tool calls with ids")
@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_case_04_each_failed_attempt_of_a_retried_tool_is_one_recovery(config, notebook, way):
    retried = agent(
        calls(explode={"x": 1}),
        says("It does not work."),
        tools=[explode],
        middleware=[ToolRetryMiddleware(max_retries=2, jitter=False, **AT_ONCE)],
    )

    way(retried, GO, config)

    assert notebook.story == [
        "tool_call explode(x=1)",
        *["error_recovery explode: ValueError: bad 1"] * 3,
        "thought: It does not work.",
    ]


def retrying(model, **options):
    retry = ModelRetryMiddleware(max_retries=3, jitter=False, **AT_ONCE, **options)
    return create_agent(model, [], middleware=[retry])


@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_case_09_each_failed_attempt_of_a_retried_model_is_one_recovery(config, notebook, way):
    way(retrying(FlakyModel(turns=[says("Hi.")], errors=["429", "429", "500"])), GO, config)

    assert notebook.story == [
        "error_recovery: ConnectionError: 429",
        "error_recovery: ConnectionError: 429",
        "error_recovery: ConnectionError: 500",
        "thought: Hi.",
    ]


def test_of_attempts_that_all_fail_the_last_one_ends_the_run(config, notebook):
    model = FlakyModel(turns=[], errors=["429", "429", "429", "500"])

    with pytest.raises(ConnectionError):
        retrying(model, on_failure="error").invoke(GO, config)

    assert notebook.story == [
        *["error_recovery: ConnectionError: 429"] * 3,
        "observation: ConnectionError: 500",
    ]


def test_case_09_a_fallback_models_answer_follows_the_recovery(config, notebook):
    failing = FlakyModel(turns=[], errors=["500"])
    fallback = ModelFallbackMiddleware(ScriptedModel(turns=[says("From the second.")]))

    create_agent(failing, [], middleware=[fallback]).invoke(GO, config)

    assert notebook.story == [
        "error_recovery: ConnectionError: 500",
        "thought: From the second.",
    ]


def test_case_17_fallbacks_whose_runs_have_no_parent_are_one_trace(config, notebook):
    failing = FlakyModel(turns=[], errors=["500"])

    failing.with_fallbacks([ScriptedModel(turns=[says("Second.")])]).invoke("go", config)

    assert notebook.story == ["error_recovery: ConnectionError: 500", "thought: Second."]
    assert notebook.trace.outcome.result_summary == "Second."


def test_fallbacks_that_all_fail_end_the_run(config, notebook):
    failing = FlakyModel(turns=[], errors=["500"])
    fallback = FlakyModel(turns=[], errors=["501"])

    with pytest.raises(ConnectionError):
        failing.with_fallbacks([fallback]).invoke("go", config)

    assert sorted(notebook.story) == [
        "error_recovery: ConnectionError: 501",
        "observation: ConnectionError: 500",
    ]


def test_a_models_error_is_noted_once_though_every_level_reports_it(config, notebook):
    with pytest.raises(ConnectionError):
        create_agent(FlakyModel(turns=[], errors=["500"]), []).invoke(GO, config)

    assert notebook.story == ["observation: ConnectionError: 500"]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def flaky(failures):
    """A node or a step of a chain that fails so many times first."""
    left = iter(range(failures))

    def run(_):
        gc.collect()
        if next(left, None) is not None:
            raise ConnectionError("boom")
        return {"log": ["ok"]}

    return run


def test_case_23_each_failed_attempt_of_a_retried_node_is_one_recovery(config, notebook):
    policy = RetryPolicy(initial_interval=0.001, jitter=False)

    graph_of({"flaky": flaky(failures=2)}, state=Log, retry_policy=policy).invoke(
        {"log": []}, config
    )

    assert notebook.story == ["error_recovery: ConnectionError: boom"] * 2


def test_case_09_each_failed_attempt_of_a_retried_runnable_is_one_recovery(config, notebook):
    retried = RunnableLambda(flaky(failures=2)).with_retry(wait_exponential_jitter=False)

    retried.invoke("go", config)

    assert notebook.story == ["error_recovery: ConnectionError: boom"] * 2


@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_case_23_of_parallel_nodes_one_of_which_fails_its_error_ends_the_run(config, notebook, way):
    nodes = {"bad": flaky(failures=1), "good": flaky(failures=0)}

    with pytest.raises(ConnectionError):
        way(graph_of(nodes, state=Log), {"log": []}, config)

    assert notebook.story == ["observation: ConnectionError: boom"]


@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_of_parallel_tools_one_of_which_fails_both_are_kept(config, notebook, way):
    both = agent(calls(add={"a": 1, "b": 2}, explode={"x": 2}), tools=[add, explode])

    with pytest.raises(ValueError, match="bad 2"):
        way(both, GO, config)

    assert "observation explode: ValueError: bad 2" in notebook.story
    assert notebook.story[:2] == ["tool_call add(a=1, b=2)", "tool_call explode(x=2)"]
    assert notebook.trace.metadata.success is False


def test_case_23_too_many_steps_end_the_run(config, notebook):
    turns = [calls(add={"a": number, "b": 1}) for number in range(10)]

    adding = agent(*turns)

    with pytest.raises(GraphRecursionError):
        adding.invoke(GO, config | {"recursion_limit": 4})

    assert notebook.story[-1].startswith("observation: GraphRecursionError: Recursion limit of 4")
    assert notebook.run.error_type == "GraphRecursionError"


def test_errors_that_a_node_survives_one_after_another_are_each_noted(config, notebook):
    def attempt(_):
        for number in range(20):
            try:
                FlakyModel(turns=[], errors=[f"gone {number}"]).invoke("go")
            except ConnectionError:
                continue
        raise ConnectionError("no more")

    with pytest.raises(ConnectionError, match="no more"):
        RunnableLambda(attempt).invoke("go", config)

    assert notebook.story == [
        *(f"error_recovery: ConnectionError: gone {number}" for number in range(20)),
        "observation: ConnectionError: no more",
    ]
