"""How runs end: well, early, late, twice, or never."""

import asyncio
import gc
import threading
import uuid

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import agent, cancelled, timed_out, wait
from scripted_models import ScriptedModel, StreamingModel, calls, says
from versions import (
    START,
    Command,
    MessagesState,
    StateGraph,
    create_agent,
)

from kp_middleware.recording import captured

GO = {"messages": "go"}
ADDS = [calls("I add.", add={"a": 1, "b": 2}), says("3")]


def test_case_20_a_cancelled_run_is_kept_as_incomplete(config, notebook):
    asyncio.run(cancelled(agent(calls(wait={"seconds": 60}), tools=[wait]), config))

    assert notebook.story == ["tool_call wait(seconds=60)", "observation wait: CancelledError"]
    assert notebook.run.complete is False
    assert notebook.run.error_type == "CancelledError"
    assert notebook.trace.metadata.success is False


def test_a_tool_that_ends_after_its_run_was_cancelled_is_not_recorded(handler, config, notebook):
    started, may_end = threading.Event(), threading.Event()

    @tool
    def block(seconds: int) -> str:
        """Wait, and keep a thread."""
        started.set()
        return str(may_end.wait(seconds))

    async def cancel_while_blocked():
        running = asyncio.create_task(
            agent(calls(block={"seconds": 5}), tools=[block]).ainvoke(GO, config)
        )
        await asyncio.to_thread(started.wait)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        may_end.set()

    asyncio.run(cancel_while_blocked())

    assert notebook.story == ["tool_call block(seconds=5)", "observation block: CancelledError"]
    assert len(handler._runs) == 0


def test_case_20_a_run_that_took_too_long_is_kept_as_incomplete(config, notebook):
    waiting = agent(calls(wait={"seconds": 60}), tools=[wait])

    with pytest.raises(TimeoutError):
        asyncio.run(timed_out(waiting, config))

    assert notebook.story == ["tool_call wait(seconds=60)", "observation wait: CancelledError"]
    assert notebook.run.complete is False


def test_case_20_a_stream_that_is_closed_early_is_kept_as_incomplete(config, notebook):
    stream = agent(*ADDS).stream(GO, config)
    next(stream)

    stream.close()

    assert notebook.story[:2] == ["thought: I add.", "tool_call add(a=1, b=2)"]
    assert notebook.run.complete is False
    assert notebook.run.error_type == "GeneratorExit"


def test_a_stream_that_is_forgotten_ends_when_it_is_collected(config, notebook):
    stream = agent(*ADDS).stream(GO, config)
    next(stream)

    del stream
    gc.collect()

    assert notebook.run.complete is False


def test_a_chains_stream_that_is_closed_early_keeps_what_was_said(handler, config, notebook):
    chain = StreamingModel(turns=[says("one two three")]) | StrOutputParser()
    stream = chain.stream("count", config)
    next(stream)

    stream.close()

    assert notebook.story == ["thought: one two three"]
    assert notebook.trace.task.objective == "count"
    assert notebook.trace.outcome.result_summary == "one two three"
    assert notebook.run.complete is False
    assert notebook.trace.metadata.success is False
    assert len(handler._runs) == 0


def test_a_chains_async_stream_that_is_closed_early_keeps_what_was_said(handler, config, notebook):
    chain = StreamingModel(turns=[says("one two three")]) | StrOutputParser()

    async def close_early():
        stream = chain.astream("count", config)
        await anext(stream)
        await stream.aclose()

    asyncio.run(close_early())

    assert notebook.story[0] == "thought: one"
    assert notebook.trace.task.objective == "count"
    assert notebook.run.complete is False
    assert len(handler._runs) == 0


def test_a_chains_stream_in_a_captured_function_that_is_closed_early_is_a_part_of_it(
    handler, config, notebook
):
    chain = StreamingModel(turns=[says("one two three")]) | StrOutputParser()

    def first_word(question):
        stream = chain.stream(question, config)
        word = next(stream)
        stream.close()
        return word

    captured(first_word, lambda: notebook.start_recording("python"))("count")

    assert notebook.story == ["thought: one two three"]
    assert notebook.run.complete is True
    assert len(handler._runs) == 0


def test_case_15_a_chain_tells_the_input_of_its_stream_at_the_end(config, notebook):
    chain = StreamingModel(turns=[says("one two three")]) | StrOutputParser()

    list(chain.stream("count", config))

    assert notebook.run.complete is True
    assert notebook.trace.task.objective == "count"
    assert notebook.trace.outcome.result_summary == "one two three"


def test_a_models_stream_that_is_closed_early_keeps_what_it_said(config, notebook):
    stream = StreamingModel(turns=[says("one two three")]).stream("count", config)
    next(stream)

    stream.close()

    assert notebook.story == ["thought: one", "observation: GeneratorExit"]
    assert notebook.run.complete is False


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_case_20_a_run_that_ends_with_its_program_is_kept_as_incomplete(config, notebook, ending):
    def interrupted(_):
        ScriptedModel(turns=[says("hi")]).invoke("go")
        raise ending

    with pytest.raises(ending):
        RunnableLambda(interrupted).invoke("go", config)

    assert notebook.story == ["thought: hi", f"observation: {ending.__name__}"]
    assert notebook.run.complete is False


def test_case_22_a_handover_to_a_parent_graph_is_no_error(config, notebook):
    inner = StateGraph(MessagesState)
    inner.add_node("hand over", lambda _: Command(graph=Command.PARENT, goto="finish"))
    inner.add_edge(START, "hand over")
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile(), destinations=("finish",))
    outer.add_node("finish", lambda state: {"messages": [model.invoke(state["messages"])]})
    outer.add_edge(START, "inner")
    model = ScriptedModel(turns=[says("done")])

    outer.compile().invoke(GO, config)

    assert notebook.story == ["thought: done"]
    assert notebook.run.complete is True


def test_case_19_work_that_begins_after_its_run_is_a_run_of_its_own(config, notebook):
    model = ScriptedModel(turns=[says("hi")])

    async def speak_later(done):
        await done.wait()
        await RunnableLambda(model.invoke).ainvoke("late")

    async def start_and_leave(done):
        late.append(asyncio.create_task(speak_later(done)))
        await model.ainvoke("now")

    async def run():
        done = asyncio.Event()
        await RunnableLambda(start_and_leave).ainvoke(done, config)
        done.set()
        await late[0]

    late = []
    asyncio.run(run())

    assert [run.trace.steps[0].content for run in notebook.runs] == ["hi", "hi"]
    assert notebook.runs[1].trace.task.objective == "late"


def test_case_17_a_handler_in_a_models_constructor_says_once_what_to_do(handler, notebook, caplog):
    model = ScriptedModel(turns=[says("hi")], callbacks=[handler])

    create_agent(model, []).invoke(GO)
    create_agent(model, []).invoke(GO)

    assert notebook.runs == []
    [warning] = caplog.records
    assert warning.message.endswith('to the outermost call: config={"callbacks": [handler]}')


def test_case_19_events_without_a_beginning_are_ignored(handler, notebook):
    response = LLMResult(generations=[[ChatGeneration(message=says("hi"))]])

    handler.on_llm_end(response, run_id=uuid.uuid4())
    handler.on_tool_end("3", run_id=uuid.uuid4())
    handler.on_chain_end({}, run_id=uuid.uuid4())
    handler.on_chain_error(ValueError(), run_id=uuid.uuid4())

    assert notebook.ended == []


def twice(event, *args, **kwargs):
    event(*args, **kwargs)
    event(*args, **kwargs)


def test_case_19_events_that_come_twice_count_once(handler, notebook):
    root, model = uuid.uuid4(), uuid.uuid4()
    asked = [[HumanMessage("go")]]
    answered = LLMResult(generations=[[ChatGeneration(message=says("hi"))]])

    twice(handler.on_chain_start, None, "go", run_id=root)
    twice(handler.on_chat_model_start, {}, asked, run_id=model, parent_run_id=root)
    twice(handler.on_llm_end, answered, run_id=model, parent_run_id=root)
    twice(handler.on_chain_end, "hi", run_id=root)

    assert notebook.story == ["thought: hi"]
