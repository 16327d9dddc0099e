"""Whatever attributes hold, the agent hears nothing of it, and what can be read is read."""

import json

from framework_dumps import RunCollector
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from kp_middleware.recording import shield
from kp_otel import KPSpanProcessor

MESSAGES = json.dumps(
    [
        {"role": "user", "parts": [{"type": "text", "content": "An egg?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": {"reasoningText": {"text": "Hm."}}},
                {"type": "tool_call", "id": "c", "name": "boil", "arguments": '{"minutes": 6}'},
                {"type": "tool_call_response", "id": "c", "response": [1, None]},
            ],
        },
    ]
)
KEYS = (
    *("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind"),
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments"),
    *("gen_ai.tool.call.result", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.agent.name"),
    *("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.conversation.id"),
    *("input.value", "output.value", "tool.name", "final_result", "error.type", "session.id"),
    *("llm.input_messages.0.message.role", "llm.input_messages.0.message.content"),
    *("llm.output_messages.0", "llm.output_messages.0.message", "llm.output_messages.x.y"),
    *("llm.output_messages.2.message.contents.1.message_content.text", "llm.token_count.prompt"),
    *("llm.output_messages.2.message.tool_calls.0.tool_call.function.name", "gen_ai.prompt.0.role"),
    *("gen_ai.completion.0.tool_calls.0.name", "content", "message", "exception.message"),
)
KINDS = (
    "invoke_agent",
    "chat",
    "execute_tool",
    "retrieval",
    "AGENT",
    "LLM",
    "TOOL",
    "task",
    "tool",
)
WORDS = (  # of messages and their parts
    *("role", "type", "parts", "content", "contents", "text", "message", "messages", "data"),
    *("id", "name", "arguments", "function", "function_call", "tool_calls", "call_id", "input"),
    *("response", "result", "output", "status", "is_error", "reasoning", "thinking", "summary"),
    *("toolUse", "toolResult", "reasoningContent", "reasoningText", "kwargs", "lc", "usage"),
    *("user", "assistant", "tool", "tool_call", "tool_call_response", "function_call_output"),
)
cut = st.integers(0, len(MESSAGES)).map(lambda end: MESSAGES[:end])
nested = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=8,
)
parts = st.lists(st.dictionaries(st.sampled_from(WORDS), nested, max_size=4), max_size=2)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(WORDS), "parts": parts}), max_size=2
)
values = st.one_of(
    st.sampled_from(KINDS),
    cut,
    nested.map(json.dumps),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.lists(st.text(max_size=3), max_size=3),
)
attributes = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)
events = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"),
                "gen_ai.client.inference.operation.details",
            )
        ),
        attributes,
    ),
    max_size=2,
)
spans = st.lists(
    st.tuples(attributes, attributes, events, st.sampled_from(StatusCode), st.text(max_size=20)),
    max_size=5,
)


def span(number, told, happened=(), status=StatusCode.UNSET, description=None):
    return ReadableSpan(
        name=f"span {number}",
        context=context(number),
        parent=context(number // 2) if number > 1 else None,
        attributes=told,
        events=[Event(name, given) for name, given in happened],
        status=Status(status, description if status is StatusCode.ERROR else None),
        instrumentation_scope=InstrumentationScope("any"),
        start_time=1_700_000_000_000_000_000 + number,
        end_time=1_700_000_001_000_000_000,
    )


def context(number):
    return SpanContext(1, number, is_remote=False, trace_flags=TraceFlags(1))


@given(spans)
def test_no_attribute_breaks_the_reading(told):
    read(told)


@given(messages, messages)
def test_no_message_breaks_the_reading(asked, said):
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(said),
    }
    read([(told, told, (), StatusCode.UNSET, "")])


def read(told):
    shield.failures.clear()
    collector = RunCollector()
    processor = KPSpanProcessor(collector)
    root = {"gen_ai.operation.name": "invoke_agent", "final_result": "An egg."}

    processor.on_start(span(1, root))
    for number, (first, *_) in enumerate(told, 2):
        processor.on_start(span(number, first))
    for number, (_, last, *rest) in enumerate(told, 2):
        processor.on_end(span(number, last, *rest))
    processor.on_end(span(1, root))
    processor.shutdown()

    assert len(collector.runs) <= len(collector.ended)  # and all are read
    failed = [name for name in shield.failures if not name.startswith("a run without content")]
    assert failed == []
    assert len(processor._buffer) == 0
