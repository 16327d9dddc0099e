"""A tool, a model or a node that is cancelled, and that its run survives, is one recovery."""

import asyncio
import uuid
from itertools import count

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from scripted_agents import GO, HangingModel, agent, cancelled, graph_of, hang, wait, within_limit
from scripted_events import answering
from scripted_models import ScriptedModel, answer_of, calls
from versions import RetryPolicy, create_agent, needs, wrap_model_call, wrap_tool_call

SLOW = "tool_call slow(x=1)"


def slow(hangs):
    """A tool that never answers the first so many times."""
    times = count()

    @tool
    async def slow(x: int) -> str:
        """Answer at last."""
        if next(times) < hangs:
            await hang()
        return f"{x}!"

    return slow


def limited(answer, *, attempts=1, hangs=9, **options):
    """An agent whose slow tool is given up so many times, before the model is told this."""

    @wrap_tool_call
    async def limit(request, handler):
        for _ in range(attempts):
            try:
                return await within_limit(handler(request))
            except TimeoutError:
                continue
        return ToolMessage(tool_call_id=request.tool_call["id"], **answer)

    turns = calls(slow={"x": 1}), answer_of("fin")
    return agent(*turns, **{"tools": [slow(hangs)], "middleware": [limit], **options})


TIMED_OUT = {"content": "timed out", "status": "error"}
FROM_YESTERDAY = {"content": "from yesterday"}
GIVEN_UP = "error_recovery slow: CancelledError"


@pytest.mark.parametrize(
    ("limits", "answer", "story"),
    [
        ({}, TIMED_OUT, ["error_recovery slow: timed out"]),
        ({}, FROM_YESTERDAY, [GIVEN_UP, "observation slow: from yesterday"]),
        pytest.param(
            {"attempts": 3},
            TIMED_OUT,
            [GIVEN_UP, GIVEN_UP, "error_recovery slow: timed out"],
            marks=needs("tool calls with ids"),
        ),
        pytest.param(
            {"attempts": 2, "hangs": 1},
            TIMED_OUT,
            [GIVEN_UP, "observation slow: 1!"],
            marks=needs("tool calls with ids"),
        ),
    ],
    ids=["the model is told", "another result stands in", "each attempt", "the second answers"],
)
def test_a_tool_out_of_time_is_a_recovery_and_what_the_model_was_told_its_result(
    config, notebook, limits, answer, story
):
    asyncio.run(limited(answer, **limits).ainvoke(GO, config))

    assert notebook.story == [SLOW, *story, "thought: fin"]
    assert notebook.trace.metadata.success is True


def test_what_a_tool_says_in_its_thread_after_it_was_given_up_is_not_heard(handler, notebook):
    """LangChain tells of its end when its thread ends."""
    root, first, second, slow = (uuid.uuid4() for _ in range(4))
    called = answering(calls(slow={"x": 1}))
    call_id = called.generations[0][0].message.tool_calls[0]["id"]
    told = ToolMessage(tool_call_id=call_id, **TIMED_OUT)

    handler.on_chain_start(None, GO, run_id=root)
    handler.on_chat_model_start({}, [[]], run_id=first, parent_run_id=root)
    handler.on_llm_end(called, run_id=first)
    handler.on_tool_start(
        {"name": "slow"}, "1", run_id=slow, parent_run_id=root, tool_call_id=call_id
    )
    handler.on_tool_error(asyncio.CancelledError(), run_id=slow)  # since langchain-core 1.8
    handler.on_chat_model_start({}, [[told]], run_id=second, parent_run_id=root)
    handler.on_llm_end(answering(answer_of("fin")), run_id=second)
    handler.on_tool_end("too late", run_id=slow)
    handler.on_chain_end({}, run_id=root)

    assert notebook.story == [SLOW, "error_recovery slow: timed out", "thought: fin"]


async def second_model(request, handler):
    try:
        return await within_limit(handler(request))
    except TimeoutError:
        return await handler(request.override(model=ScriptedModel(turns=[answer_of("Second.")])))


def test_a_model_out_of_time_is_a_recovery_before_the_answer_of_the_next(config, notebook):
    asking = create_agent(HangingModel(), [], middleware=[wrap_model_call(second_model)])

    asyncio.run(asking.ainvoke(GO, config))

    assert notebook.story == ["error_recovery: CancelledError", "thought: Second."]
    assert notebook.run.complete is True


def test_an_agent_in_a_tool_that_is_given_up_leaves_no_call_open(config, notebook):
    inner = agent(calls("Inside.", slow={"x": 1}), tools=[slow(1)])

    @tool
    async def delegate(task: str) -> str:
        """Let another agent do it."""
        try:
            await within_limit(inner.ainvoke({"messages": task}))
        except TimeoutError:
            return "they took too long"

    outer = agent(calls(delegate={"task": "t"}), answer_of("fin"), tools=[delegate])
    asyncio.run(outer.ainvoke(GO, config))

    assert notebook.story == [
        "tool_call delegate(task='t')",
        "thought: Inside.",
        SLOW,
        "error_recovery slow: CancelledError",
        "observation delegate: they took too long",
        "thought: fin",
    ]


async def hanging_model():
    return await HangingModel().ainvoke("go")


def retried(hangs, *, times):
    """A graph whose node has so little time, is tried thrice, and hangs so many times."""
    tries = count()

    async def node(_):
        await (hangs() if next(tries) < times else asyncio.sleep(0))
        return {"messages": [("ai", "ok")]}

    policy = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=3)
    return graph_of({"node": node}, timeout=0.1, retry_policy=policy)


@needs("nodes with a time limit")
@pytest.mark.parametrize("hangs", [hang, hanging_model])
def test_each_attempt_of_a_node_that_is_out_of_time_is_one_recovery(config, notebook, hangs):
    asyncio.run(retried(hangs, times=2).ainvoke(GO, config))

    assert notebook.story == ["error_recovery: CancelledError"] * 2
    assert notebook.trace.metadata.success is True


@needs("nodes with a time limit")
def test_of_a_node_that_is_out_of_time_at_last_that_ends_the_run(config, notebook):
    with pytest.raises(Exception, match="exceeded its run timeout"):
        asyncio.run(retried(hanging_model, times=3).ainvoke(GO, config))

    *recoveries, end = notebook.story
    assert recoveries == ["error_recovery: CancelledError"] * 2
    assert end.startswith("observation: NodeTimeoutError: ")


def test_what_was_survived_stays_a_recovery_where_the_run_is_cancelled_later(config, notebook):
    @wrap_tool_call
    async def limit_the_slow(request, handler):
        if request.tool_call["name"] == "wait":
            return await handler(request)
        try:
            return await within_limit(handler(request))
        except TimeoutError:
            return ToolMessage(tool_call_id=request.tool_call["id"], **TIMED_OUT)

    turns = calls(slow={"x": 1}), calls(wait={"seconds": 60})
    asking = agent(*turns, tools=[slow(1), wait], middleware=[limit_the_slow])
    asyncio.run(cancelled(asking, config))

    assert notebook.story == [
        SLOW,
        "error_recovery slow: timed out",
        "tool_call wait(seconds=60)",
        "observation wait: CancelledError",
    ]
    assert notebook.run.complete is False


def test_a_captured_function_survives_an_agent_that_it_gives_up(config, notebook):
    async def ask(question):
        try:
            await within_limit(create_agent(HangingModel(), []).ainvoke(question, config))
        except TimeoutError:
            return "no answer"

    asyncio.run(notebook.capture(ask)(GO))

    assert notebook.story == ["error_recovery: CancelledError"]
    assert notebook.trace.metadata.success is True


def test_a_captured_function_that_is_cancelled_has_recovered_from_nothing(config, notebook):
    async def ask(question):
        return await create_agent(HangingModel(), []).ainvoke(question, config)

    with pytest.raises(TimeoutError):
        asyncio.run(within_limit(notebook.capture(ask)(GO)))

    assert notebook.story == ["observation: CancelledError"]
    assert notebook.run.complete is False
    assert (notebook.run.model, notebook.run.error_type) == ("m-hangs", "CancelledError")


def test_each_of_hundreds_that_are_given_up_stands_after_its_call(handler, notebook):
    handler.on_chain_start(None, "go", run_id=(outer := uuid.uuid4()))
    inner = uuid.uuid4()
    handler.on_chain_start(None, {}, run_id=inner, parent_run_id=outer)
    for _ in range(400):
        handler.on_tool_start({"name": "slow"}, "x", run_id=uuid.uuid4(), parent_run_id=inner)
    handler.on_chain_end({}, run_id=inner)
    handler.on_chain_end({}, run_id=outer)

    told = ["tool_call slow(input='x')", "error_recovery slow: CancelledError"]
    assert notebook.story == told * 400
