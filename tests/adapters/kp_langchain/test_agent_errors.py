"""Errors that a run survives, and errors that end it."""

import gc
import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_notebook import story
from scripted_agents import GO, add, agent, graph_of, look_up, speaking
from scripted_models import FlakyModel, ScriptedModel, answer_of, calls
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
    """Collect no object that exists already."""
    gc.freeze()
    yield
    gc.unfreeze()


@tool
def explode(x: int) -> int:
    """Fail, always."""
    gc.collect()  # so that the next error may get the place in memory that this one had
    raise ValueError(f"bad {x}")


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


@pytest.mark.parametrize(
    ("call", "called", "recovery"),
    [
        (
            {"look_up": {"word": "kp"}},
            "look_up(word='kp')",
            "look_up: Error: kp is not in the book",
        ),
        (
            {"add": {"a": "x", "b": 1}},
            "add(a='x', b=1)",
            "add: ValidationError: 1 validation error for add",
        ),
        (
            {"nope": {"x": 1}},
            "nope(x=1)",
            "nope: Error: nope is not a valid tool, try one of [add, look_up].",
        ),
    ],
    ids=["a soft error", "wrong arguments", "no such tool"],
)
def test_case_04_a_call_that_fails_and_that_the_agent_survives_is_a_recovery(
    config, notebook, call, called, recovery
):
    agent(calls(**call), answer_of("Sorry."), tools=[add, look_up]).invoke(GO, config)

    first, second, last = notebook.story
    assert (first, last) == (f"tool_call {called}", "thought: Sorry.")
    assert second.startswith(f"error_recovery {recovery}")
    assert notebook.trace.metadata.success is True


def test_case_04_an_error_that_the_tool_node_handles_is_a_recovery(config, notebook):
    speak = speaking(calls(explode={"x": 1}), answer_of("Sorry."))
    tools = ToolNode([explode], handle_tool_errors=True)

    graph_of({"ask": speak, "tools": tools, "answer": speak}, in_turn=True).invoke(GO, config)

    assert notebook.story == [
        "tool_call explode(x=1)",
        "error_recovery explode: ValueError: bad 1",
        "thought: Sorry.",
    ]
    assert notebook.trace.steps[1].latency_ms > 0


@needs("tool calls with ids")
@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_case_04_each_failed_attempt_of_a_retried_tool_is_one_recovery(config, notebook, way):
    retried = agent(
        calls(explode={"x": 1}),
        answer_of("It does not work."),
        tools=[explode],
        middleware=[ToolRetryMiddleware(max_retries=2, jitter=False, **AT_ONCE)],
    )

    way(retried, GO, config)

    assert notebook.story == [
        "tool_call explode(x=1)",
        *["error_recovery explode: ValueError: bad 1"] * 3,
        "thought: It does not work.",
    ]


def failing(*errors, then=()):
    """A model that fails with these errors, one after the other, and then says these turns."""
    return FlakyModel(turns=[*then], errors=[*errors])


def retrying(model, **options):
    retry = ModelRetryMiddleware(max_retries=3, jitter=False, **AT_ONCE, **options)
    return create_agent(model, [], middleware=[retry])


def falling_back(model, second):
    return create_agent(model, [], middleware=[ModelFallbackMiddleware(second)])


SECOND = ScriptedModel(turns=[answer_of("Hi.")])


@pytest.mark.parametrize("way", [invoke, ainvoke])
@pytest.mark.parametrize(
    ("make", "given", "errors"),
    [
        (
            lambda: retrying(failing("429", "429", "500", then=[answer_of("Hi.")])),
            GO,
            ["429", "429", "500"],
        ),
        (lambda: falling_back(failing("500"), SECOND), GO, ["500"]),
        (lambda: failing("500").with_fallbacks([SECOND]), "go", ["500"]),
    ],
    ids=["retries", "a fallback", "a fallback whose run has no parent"],
)
def test_case_09_each_failed_attempt_of_a_model_is_one_recovery(
    config, notebook, way, make, given, errors
):
    way(make(), given, config)

    recoveries = [f"error_recovery: ConnectionError: {error}" for error in errors]
    assert notebook.story == [*recoveries, "thought: Hi."]
    assert notebook.trace.outcome.result_summary == "Hi."


@pytest.mark.parametrize(
    ("make", "given", "errors"),
    [
        (lambda: create_agent(failing("500"), []), GO, []),
        (
            lambda: retrying(failing("429", "429", "429", "500"), on_failure="error"),
            GO,
            ["429"] * 3,
        ),
        (lambda: failing("500").with_fallbacks([failing("501")]), "go", ["501"]),
    ],
    ids=["once", "retries", "a fallback"],
)
def test_of_attempts_that_all_fail_one_error_ends_the_run(config, notebook, make, given, errors):
    with pytest.raises(ConnectionError, match="500"):
        make().invoke(given, config)

    recoveries = [f"error_recovery: ConnectionError: {error}" for error in errors]
    assert sorted(notebook.story) == [*recoveries, "observation: ConnectionError: 500"]


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

    run = notebook.runs[0]  # a thread that starts after the end has a run of its own
    assert "observation explode: ValueError: bad 2" in story(run)
    assert story(run)[:2] == ["tool_call add(a=1, b=2)", "tool_call explode(x=2)"]
    assert run.trace.metadata.success is False


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
