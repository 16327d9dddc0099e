"""Ends of runs: good, early, late, repeated, or missing."""

import asyncio
import gc
import threading
import uuid

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import GO, agent, cancelled, graph_of, speaking, wait
from scripted_events import answering
from scripted_models import ScriptedModel, StreamingModel, answer_of, calls
from versions import START, Command, MessagesState, StateGraph, create_agent

ADDS = [calls("I add.", add={"a": 1, "b": 2}), answer_of("3")]


def test_case_20_a_run_that_is_cancelled_or_takes_too_long_is_kept_as_incomplete(config, notebook):
    asyncio.run(cancelled(agent(calls(wait={"seconds": 60}), tools=[wait]), config))

    assert notebook.story == ["tool_call wait(seconds=60)", "observation wait: CancelledError"]
    assert notebook.run.complete is False
    assert notebook.run.error_type == "CancelledError"
    assert notebook.trace.metadata.success is False


def test_a_tool_that_ends_after_its_run_was_cancelled_is_not_recorded(config, notebook, live_spans):
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
    assert len(live_spans) == 0


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "forgotten"])
def test_case_20_a_stream_that_is_left_early_is_kept_as_incomplete(config, notebook, is_closed):
    stream = agent(*ADDS).stream(GO, config)
    next(stream)

    if is_closed:
        stream.close()
    else:
        del stream
        gc.collect()

    assert notebook.story[:2] == ["thought: I add.", "tool_call add(a=1, b=2)"]
    assert notebook.run.complete is False
    assert notebook.run.error_type == "GeneratorExit"


COUNTING_MODEL = StreamingModel(turns=[answer_of("one two three")])
COUNTING = COUNTING_MODEL | StrOutputParser()


def first_of(stream):
    """Its first part, after which it is closed."""
    part = next(stream)
    stream.close()
    return part


@pytest.mark.parametrize(
    ("runnable", "story", "result"),
    [
        (COUNTING, ["thought: one two three"], "one two three"),
        (COUNTING_MODEL, ["thought: one", "observation: GeneratorExit"], ""),
    ],
    ids=["chain", "model"],
)
def test_a_stream_that_is_closed_early_keeps_what_was_said(
    config, notebook, runnable, story, result, live_spans
):
    first_of(runnable.stream("count", config))

    run, trace = notebook.run, notebook.trace
    assert notebook.story == story
    assert (trace.task.objective, trace.outcome.result_summary) == ("count", result)
    assert (run.complete, run.error_type, trace.metadata.success) == (False, "GeneratorExit", False)
    assert len(live_spans) == 0


def test_a_chains_async_stream_that_is_closed_early_keeps_what_was_said(
    config, notebook, live_spans
):
    async def close_early():
        stream = COUNTING.astream("count", config)
        await anext(stream)
        await stream.aclose()

    asyncio.run(close_early())

    assert notebook.story[0] == "thought: one"
    assert notebook.trace.task.objective == "count"
    assert notebook.run.complete is False
    assert len(live_spans) == 0


def test_a_chains_stream_in_a_captured_function_that_is_closed_early_is_a_part_of_it(
    config, notebook, live_spans
):
    notebook.capture(lambda question: first_of(COUNTING.stream(question, config)))("count")

    assert notebook.story == ["thought: one two three"]
    assert notebook.run.complete is True
    assert len(live_spans) == 0


def test_case_15_a_chain_tells_the_input_of_its_stream_at_the_end(config, notebook):
    list(COUNTING.stream("count", config))

    assert notebook.run.complete is True
    assert notebook.trace.task.objective == "count"
    assert notebook.trace.outcome.result_summary == "one two three"


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_case_20_a_run_that_ends_with_its_program_is_kept_as_incomplete(config, notebook, ending):
    def interrupted(_):
        ScriptedModel(turns=[answer_of("hi")]).invoke("go")
        raise ending

    with pytest.raises(ending):
        RunnableLambda(interrupted).invoke("go", config)

    assert notebook.story == ["thought: hi", f"observation: {ending.__name__}"]
    assert notebook.run.complete is False


def test_case_22_a_handover_to_a_parent_graph_is_no_error(config, notebook):
    inner = graph_of({"hand over": lambda _: Command(graph=Command.PARENT, goto="finish")})
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner, destinations=("finish",))
    outer.add_node("finish", speaking(answer_of("done")))
    outer.add_edge(START, "inner")

    outer.compile().invoke(GO, config)

    assert notebook.story == ["thought: done"]
    assert notebook.run.complete is True


def test_case_17_a_handler_in_a_models_constructor_says_once_what_to_do(handler, notebook, caplog):
    model = ScriptedModel(turns=[answer_of("hi")], callbacks=[handler])

    create_agent(model, []).invoke(GO)
    create_agent(model, []).invoke(GO)

    assert notebook.runs == []
    [warning] = caplog.records
    assert warning.message.endswith('to the outermost call: config={"callbacks": [handler]}')


def test_case_19_events_without_a_beginning_are_ignored(handler, notebook):
    handler.on_llm_end(answering(answer_of("hi")), run_id=uuid.uuid4())
    handler.on_tool_end("3", run_id=uuid.uuid4())
    handler.on_chain_end({}, run_id=uuid.uuid4())
    handler.on_chain_error(ValueError(), run_id=uuid.uuid4())

    assert notebook.ended == []


def twice(event, *args, **kwargs):
    event(*args, **kwargs)
    event(*args, **kwargs)


def test_case_19_events_that_come_twice_count_once(handler, notebook):
    root, model = uuid.uuid4(), uuid.uuid4()
    asked, answered = [[HumanMessage("go")]], answering(answer_of("hi"))

    twice(handler.on_chain_start, None, "go", run_id=root)
    twice(handler.on_chat_model_start, {}, asked, run_id=model, parent_run_id=root)
    twice(handler.on_llm_end, answered, run_id=model, parent_run_id=root)
    twice(handler.on_chain_end, "hi", run_id=root)

    assert notebook.story == ["thought: hi"]
