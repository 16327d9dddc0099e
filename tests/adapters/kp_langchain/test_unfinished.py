"""A run whose last answer is not whole is incomplete, and says why."""

import asyncio

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from scripted_agents import GO, add, agent, graph_of
from scripted_models import (
    CompletingModel,
    FlakyModel,
    ScriptedModel,
    StreamingModel,
    answer_of,
    calls,
)
from versions import (
    ModelCallLimitMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    create_agent,
    needs,
    wrap_model_call,
)
from ways_to_run import WAYS

from kp_middleware import current_trace

ENDS = {  # what providers say of an answer, and the reason in it why that is not whole
    "OpenAI": ({"finish_reason": "length"}, "length"),
    "OpenAI's filter": ({"finish_reason": "content_filter"}, "content_filter"),
    "OpenAI's responses": (
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        "max_output_tokens",
    ),
    "Anthropic": ({"stop_reason": "max_tokens"}, "max_tokens"),
    "Anthropic's filter": ({"stop_reason": "refusal"}, "refusal"),
    "Google": ({"finish_reason": "MAX_TOKENS"}, "MAX_TOKENS"),
    "Google's filter": ({"finish_reason": "SAFETY"}, "SAFETY"),
    "Bedrock": ({"stopReason": "max_tokens"}, "max_tokens"),
    "Ollama": ({"done_reason": "length"}, "length"),
    "OpenAI, whole": ({"finish_reason": "stop"}, None),
    "Anthropic, whole": ({"stop_reason": "end_turn"}, None),
    "Anthropic, at a word": ({"stop_reason": "stop_sequence"}, None),
    "Google, whole": ({"finish_reason": "STOP"}, None),
    "OpenAI's responses, whole": ({"status": "completed", "incomplete_details": None}, None),
    "no reason": ({"finish_reason": None}, None),
}


def unfinished(text="The answer is", **metadata):
    return AIMessage(text, response_metadata=metadata or {"finish_reason": "length"})


@pytest.mark.parametrize(("metadata", "reason"), ENDS.values(), ids=ENDS)
def test_an_answer_that_was_cut_leaves_the_run_incomplete(config, notebook, metadata, reason):
    ScriptedModel(turns=[unfinished(**metadata)]).invoke("go", config)

    is_whole = reason is None
    assert (notebook.run.complete, notebook.run.error_type) == (is_whole, reason)
    assert notebook.trace.metadata.success is is_whole
    assert notebook.story == ["thought: The answer is"]


@pytest.mark.parametrize("way", WAYS)
def test_however_a_chain_is_run_its_cut_answer_is_reported(config, notebook, way):
    way(StreamingModel(turns=[unfinished()]) | StrOutputParser(), "go", config)

    assert (notebook.run.complete, notebook.run.error_type) == (False, "length")


def test_a_completion_that_was_cut_is_reported(config, notebook):
    CompletingModel(words="The", info={"finish_reason": "length"}).invoke("go", config)

    assert (notebook.run.complete, notebook.run.error_type) == (False, "length")


def test_an_agent_that_is_cut_and_goes_on_is_a_success(config, notebook):
    calls_add = calls("I add", add={"a": 1, "b": 2})
    calls_add.response_metadata = {"finish_reason": "length"}

    agent(calls_add, answer_of("3")).invoke(GO, config)

    assert (notebook.run.complete, notebook.run.error_type) == (True, None)


@pytest.mark.parametrize(
    ("known", "ended"), [({}, (False, "length", False)), ({"success": True}, (True, None, True))]
)
def test_a_captured_function_whose_last_answer_was_cut_may_say_that_it_will_do(
    config, notebook, known, ended
):
    def ask(question):
        ScriptedModel(turns=[unfinished("y")]).invoke(question, config)
        current_trace().outcome(**known)

    notebook.capture(ask)("yes or no?")

    run = notebook.run
    assert (run.complete, run.error_type, run.trace.metadata.success) == ended


def malformed():
    call = {"type": "invalid_tool_call", "id": "c1", "name": "add", "args": "{", "error": "no JSON"}
    return AIMessage("", invalid_tool_calls=[call])


def test_case_08_a_run_that_ends_with_a_call_that_nobody_can_do_is_no_success(config, notebook):
    agent(malformed()).invoke(GO, config)

    assert notebook.story == ["tool_call add(arguments='{')", "error_recovery add: no JSON"]
    assert notebook.trace.metadata.success is False
    assert (notebook.run.complete, notebook.run.error_type) == (False, "InvalidToolCall")


def test_a_run_that_goes_on_after_a_call_that_nobody_can_do_is_a_success(config, notebook):
    model = ScriptedModel(turns=[malformed(), answer_of("3")])

    def ask(question):
        model.invoke(question, config)
        return model.invoke([("ai", ""), ("user", "try again")], config).text

    notebook.capture(ask)("1 + 2?")

    assert notebook.trace.metadata.success is True
    assert notebook.story[-1] == "thought: 3"


class Slow(StreamingModel):
    """Says a word, and then waits for ever."""

    async def _astream(self, messages, *_, **__):
        yield ChatGenerationChunk(message=AIMessageChunk("one"))
        await asyncio.Event().wait()
        yield ChatGenerationChunk(message=AIMessageChunk(messages[-1].text))


def test_an_agents_stream_of_tokens_that_is_broken_keeps_what_was_said(config, notebook):
    async def break_off():
        stream = create_agent(Slow(turns=[]), []).astream(GO, config, stream_mode="messages")
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(break_off())

    assert notebook.story == ["thought: one", "observation: GeneratorExit"]
    assert notebook.run.complete is False


def test_a_chains_stream_that_is_cancelled_keeps_what_was_said(config, notebook):
    async def read():
        async with asyncio.timeout(60) as limit:
            async for _ in (Slow(turns=[]) | StrOutputParser()).astream("go", config):
                limit.reschedule(0)

    with pytest.raises(TimeoutError):
        asyncio.run(read())

    assert notebook.story == ["thought: one", "observation: CancelledError"]


def summarizing(model, summary, after):
    """An agent whose history another model sums up from so many messages on."""
    middleware = SummarizationMiddleware(
        model=ScriptedModel(turns=[summary]), trigger=("messages", after), keep=("messages", 1)
    )
    return create_agent(model, [add], middleware=[middleware])


def test_a_summary_of_the_history_is_seen_and_not_thought(config, notebook):
    class Next(ScriptedModel):
        def _turn(self, messages):
            answered = any(message.type == "tool" for message in messages)
            return self.turns[answered].model_copy(deep=True)

    model = Next(turns=[calls("I add.", add={"a": 1, "b": 2}), answer_of("3")])

    summarizing(model, answer_of("They greeted."), 3).invoke(
        {"messages": [("user", "hi"), ("ai", "hello"), ("user", "1 + 2?")]}, config
    )

    assert notebook.scopes == [
        ("summarization", "observation: They greeted."),
        (None, "thought: I add."),
        (None, "tool_call add(a=1, b=2)"),
        (None, "observation add: 3"),
        ("summarization", "observation: They greeted."),
        (None, "thought: 3"),
    ]
    assert notebook.trace.task.objective == "1 + 2?"
    assert notebook.trace.outcome.result_summary == "3"


def test_a_summary_that_was_cut_is_not_the_runs_answer(config, notebook):
    silent = summarizing(ScriptedModel(turns=[answer_of("hi")]), unfinished("They"), 1)

    silent.invoke({"messages": [("user", "a"), ("user", "b")]}, config)

    assert notebook.run.complete is True


def test_an_answer_that_a_middleware_gives_for_a_model_that_failed_is_no_success(config, notebook):
    failing = FlakyModel(turns=[], errors=["down", "still down"])
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure="continue")

    create_agent(failing, [add], middleware=[retry]).invoke(GO, config)

    assert (notebook.run.complete, notebook.run.error_type) == (False, "ConnectionError")
    assert notebook.story == [
        "error_recovery: ConnectionError: down",
        "error_recovery: ConnectionError: still down",
    ]


def canned(model):
    """A graph that apologizes if its model fails."""

    def ask(state):
        try:
            return {"messages": [model.invoke(state["messages"])]}
        except ConnectionError:
            return {"messages": [AIMessage("Sorry, try again later.")]}

    return graph_of({"ask": ask})


def test_an_apology_for_a_model_that_failed_is_no_success(config, notebook):
    canned(FlakyModel(turns=[answer_of("3")], errors=["down"])).invoke(GO, config)

    assert (notebook.run.complete, notebook.run.error_type) == (False, "ConnectionError")


def test_a_model_that_fails_after_the_answer_leaves_it_a_success(config, notebook):
    def ask(state):
        return {"messages": [ScriptedModel(turns=[answer_of("3")]).invoke(state["messages"])]}

    def name(_):
        canned(FlakyModel(turns=[], errors=["down"])).invoke({"messages": "a title"})
        return {}

    graph_of({"ask": ask, "name": name}, in_turn=True).invoke(GO, config)

    assert notebook.trace.outcome.result_summary == "3"
    assert (notebook.run.complete, notebook.run.error_type) == (True, None)


@needs("agents that say so")
def test_an_agent_that_has_reached_a_limit_is_no_success(config, notebook):
    limit = ModelCallLimitMiddleware(run_limit=1, exit_behavior="end")

    agent(calls("I add", add={"a": 1, "b": 2}), middleware=[limit]).invoke(GO, config)

    assert (notebook.run.complete, notebook.run.error_type) == (False, "EndedByMiddleware")


def test_an_answer_that_a_middleware_changes_is_still_the_models(config, notebook):
    hide = PIIMiddleware("email", apply_to_input=False, apply_to_output=True)
    turns = calls("I add", add={"a": 1, "b": 2}), answer_of("3, says anna@example.org")

    agent(*turns, middleware=[hide]).invoke(GO, config)

    assert "anna" not in notebook.trace.outcome.result_summary
    assert (notebook.run.complete, notebook.run.error_type) == (True, None)


def test_a_new_message_with_what_the_model_says_after_a_tool_is_a_success(config, notebook):
    @wrap_model_call
    def shout(request, handler):
        said = handler(request).result[0]
        return AIMessage(said.text.upper(), tool_calls=said.tool_calls)

    agent(calls("I add", add={"a": 1, "b": 2}), answer_of("three"), middleware=[shout]).invoke(
        GO, config
    )

    assert notebook.trace.outcome.result_summary == "THREE"
    assert (notebook.run.complete, notebook.run.error_type) == (True, None)


@pytest.mark.parametrize(("reason", "told"), [("stop", "EmptyAnswer"), ("length", "length")])
def test_a_run_whose_only_answer_is_empty_is_kept_with_its_tokens(config, notebook, reason, told):
    empty = AIMessage("", response_metadata={"finish_reason": reason})
    empty.usage_metadata = {"input_tokens": 7, "output_tokens": 900, "total_tokens": 907}

    ScriptedModel(turns=[empty]).invoke("Prove it.", config)

    run = notebook.run
    assert (run.trace.task.objective, notebook.story) == ("Prove it.", ["thought"])
    assert (run.complete, run.error_type, run.output_tokens) == (False, told, 900)
