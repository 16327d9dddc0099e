# ruff: noqa: ARG001 - tools have arguments
"""A tool, a model or a node that is cancelled, and that its run survives, is one recovery."""

import asyncio
import threading
import uuid
from itertools import count

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import HangingModel, agent, cancelled, hang, wait, within_limit
from scripted_models import ScriptedModel, calls, says
from versions import (
    START,
    MessagesState,
    RetryPolicy,
    StateGraph,
    create_agent,
    needs,
    wrap_model_call,
    wrap_tool_call,
)

from kp_middleware.recording import captured

GO = {"messages": "go"}
SLOW = "tool_call slow(x=1)"


@tool
async def slow(x: int) -> str:
    """Never answer."""
    await hang()


def limited(answer, *, attempts=1, **options):
    """An agent whose slow tool is given up so many times, before the model is told this."""

    @wrap_tool_call
    async def limit(request, handler):
        for _ in range(attempts):
            try:
                return await within_limit(handler(request))
            except TimeoutError:
                continue
        return ToolMessage(tool_call_id=request.tool_call["id"], **answer)

    turns = calls(slow={"x": 1}), says("fin")
    return agent(*turns, **{"tools": [slow], "middleware": [limit], **options})


TIMED_OUT = {"content": "timed out", "status": "error"}


def test_a_tool_out_of_time_is_a_recovery_with_what_the_model_was_told(config, notebook):
    asyncio.run(limited(TIMED_OUT).ainvoke(GO, config))

    assert notebook.story == [SLOW, "error_recovery slow: timed out", "thought: fin"]
    assert notebook.trace.metadata.success is True


@needs("tool calls with ids")
def test_each_attempt_that_is_out_of_time_is_one_recovery(config, notebook):
    asyncio.run(limited(TIMED_OUT, attempts=3).ainvoke(GO, config))

    assert notebook.story == [
        SLOW,
        *["error_recovery slow: CancelledError"] * 2,
        "error_recovery slow: timed out",
        "thought: fin",
    ]


def test_what_stands_in_for_a_tool_out_of_time_is_its_result(config, notebook):
    asyncio.run(limited({"content": "from yesterday"}).ainvoke(GO, config))

    assert notebook.story == [
        SLOW,
        "error_recovery slow: CancelledError",
        "observation slow: from yesterday",
        "thought: fin",
    ]


@needs("tool calls with ids")
def test_a_tool_that_answers_when_it_is_asked_again_has_one_recovery(config, notebook):
    attempts = count()

    @tool("slow")
    async def slow_once(x: int) -> str:
        """Answer the second time."""
        if next(attempts) == 0:
            await hang()
        return f"{x}!"

    asyncio.run(limited(TIMED_OUT, attempts=2, tools=[slow_once]).ainvoke(GO, config))

    assert notebook.story == [
        SLOW,
        "error_recovery slow: CancelledError",
        "observation slow: 1!",
        "thought: fin",
    ]


class Ended(BaseCallbackHandler, threading.Event):
    """Set as soon as a tool has ended."""

    def __init__(self):
        super().__init__()
        threading.Event.__init__(self)

    def on_tool_end(self, *_, **__):
        self.set()


def test_what_a_tool_says_in_its_thread_after_it_was_given_up_is_not_heard(config, notebook):
    begun, may_end, ended = threading.Event(), threading.Event(), Ended()

    @tool("slow")
    def blocking(x: int) -> str:
        """Keep a thread."""
        begun.set()
        may_end.wait(60)
        return "too late"

    @wrap_tool_call
    async def limit(request, handler):
        asking = asyncio.ensure_future(handler(request))
        await asyncio.to_thread(begun.wait)
        asking.cancel()
        return ToolMessage(tool_call_id=request.tool_call["id"], **TIMED_OUT)

    @wrap_model_call
    async def wait_for_the_tool(request, handler):
        answer = await handler(request)
        if request.messages[-1].type == "tool":
            may_end.set()
            await asyncio.to_thread(ended.wait)
        return answer

    asking = limited({}, tools=[blocking], middleware=[limit, wait_for_the_tool])
    asyncio.run(asking.ainvoke(GO, {"callbacks": [*config["callbacks"], ended]}))

    assert notebook.story == [SLOW, "error_recovery slow: timed out", "thought: fin"]


async def second_model(request, handler):
    try:
        return await within_limit(handler(request))
    except TimeoutError:
        return await handler(request.override(model=ScriptedModel(turns=[says("Second.")])))


async def first_or_second(question):
    try:
        return await within_limit(HangingModel().ainvoke(question))
    except TimeoutError:
        return await ScriptedModel(turns=[says("Second.")]).ainvoke(question)


def test_a_model_out_of_time_is_a_recovery_before_the_answer_of_the_next(config, notebook):
    asking = create_agent(HangingModel(), [], middleware=[wrap_model_call(second_model)])

    asyncio.run(asking.ainvoke(GO, config))

    assert notebook.story == ["error_recovery: CancelledError", "thought: Second."]
    assert notebook.run.complete is True


def test_a_model_out_of_time_in_a_function_is_a_recovery_too(config, notebook):
    asyncio.run(RunnableLambda(first_or_second).ainvoke("go", config))

    assert notebook.story == ["error_recovery: CancelledError", "thought: Second."]


def test_an_agent_in_a_tool_that_is_given_up_leaves_no_call_open(config, notebook):
    inner = agent(calls("Inside.", slow={"x": 1}), tools=[slow])

    @tool
    async def delegate(task: str) -> str:
        """Let another agent do it."""
        try:
            await within_limit(inner.ainvoke({"messages": task}))
        except TimeoutError:
            return "they took too long"

    outer = agent(calls(delegate={"task": "t"}), says("fin"), tools=[delegate])
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

    graph = StateGraph(MessagesState)
    policy = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=3)
    graph.add_node("node", node, timeout=0.1, retry_policy=policy)
    graph.add_edge(START, "node")
    return graph.compile()


@needs("nodes with a time limit")
@pytest.mark.parametrize("hangs", [hang, hanging_model])
def test_each_attempt_of_a_node_that_is_out_of_time_is_one_recovery(config, notebook, hangs):
    asyncio.run(retried(hangs, times=2).ainvoke(GO, config))

    assert notebook.story == ["error_recovery: CancelledError"] * 2
    assert notebook.trace.metadata.success is True


@needs("nodes with a time limit")
@pytest.mark.parametrize("hangs", [hang, hanging_model])
def test_of_a_node_that_is_out_of_time_at_last_that_ends_the_run(config, notebook, hangs):
    with pytest.raises(Exception, match="exceeded its run timeout"):
        asyncio.run(retried(hangs, times=3).ainvoke(GO, config))

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
    asking = agent(*turns, tools=[slow, wait], middleware=[limit_the_slow])
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

    asyncio.run(captured(ask, lambda: notebook.start_recording("python"))(GO))

    assert notebook.story == ["error_recovery: CancelledError"]
    assert notebook.trace.metadata.success is True


def test_a_captured_function_that_is_cancelled_has_recovered_from_nothing(config, notebook):
    async def ask(question):
        return await create_agent(HangingModel(), []).ainvoke(question, config)

    asked = captured(ask, lambda: notebook.start_recording("python"))
    with pytest.raises(TimeoutError):
        asyncio.run(within_limit(asked(GO)))

    assert notebook.story == ["observation: CancelledError"]
    assert notebook.run.complete is False


def test_a_run_whose_model_is_cancelled_at_once_has_the_name_of_that_model(config, notebook):
    with pytest.raises(TimeoutError):
        asyncio.run(within_limit(create_agent(HangingModel(), []).ainvoke(GO, config)))

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
