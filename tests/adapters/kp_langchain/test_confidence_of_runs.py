# ruff: noqa: ARG002 - LangChain's own signatures
"""Confidence from the structured response, from log-probabilities, or from a function."""

import math
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from pydantic import BaseModel
from scripted_agents import add, agent, chain
from scripted_models import CompletingModel, ScriptedModel, calls
from versions import ToolStrategy, create_agent
from ways_to_run import WAYS

import kp_langchain
from kp_langchain import KPCallbackHandler
from kp_middleware import current_trace
from kp_middleware.confidence import Field, log_probabilities
from kp_middleware.recording import Extractors

NEARLY_SURE, UNSURE = 0.9, 0.5


class Verdict(BaseModel):
    answer: str
    certainty: int


def tokens(text, probability):
    return [
        {"token": word, "logprob": math.log(probability), "bytes": None, "top_logprobs": []}
        for word in text.split(" ")
    ]


def with_logs(message, probability):
    """The message, as OpenAI's chat model gives it when it is asked for log-probabilities."""
    found = {"content": tokens(message.text, probability), "refusal": None}
    return message.model_copy(update={"response_metadata": {"logprobs": found}})


class LogprobStreamingModel(ScriptedModel):
    """Streams a chunk for each token, which brings that token's log-probability."""

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        turn = self._turn(messages)
        for token in turn.response_metadata["logprobs"]["content"]:
            yield ChatGenerationChunk(
                message=AIMessageChunk(token["token"]),
                generation_info={"logprobs": {"content": [token], "refusal": None}},
            )
        yield ChatGenerationChunk(
            message=AIMessageChunk("", tool_call_chunks=_chunks(turn)),
            generation_info={"finish_reason": "stop"},
        )


def _chunks(turn):
    return [
        {"name": call["name"], "args": '{"a": 1, "b": 2}', "id": call["id"], "index": 0}
        for call in turn.tool_calls
    ]


@pytest.fixture
def logprobs_config(notebook):
    """A config whose handler reads log-probabilities."""
    return {"callbacks": [KPCallbackHandler(notebook, confidence=log_probabilities)]}


def confidence(notebook):
    return notebook.trace.outcome.confidence


ADDING = (
    with_logs(calls("I need to add", add={"a": 1, "b": 2}), UNSURE),
    with_logs(AIMessage("The answer is 3"), NEARLY_SURE),
)


@pytest.mark.parametrize("run", WAYS)
@pytest.mark.parametrize(
    ("make", "given"),
    [
        (
            lambda: create_agent(LogprobStreamingModel(turns=[*ADDING]), [add]),
            {"messages": "1 + 2?"},
        ),
        (lambda: LogprobStreamingModel(turns=[ADDING[1]]), "1 + 2?"),
    ],
    ids=["agent", "model"],
)
def test_log_probabilities_are_those_of_the_final_answer_however_it_is_run(
    notebook, logprobs_config, run, make, given
):
    run(make(), given, logprobs_config)

    assert confidence(notebook) == NEARLY_SURE


def in_blocks(kept):
    """A model that answers in blocks, of whose tokens only these are told."""
    logs = {"content": tokens(kept, NEARLY_SURE)}
    said = AIMessage(
        [{"type": "text", "text": "The answer is 3."}],
        response_metadata={"output_version": "v1", "logprobs": logs},
    )
    return ScriptedModel(turns=[said])


@tool
def ask_a_colleague(question: str) -> str:
    """Ask a colleague, who is a model too."""
    return ScriptedModel(turns=[with_logs(AIMessage("It is 3"), UNSURE)]).invoke(question).text


ASKED = {"messages": "1 + 2?"}
ASKING = calls("", ask_a_colleague={"question": "1 + 2?"})
LOGS = [None, math.log(NEARLY_SURE), math.log(NEARLY_SURE)]
OLDER_FORM = {"logprobs": {"tokens": ["It", " is", " 3"], "token_logprobs": LOGS}}


@pytest.mark.parametrize(
    ("runnable", "given", "expected"),
    [
        (ScriptedModel(turns=[ADDING[1]]) | StrOutputParser(), "1 + 2?", NEARLY_SURE),
        (CompletingModel(words="It is 3", info=OLDER_FORM), "1 + 2 =", NEARLY_SURE),
        (chain(ADDING[0], AIMessage("The answer is 3")), ASKED, 0.8),
        (in_blocks("."), "1 + 2?", 0.8),
        (in_blocks("The answer is 3."), "1 + 2?", NEARLY_SURE),
        (
            chain(ASKING, ADDING[1], tools=(ask_a_colleague,))
            | (lambda _: ask_a_colleague.invoke({"question": "Is it?"})),
            ASKED,
            NEARLY_SURE,
        ),
    ],
    ids=[
        "found where the output does not hold them",
        "of a completion model",
        "not those of an earlier turn",
        "not those of the last chunk alone",
        "of blocks, all",
        "not of a model inside a tool",
    ],
)
def test_log_probabilities_are_those_of_the_final_answer(
    notebook, logprobs_config, runnable, given, expected
):
    runnable.invoke(given, logprobs_config)

    assert confidence(notebook) == expected


def test_the_agents_own_word_counts_more_than_its_output_and_any_extractor(
    notebook, logprobs_config
):
    @tool
    def check(answer: str) -> str:
        """Check an answer."""
        current_trace().outcome(confidence=0.3)
        return f"{answer} is right"

    final = with_logs(AIMessage("The answer is 3"), NEARLY_SURE)
    chain(calls(check={"answer": "3"}), final, tools=(check,)).invoke(
        {"messages": "?"}, logprobs_config
    )

    assert confidence(notebook) == 0.3


def judging_agent():
    verdict = calls(Verdict={"answer": "3", "certainty": 85})
    return agent(verdict, tools=(), response_format=ToolStrategy(Verdict))


def judging_chain():
    model = ScriptedModel(turns=[AIMessage("3")])
    return model | (lambda said: {"answer": said.text, "review": {"certainty": 0.85}})


@pytest.mark.parametrize(
    ("judging", "given", "field"),
    [
        (judging_agent, {"messages": "1 + 2?"}, Field("certainty", of=100)),
        (judging_chain, "1 + 2?", Field("review.certainty")),
    ],
)
def test_a_field_of_the_structured_response_or_of_any_other_output_tells(
    notebook, judging, given, field
):
    judging().invoke(given, {"callbacks": [KPCallbackHandler(notebook, confidence=field)]})

    assert confidence(notebook) == 0.85


def test_a_captured_function_hears_the_models_that_answer_inside_it(config, notebook):
    def answer(question):
        model = ScriptedModel(turns=[with_logs(AIMessage("It is 3"), NEARLY_SURE)])
        return model.invoke(question, config).text

    notebook.capture(answer, confidence=Extractors(log_probabilities))("1 + 2?")

    assert confidence(notebook) == NEARLY_SURE


def _enter(kp, **options):
    with kp_langchain.recording_runs(kp, **options):
        pass


@pytest.mark.parametrize(
    "switch_on",
    [KPCallbackHandler, kp_langchain.enable, _enter],
    ids=["handler", "enable", "block"],
)
@pytest.mark.parametrize("wrong", ["certainty", 3])
def test_what_is_no_function_is_refused_when_it_is_given(notebook, switch_on, wrong):
    with pytest.raises(TypeError, match=f"a function of the result, or several.* got {wrong!r}"):
        switch_on(notebook, confidence=wrong)
