"""What is read from messages, turns, results, inputs and outputs, in each of their forms."""

import json
import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import Generation, LLMResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_notebook import story
from pydantic import BaseModel
from scripted_agents import agent, graph_of
from scripted_events import answering, recorded
from scripted_models import ScriptedModel, calls, says
from versions import START, Command, Send, StateGraph
from ways_to_run import ainvoke, astream, invoke, stream


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hello"),
        ChatMessage("hello", role="user"),
        ("user", "hello"),
        ["human", "hello"],
        {"role": "user", "content": "hello"},
        {"type": "human", "content": [{"type": "text", "text": "hello"}]},
        "hello",
    ],
    ids=["object", "chat", "pair", "list", "role", "blocks", "text"],
)
def test_a_human_message_is_read_in_every_form(message):
    run = recorded({"messages": [message, AIMessage("Hm.")]})

    assert run.trace.task.objective == "hello"


def test_what_is_no_message_says_nothing():
    run = recorded({"messages": [("user", "hello"), object()]}, output={"messages": [object()]})

    assert (run.trace.task.objective, story(run)) == ("hello", ["thought: Hm."])


@pytest.mark.parametrize(
    "message",
    [
        AIMessage([{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Yes."}]),
        AIMessage([{"type": "thinking", "thinking": "Hm.", "signature": "s"}, "Yes."]),
        AIMessage(
            [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
                {"type": "text", "text": "Yes."},
            ]
        ),
        AIMessage(
            [{"type": "reasoning_content", "reasoning_content": {"text": "Hm."}}, "Ye", "s."]
        ),
        AIMessage(
            [{"type": "non_standard", "value": {"type": "thinking", "thinking": "Hm."}}, "Yes."]
        ),
        AIMessage("Yes.", additional_kwargs={"reasoning_content": "Hm."}),
        AIMessage("Yes.", additional_kwargs={"reasoning": {"summary": [{"text": "Hm."}]}}),
        AIMessage("<think>Hm.</think>\n\nYes."),
    ],
    ids=[
        "standard",
        "Anthropic",
        "OpenAI responses",
        "Bedrock",
        "not standard",
        "DeepSeek",
        "OpenAI v0",
        "inline",
    ],
)
def test_case_07_reasoning_is_found_in_every_form(config, notebook, message):
    ScriptedModel(turns=[message]).invoke("go", config)

    assert notebook.story == ["thought: Hm.\n\nYes."]
    assert notebook.trace.outcome.result_summary == "Yes."


@pytest.mark.parametrize(
    ("response", "thoughts"),
    [
        (answering(AIMessage(" \n")), []),
        (
            answering(AIMessage(" \n", additional_kwargs={"reasoning_content": "Hm."})),
            ["thought: Hm."],
        ),
        (LLMResult(generations=[]), []),
        (LLMResult(generations=[[]]), []),
    ],
    ids=["blank", "blank after reasoning", "empty", "no candidate"],
)
def test_what_is_not_there_is_no_part_of_a_thought(response, thoughts):
    run = recorded(response=response, result="3")

    assert story(run) == [*thoughts, "tool_call add", "observation add: 3"]


def test_a_completion_is_a_turn():
    response = LLMResult(
        generations=[[Generation(text="Yes.")]],
        llm_output={
            "model_name": "m-1",
            "token_usage": {"prompt_tokens": 3, "completion_tokens": 1},
        },
    )

    run = recorded(response=response)

    [facts] = run.facts
    assert story(run) == ["thought: Yes."]
    assert (facts.model, facts.input_tokens, facts.output_tokens) == ("m-1", 3, 1)


@pytest.mark.parametrize(
    ("call", "result", "told"),
    [
        (
            {"type": "server_tool_call", "args": {"q": "x"}},
            {"type": "server_tool_result", "tool_call_id": "1", "output": "found"},
            "observation search: found",
        ),
        (
            {"type": "server_tool_call", "args": {"q": "x"}},
            {"type": "server_tool_result", "tool_call_id": "1", "status": "error"},
            "error_recovery search: None",
        ),
        (
            {"type": "server_tool_use", "input": {"q": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "1", "content": ["page"]},
            'observation search: ["page"]',
        ),
    ],
    ids=["standard", "failed", "Anthropic"],
)
def test_case_08_tools_of_the_models_provider_are_steps(config, notebook, call, result, told):
    picture = {"type": "image", "url": "u"}  # of which nothing is a step
    said = AIMessage([call | {"name": "search", "id": "1"}, result, picture, "It is x."])

    ScriptedModel(turns=[said]).invoke("What is it?", config)

    assert notebook.story == ["tool_call search(q='x')", told, "thought: It is x."]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (ToolMessage("3", tool_call_id="1"), ("3", False)),
        (ToolMessage("bad", tool_call_id="1", status="error"), ("bad", True)),
        (
            ToolMessage(
                [{"type": "text", "text": "a"}, {"type": "image", "url": "u"}], tool_call_id="1"
            ),
            ("a\n[image]", False),
        ),
        (
            [ToolMessage("3", tool_call_id="1"), ToolMessage("4", tool_call_id="2")],
            ("3", False),
        ),
        ([1, 2], ("[1, 2]", False)),
        ({"sum": 3}, ('{"sum": 3}', False)),
        (None, ("None", False)),
    ],
    ids=[
        "message",
        "failure",
        "blocks",
        "messages",
        "list",
        "dict",
        "nothing",
    ],
)
def test_a_tools_result_is_read_in_every_form(output, expected):
    step = recorded(result=output).trace.steps[-1]

    assert (step.output_summary, step.type == "error_recovery") == expected


@pytest.mark.parametrize(
    "commanding",
    [
        lambda said: Command(update={"messages": [said]}),
        lambda said: [Command(goto="next"), said],
    ],
    ids=["in it", "beside it"],
)
def test_a_tools_result_is_read_in_and_beside_a_command(commanding):
    run = recorded(result=commanding(ToolMessage("3", tool_call_id="2")))

    assert story(run)[-1] == "observation add: 3"


class State(BaseModel):
    messages: list


@dataclass
class Request:
    subject: str
    depth: int | None = None


@pytest.mark.parametrize(
    ("inputs", "objective"),
    [
        ({"messages": [("user", "one"), ("ai", "hm"), ("user", "two")]}, "two"),
        ({"messages": ("user", "two")}, "two"),
        ({"messages": "two"}, "two"),
        ({"messages": [SystemMessage("one"), SystemMessage("two")]}, "two"),
        ([HumanMessage("two")], "two"),
        (State(messages=["two"]), "two"),
        (ChatPromptValue(messages=[HumanMessage("two")]), "two"),
        (StringPromptValue(text="two"), "two"),
        ("two", "two"),
        ({"input": "two", "chat_history": [HumanMessage("one")]}, "two"),
        ({"q": "two"}, "two"),
        ({"topic": "two", "q": "one"}, "two"),
        ({"a": "one", "b": 2}, '{"a": "one", "b": 2}'),
        (2, "2"),
        ({"input": ""}, "agent"),
        ({"request": {"subject": "two"}}, '{"request": {"subject": "two"}}'),
        ({"q": "two", "pages": ["one"]}, '{"q": "two", "pages": ["one"]}'),
        ({"question": "two", "pages": ["one"]}, "two"),
        ({"messages": [], "request": {"n": 2}}, '{"request": {"n": 2}}'),
        (Request(subject="two"), "two"),
        (Request(subject="two", depth=2), '{"subject": "two", "depth": 2}'),
        ([{"subject": "two"}], '[{"subject": "two"}]'),
        ({"log": []}, "agent"),
        (None, "agent"),
    ],
    ids=repr,
)
def test_the_objective_is_found_in_every_form_of_input(inputs, objective):
    assert recorded(inputs).trace.task.objective == objective


@pytest.mark.parametrize(
    ("given", "objective"),
    [({"resume": "yes"}, "agent"), ({"update": {"messages": ["two"]}}, "two")],
    ids=["goes on after a pause", "updates the state"],
)
def test_a_command_asks_what_it_updates_the_state_with(given, objective):
    assert recorded(Command(**given)).trace.task.objective == objective


class Parsed(BaseModel):
    total: int
    confidence: float


@pytest.mark.parametrize(
    ("output", "result", "confidence"),
    [
        ({"messages": [HumanMessage("q"), AIMessage("a")]}, "a", None),
        ({"messages": [HumanMessage("q"), AIMessage("a"), AIMessage("")]}, "a", None),
        ({"messages": [ToolMessage("direct", tool_call_id="1")]}, "direct", None),
        ({"messages": [AIMessage("before"), HumanMessage("q")]}, "Hm.", None),
        ({"messages": [AIMessage("a")], "confidence": 0.7}, "a", 0.7),
        (
            {"structured_response": {"v": 1, "confidence": 0.6}, "confidence": 0.7},
            '{"v": 1, "confidence": 0.6}',
            0.6,
        ),
        (AIMessage("<think>hm</think>a"), "a", None),
        ({"output": "a"}, "a", None),
        ("a", "a", None),
        (3, "3", None),
        ([1, 2], "[1, 2]", None),
        (Parsed(total=3, confidence=0.9), '{"total": 3, "confidence": 0.9}', 0.9),
        ({"log": ["x"]}, '{"log": ["x"]}', None),
        ({"messages": [HumanMessage("q")], "report": {"n": 1}}, '{"report": {"n": 1}}', None),
        ({"request": {"n": 1}, "report": "", "notes": []}, '{"request": {"n": 1}}', None),
        ({"one": AIMessage("a"), "two": "b"}, '{"one": "a", "two": "b"}', None),
        ({"summary": "a", "translation": "b"}, '{"summary": "a", "translation": "b"}', None),
        ({"question": "q", "context": "c", "answer": "a"}, "a", None),
        ({"raw": AIMessage("a"), "parsed": {"n": 1}}, '{"raw": "a", "parsed": {"n": 1}}', None),
        ({"plan": Request("two")}, '{"plan": {"subject": "two", "depth": null}}', None),
        (None, "Hm.", None),
    ],
    ids=[
        "conversation",
        "silent end",
        "returned directly",
        "unanswered",
        "confidence in the state",
        "structured",
        "message",
        "AgentExecutor",
        "text",
        "number",
        "list",
        "parsed",
        "other state",
        "beside the conversation",
        "without what is empty",
        "branches",
        "branches that read like an answer",
        "what it was made of",
        "raw and parsed",
        "an object under a key of its own",
        "nothing",
    ],
)
def test_the_answer_is_found_in_every_form_of_output(output, result, confidence):
    run = recorded(output=output)

    assert run.trace.outcome.result_summary == result
    assert run.trace.outcome.confidence == (confidence or 0.8)


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("<think>a</think> b <thinking>c</thinking>\nd", "a\n\nc", "b\nd"),
        ("<think>never closed", "", "<think>never closed"),
        ("before <think>a</think>", "a", "before"),
        ("<think>" * 50_000, "", "<think>" * 50_000),
        (" " * 100_000 + "<think>a</think>", "a", ""),
    ],
    ids=["twice", "open", "after", "hostile", "blank"],
)
def test_thoughts_in_the_text_are_told_apart_in_one_reading(text, thought, said):
    trace = recorded(response=answering(AIMessage(text))).trace

    assert (
        trace.steps[0].content[:1000].rstrip() == "\n\n".join(filter(None, [thought, said]))[:1000]
    )
    assert trace.outcome.result_summary[:100] == said[:100]


KINDS = st.sampled_from(
    [
        *("text", "reasoning", "thinking", "reasoning_content", "non_standard"),
        *("server_tool_call", "server_tool_result", "x_tool_result"),
    ]
)
KEYS = st.sampled_from(
    [
        *("text", "reasoning", "thinking", "reasoning_content", "summary", "value", "id", "name"),
        *("tool_call_id", "tool_use_id", "args", "messages", "role", "content"),
    ]
)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS | st.just("type"), inner | KINDS),
    max_leaves=8,
)
BLOCKS = st.builds(lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(KEYS, VALUES))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(BLOCKS, VALUES, VALUES, VALUES)
def test_no_form_can_break_the_reading(block, inputs, output, result):
    trace = recorded(
        inputs, response=answering(AIMessage(["Yes.", block])), output=output, result=result
    ).trace

    assert trace.task.objective
    assert trace.outcome.confidence == 0.8
    assert "Yes." in next(step.content for step in trace.steps if step.type == "thought")
    assert trace.steps[-1].type == "observation"


@pytest.mark.parametrize(
    ("given", "objective", "returned", "result"),
    [
        (7, "7", None, "hi"),
        (["a", "b"], "b", 7, "7"),
        ("go", "go", [1, 2], "[1, 2]"),
        ({"n": 7}, '{"n": 7}', AIMessage("bye"), "bye"),
    ],
)
def test_case_14_input_and_output_may_be_of_any_kind(
    config, notebook, given, objective, returned, result
):
    def run(_):
        ScriptedModel(turns=[says("hi")]).invoke("go")
        return returned

    RunnableLambda(run).invoke(given, config)

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.task.objective == objective
    assert notebook.trace.outcome.result_summary == result


def test_case_16_the_program_s_own_events_are_not_steps(config, notebook):
    @tool
    def work() -> str:
        """Tell how it goes."""
        dispatch_custom_event("progress", {"percent": 50})
        return "worked"

    agent(calls(work={}), says("done"), tools=[work]).invoke({"messages": "go"}, config)

    assert notebook.story == ["tool_call work", "observation work: worked", "thought: done"]


class Research(TypedDict, total=False):
    request: dict
    subjects: list
    report: str
    notes: Annotated[list, operator.add]


def asking(prompt):
    """A model that answers a prompt which is not what its run is for."""
    return ScriptedModel(turns=[says(f"on {prompt}")]).invoke(f"You are an expert. {prompt}").text


@pytest.mark.parametrize("way", [invoke, ainvoke, stream, astream])
def test_a_graph_with_keys_of_its_own_has_its_own_input_and_output(config, notebook, way):
    graph = graph_of({"write": lambda _: {"report": asking("cats")}}, state=Research)
    asked = {"request": {"subject": "cats", "pages": 2}}

    way(graph, asked, config)

    trace = notebook.trace
    assert json.loads(trace.task.objective) == asked
    assert json.loads(trace.outcome.result_summary) == {**asked, "report": "on cats"}


def test_what_is_sent_to_many_nodes_is_one_input_and_one_output(config, notebook):
    graph = StateGraph(Research)
    graph.add_node("note", lambda sent: {"notes": [asking(sent["subject"])]})
    graph.add_conditional_edges(
        START,
        lambda state: [Send("note", {"subject": one}) for one in state["subjects"]],
        ["note"],
    )

    graph.compile().invoke({"subjects": ["cats", "dogs"]}, config)

    trace = notebook.trace
    assert json.loads(trace.task.objective) == {"subjects": ["cats", "dogs"]}
    assert json.loads(trace.outcome.result_summary)["notes"] == ["on cats", "on dogs"]


def test_however_large_an_input_is_the_objective_is_bounded(config, notebook):
    RunnableLambda(lambda _: asking("all")).invoke({"pages": ["page " * 20_000] * 20}, config)

    assert len(notebook.trace.task.objective) < 100_000


def test_a_result_of_a_tool_is_no_objective(config, notebook):
    model = ScriptedModel(turns=[says("it is 3")])

    def loop(_, config):
        model.invoke([], config)
        return model.invoke([ToolMessage("three", tool_call_id="1")], config)

    RunnableLambda(loop).invoke({"messages": []}, config)

    assert notebook.trace.task.objective != "three"
