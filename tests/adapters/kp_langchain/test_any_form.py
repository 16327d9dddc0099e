"""No form that a message, an input or an output may take can break the reading."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from scripted_events import answering, recorded

KINDS = st.sampled_from(
    [
        "text",
        "reasoning",
        "thinking",
        "reasoning_content",
        "non_standard",
        "server_tool_call",
        "server_tool_result",
        "x_tool_result",
    ]
)
KEYS = st.sampled_from(
    [
        "text",
        "reasoning",
        "thinking",
        "reasoning_content",
        "summary",
        "value",
        "id",
        "name",
        "tool_call_id",
        "tool_use_id",
        "args",
        "messages",
        "role",
        "content",
    ]
)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS | st.just("type"), inner | KINDS),
)
BLOCKS = st.builds(lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(KEYS, VALUES))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(BLOCKS)
def test_no_content_block_can_break_a_turn(block):
    run = recorded(response=answering(AIMessage(["Yes.", block])))

    assert run.trace.outcome.result_summary.startswith("Yes.")


@settings(max_examples=40)
@given(VALUES, VALUES)
def test_no_input_and_no_output_can_break_a_run(inputs, output):
    trace = recorded(inputs, output=output).trace

    assert trace.task.objective
    assert trace.outcome.confidence == 0.8


@settings(max_examples=40)
@given(VALUES)
def test_no_output_of_a_tool_can_break_its_result(value):
    assert recorded(result=value).trace.steps[-1].type == "observation"
