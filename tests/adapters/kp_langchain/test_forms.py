"""Messages, turns and results are read in each of their forms."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_core.outputs import Generation, LLMResult
from langchain_core.tools import tool
from langchain_notebook import story
from scripted_agents import agent
from scripted_events import answering, recorded
from scripted_models import ScriptedModel, answer_of, calls
from versions import Command


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


def test_case_16_the_program_s_own_events_are_not_steps(config, notebook):
    @tool
    def work() -> str:
        """Tell how it goes."""
        dispatch_custom_event("progress", {"percent": 50})
        return "worked"

    agent(calls(work={}), answer_of("done"), tools=[work]).invoke({"messages": "go"}, config)

    assert notebook.story == ["tool_call work", "observation work: worked", "thought: done"]
