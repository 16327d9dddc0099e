# ruff: noqa: ARG002 - LangChain's own signatures
"""How sure an agent is, by its structured response, by log-probabilities, or by a function."""

import math
from typing import Any

import pytest
from langchain_core.language_models import LLM
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk, Generation, LLMResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from pydantic import BaseModel
from scripted_agents import add, agent, chain
from scripted_models import ScriptedModel, calls
from versions import ToolStrategy, create_agent
from ways_to_run import WAYS, invoke

import kp_langchain
from kp_langchain import KPCallbackHandler
from kp_middleware import current_trace
from kp_middleware.confidence import Field, log_probabilities
from kp_middleware.recording import Extractors, captured, shield

NEARLY_SURE, UNSURE = 0.9, 0.5


class Verdict(BaseModel):
    answer: str
    certainty: int


def tokens(text, probability):
    return [
        {"token": word, "logprob": math.log(probability), "bytes": None, "top_logprobs": []}
        for word in text.split(" ")
    ]


def told(message, probability):
    """The message, as OpenAI's chat model gives it when it is asked for log-probabilities."""
    found = {"content": tokens(message.text, probability), "refusal": None}
    return message.model_copy(update={"response_metadata": {"logprobs": found}})


class Telling(ScriptedModel):
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


class Completing(LLM):
    """A completion model, which gives log-probabilities in their older form."""

    @property
    def _llm_type(self) -> str:
        return "completing"

    def _call(self, *_: Any, **__: Any) -> str:
        raise NotImplementedError  # abstract in LLM; `_generate` is what is called

    def _generate(self, prompts: list[str], *_: Any, **__: Any) -> LLMResult:
        logs = [None, math.log(NEARLY_SURE), math.log(NEARLY_SURE)]
        info = {"logprobs": {"tokens": ["It", " is", " 3"], "token_logprobs": logs}}
        return LLMResult(generations=[[Generation(text="It is 3", generation_info=info)]])


@pytest.fixture
def sure(notebook):
    """A config whose handler reads log-probabilities."""
    return {"callbacks": [KPCallbackHandler(notebook, confidence=log_probabilities)]}


def confidence(notebook):
    return notebook.trace.outcome.confidence


ADDING = (
    told(calls("I need to add", add={"a": 1, "b": 2}), UNSURE),
    told(AIMessage("The answer is 3"), NEARLY_SURE),
)


@pytest.mark.parametrize("run", WAYS)
def test_log_probabilities_are_those_of_the_final_answer_however_it_is_run(notebook, sure, run):
    adding = create_agent(Telling(turns=list(ADDING)), [add])

    run(adding, {"messages": "1 + 2?"}, sure)

    assert confidence(notebook) == NEARLY_SURE


@pytest.mark.parametrize("run", WAYS)
def test_log_probabilities_of_a_model_alone_are_read_however_it_is_run(notebook, sure, run):
    run(Telling(turns=[ADDING[1]]), "1 + 2?", sure)

    assert confidence(notebook) == NEARLY_SURE


def test_log_probabilities_are_found_where_the_output_does_not_hold_them(notebook, sure):
    model = ScriptedModel(turns=[told(AIMessage("The answer is 3"), NEARLY_SURE)])
    prompt = ChatPromptTemplate.from_messages([("user", "{question}")])

    (prompt | model | StrOutputParser()).invoke({"question": "1 + 2?"}, sure)

    assert confidence(notebook) == NEARLY_SURE


def test_log_probabilities_of_a_completion_model_are_found(notebook, sure):
    Completing().invoke("1 + 2 =", sure)

    assert confidence(notebook) == NEARLY_SURE


def test_an_answer_without_log_probabilities_is_not_taken_for_an_earlier_one(notebook, sure):
    chain(ADDING[0], AIMessage("The answer is 3")).invoke({"messages": "1 + 2?"}, sure)

    assert confidence(notebook) == 0.8


def test_of_a_stream_that_keeps_only_the_last_chunks_log_probabilities_they_are_not_read(
    notebook, sure
):
    cut = {"content": tokens(".", 1.0)}
    said = AIMessage(
        [{"type": "text", "text": "The answer is 3."}],
        response_metadata={"output_version": "v1", "logprobs": cut},
    )

    ScriptedModel(turns=[said]).invoke("1 + 2?", sure)

    assert confidence(notebook) == 0.8


def test_of_blocks_with_all_their_log_probabilities_these_are_read(notebook, sure):
    whole = {"content": tokens("The answer is 3.", NEARLY_SURE)}
    said = AIMessage(
        [{"type": "text", "text": "The answer is 3."}],
        response_metadata={"output_version": "v1", "logprobs": whole},
    )

    ScriptedModel(turns=[said]).invoke("1 + 2?", sure)

    assert confidence(notebook) == NEARLY_SURE


@tool
def ask_a_colleague(question: str) -> str:
    """Ask a colleague, who is a model too."""
    return ScriptedModel(turns=[told(AIMessage("It is 3"), UNSURE)]).invoke(question).text


ASKING = calls("", ask_a_colleague={"question": "1 + 2?"})


def test_a_model_inside_a_tool_does_not_answer_for_the_agent(notebook, sure):
    asking = chain(ASKING, told(AIMessage("It is 3"), NEARLY_SURE), tools=(ask_a_colleague,))
    asking_again = asking | (lambda _: ask_a_colleague.invoke({"question": "Is it?"}))

    asking_again.invoke({"messages": "1 + 2?"}, sure)

    assert confidence(notebook) == NEARLY_SURE


def test_where_only_a_model_inside_a_tool_speaks_it_counts(notebook, sure):
    RunnableLambda(ask_a_colleague.invoke).invoke("1 + 2?", sure)

    assert confidence(notebook) == UNSURE


def test_the_agents_own_word_counts_more_than_its_output_and_any_extractor(notebook, sure):
    @tool
    def check(answer: str) -> str:
        """Check an answer."""
        current_trace().outcome(confidence=0.3)
        return f"{answer} is right"

    final = told(AIMessage("The answer is 3"), NEARLY_SURE)
    chain(calls(check={"answer": "3"}), final, tools=(check,)).invoke({"messages": "?"}, sure)

    assert confidence(notebook) == 0.3


def test_a_field_of_the_structured_response_tells(notebook):
    handler = KPCallbackHandler(notebook, confidence=Field("certainty", of=100))
    judging = agent(
        calls(Verdict={"answer": "3", "certainty": 85}),
        tools=(),
        response_format=ToolStrategy(Verdict),
    )

    judging.invoke({"messages": "1 + 2?"}, {"callbacks": [handler]})

    assert confidence(notebook) == 0.85


def test_a_field_of_any_other_output_tells(notebook):
    handler = KPCallbackHandler(notebook, confidence=Field("review.certainty"))
    model = ScriptedModel(turns=[AIMessage("3")])
    judging = model | (lambda said: {"answer": said.text, "review": {"certainty": 0.6}})

    judging.invoke("1 + 2?", {"callbacks": [handler]})

    assert confidence(notebook) == 0.6


@pytest.mark.parametrize(
    ("messages", "expected"), [([told(AIMessage("It is 3"), UNSURE)], 0.5), ([AIMessage("3")], 0.1)]
)
def test_extractors_are_asked_in_turn_and_a_wrong_one_is_counted(notebook, messages, expected):
    before = shield.failures.total()
    handler = KPCallbackHandler(
        notebook,
        confidence=[Field("certainty"), lambda output: output / 0, log_probabilities, _a_tenth],
    )

    ScriptedModel(turns=messages).invoke("1 + 2?", {"callbacks": [handler]})

    assert confidence(notebook) == expected
    assert shield.failures.total() == before + 1


def _a_tenth(_):
    return 0.1


def test_a_captured_function_hears_the_models_that_answer_inside_it(notebook, handler):
    def answer(question):
        model = ScriptedModel(turns=[told(AIMessage("It is 3"), NEARLY_SURE)])
        return model.invoke(question, {"callbacks": [handler]}).text

    sure = Extractors(log_probabilities)
    captured(answer, lambda: notebook.start_recording("python"), confidence=sure)("1 + 2?")

    assert confidence(notebook) == NEARLY_SURE


def test_every_way_to_switch_recording_on_takes_extractors(notebook):
    model = ScriptedModel(turns=[told(AIMessage("It is 3"), NEARLY_SURE)])

    with kp_langchain.recording_runs(notebook, confidence=log_probabilities):
        invoke(model, "1 + 2?", {})
    kp_langchain.enable(notebook, confidence=[log_probabilities])
    try:
        invoke(model, "1 + 2?", {})
    finally:
        kp_langchain.disable()

    assert [run.trace.outcome.confidence for run in notebook.runs] == [NEARLY_SURE] * 2


def _enter(kp, **options):
    with kp_langchain.recording_runs(kp, **options):
        pass


@pytest.mark.parametrize(
    "switch_on",
    [KPCallbackHandler, kp_langchain.enable, _enter],
    ids=["handler", "enable", "block"],
)
def test_what_is_no_function_is_refused_when_it_is_given(notebook, switch_on):
    with pytest.raises(TypeError, match="a function of the result, or several"):
        switch_on(notebook, confidence="certainty")
