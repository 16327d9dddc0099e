"""One conversation is the same run, whichever tool has recorded it."""

import json

import pytest
from framework_dumps import RunCollector
from import_samples import START, lines, step_tuples
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import ToolException, tool

from kp_langchain import KPCallbackHandler

ASKED, DONE, MODEL = "Refund order A1.", "The till is closed.", "a-model"
LOOK, PAY = ("look_up", {"order": "A1"}, "c1"), ("pay", {"euros": 12}, "c2")
SAID = [("I look.", [LOOK], (10, 5)), ("I pay.", [PAY], (20, 6)), (DONE, [], (30, 7))]
RESULTS = {"c1": "12 EUR", "c2": "shut"}
WHOLE = [
    ("thought", "", "I look."),
    ("tool_call", "look_up", ""),
    ("observation", "look_up", "12 EUR"),
    ("thought", "", "I pay."),
    ("tool_call", "pay", ""),
    ("error_recovery", "pay", "shut"),
    ("thought", "", DONE),
]


def history():
    """Each turn of the model with the calls before it: lists of (call, result, failed)."""
    before = []
    for words, calls, tokens in SAID:
        yield before, words, calls, tokens
        before = [(name, given, id, RESULTS[id], id == "c2") for name, given, id in calls]


def openai_call(name, given, id):
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(given)},
    }


def chat():
    """A line of chat JSONL."""
    messages = [{"role": "user", "content": ASKED}]
    for before, words, calls, (given, got) in history():
        messages += (
            {"role": "tool", "tool_call_id": id, "content": result, "is_error": failed}
            for *_, id, result, failed in before
        )
        usage = {"prompt_tokens": given, "completion_tokens": got}
        made = {"tool_calls": [openai_call(*call) for call in calls]} if calls else {}
        messages.append(
            {"role": "assistant", "content": words, "model": MODEL, "usage": usage, **made}
        )
    return lines({"messages": messages})


def claude_code():
    """A session of Claude Code."""
    rows = [("user", [{"type": "text", "text": ASKED}], {})]
    for before, words, calls, (given, got) in history():
        results = [
            {"type": "tool_result", "tool_use_id": id, "content": result, "is_error": failed}
            for *_, id, result, failed in before
        ]
        rows += [("user", results, {})] if results else []
        content = [{"type": "text", "text": words}]
        content += ({"type": "tool_use", "id": c[2], "name": c[0], "input": c[1]} for c in calls)
        usage = {"input_tokens": given, "output_tokens": got}
        rows.append(("assistant", content, {"id": words, "model": MODEL, "usage": usage}))
    return lines(
        *(
            {
                "type": kind,
                "uuid": f"u{at}",
                "parentUuid": f"u{at - 1}" if at else None,
                "sessionId": "s1",
                "timestamp": START.format(at),
                "message": {"role": kind, "content": content, **more},
            }
            for at, (kind, content, more) in enumerate(rows)
        )
    )


def spans():
    """Each span: its kind, its content and its number, the agent's first."""
    yield "agent", None
    for before, words, calls, tokens in history():
        yield from (("tool", one) for one in before)
        yield "model", (words, calls, tokens)


def otlp(of_agent, of_model, of_tool):
    """A line of the collector; the functions return the attributes of a span."""
    of = {"agent": lambda _: of_agent, "model": of_model, "tool": of_tool}
    rows = [
        {
            "traceId": "t1",
            "spanId": f"s{at}",
            "parentSpanId": "s0" if at else "",
            "name": content[0] if kind == "tool" else kind,
            "startTimeUnixNano": str(1_793_524_440_000_000_000 + at * 10**9),
            "endTimeUnixNano": str(1_793_524_440_500_000_000 + at * 10**9),
            "attributes": [
                {"key": key, "value": {"intValue" if type(value) is int else "stringValue": value}}
                for key, value in of[kind](content).items()
            ],
            "status": {"code": 2, "message": "shut"} if kind == "tool" and content[4] else {},
        }
        for at, (kind, content) in enumerate(spans())
    ]
    return lines({"resourceSpans": [{"scopeSpans": [{"scope": {"name": "x"}, "spans": rows}]}]})


def parts(role, *contents):
    return json.dumps([{"role": role, "parts": [*contents]}])


def genai_model(content):
    words, calls, (given, got) = content
    made = ({"type": "tool_call", "id": i, "name": n, "arguments": a} for n, a, i in calls)
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": MODEL,
        "gen_ai.usage.input_tokens": given,
        "gen_ai.usage.output_tokens": got,
        "gen_ai.input.messages": parts("user", {"type": "text", "content": ASKED}),
        "gen_ai.output.messages": parts("assistant", {"type": "text", "content": words}, *made),
    }


def genai():
    """Spans of the GenAI conventions."""
    return otlp(
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"},
        genai_model,
        lambda one: {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": one[0],
            "gen_ai.tool.call.id": one[2],
            "gen_ai.tool.call.arguments": json.dumps(one[1]),
            "gen_ai.tool.call.result": one[3],
        },
    )


def flat_calls(start, calls, *keys):
    """Calls as flat attributes, with these keys for the id, the name and the arguments."""
    return {
        f"{start}.tool_calls.{at}.{key}": value
        for at, (name, given, id) in enumerate(calls)
        for key, value in zip(keys, (id, name, json.dumps(given)), strict=True)
    }


def openllmetry():
    """Spans of OpenLLMetry, before it had the names of the GenAI conventions."""

    def model(content):
        words, calls, (given, got) = content
        start = "gen_ai.completion.0"
        return {
            "llm.request.type": "chat",
            "gen_ai.response.model": MODEL,
            "gen_ai.usage.prompt_tokens": given,
            "gen_ai.usage.completion_tokens": got,
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": ASKED,
            f"{start}.role": "assistant",
            f"{start}.content": words,
            **flat_calls(start, calls, "id", "name", "arguments"),
        }

    return otlp(
        {"traceloop.span.kind": "agent", "traceloop.entity.name": "desk"},
        model,
        lambda one: {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": one[0],
            "traceloop.entity.input": json.dumps(one[1]),
            "traceloop.entity.output": one[3],
        },
    )


def openinference():
    """Spans of OpenInference."""

    def model(content):
        words, calls, (given, got) = content
        start = "llm.output_messages.0.message"
        keys = "tool_call.id", "tool_call.function.name", "tool_call.function.arguments"
        return {
            "openinference.span.kind": "LLM",
            "llm.model_name": MODEL,
            "llm.token_count.prompt": given,
            "llm.token_count.completion": got,
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": ASKED,
            f"{start}.role": "assistant",
            f"{start}.content": words,
            **flat_calls(start, calls, *keys),
        }

    return otlp(
        {"openinference.span.kind": "AGENT", "agent.name": "desk"},
        model,
        lambda one: {
            "openinference.span.kind": "TOOL",
            "tool.name": one[0],
            "input.value": json.dumps(one[1]),
            "output.value": one[3],
        },
    )


def ai_message(words, calls, tokens):
    return {
        "type": "ai",
        "content": words,
        "tool_calls": [{"name": n, "args": a, "id": i, "type": "tool_call"} for n, a, i in calls],
        "usage_metadata": dict(zip(("input_tokens", "output_tokens"), tokens, strict=True)),
        "response_metadata": {"model_name": MODEL},
    }


def tool_message(one):
    return {"type": "tool", "content": one[3], "tool_call_id": one[2]}


def langsmith():
    """Runs of LangSmith."""
    kinds = {"agent": "chain", "model": "llm", "tool": "tool"}
    asked, rows = {"type": "human", "content": ASKED}, []
    for at, (kind, content) in enumerate(spans()):
        inputs, outputs = {"messages": [asked]}, {"messages": [{"type": "ai", "content": DONE}]}
        if kind == "model":
            message = {"lc": 1, "id": ["AIMessage"], "kwargs": ai_message(*content)}
            outputs = {"generations": [[{"message": message, "type": "ChatGeneration"}]]}
        elif kind == "tool":
            inputs, outputs = content[1], {"output": tool_message(content)}
        failed = kind == "tool" and content[4]
        rows.append(
            {
                "id": f"r{at}",
                "trace_id": "r0",
                "parent_run_id": "r0" if at else None,
                "dotted_order": f"2026{at:03}",
                "run_type": kinds[kind],
                "name": content[0] if kind == "tool" else "desk",
                "start_time": START.format(at),
                "end_time": START.format(at),
                "inputs": inputs,
                "outputs": None if failed else outputs,
                "error": "shut" if failed else None,
                "extra": {"metadata": {"lc_agent_name": "desk"}},
            }
        )
    return lines(*rows)


def langfuse():
    """Observations of Langfuse."""
    kinds, rows = {"agent": "AGENT", "model": "GENERATION", "tool": "TOOL"}, []
    for at, (kind, content) in enumerate(spans()):
        given, got = [{"role": "user", "content": ASKED}], {"role": "assistant", "content": DONE}
        usage = None
        if kind == "model":
            words, calls, tokens = content
            made = {"tool_calls": [openai_call(*call) for call in calls]} if calls else {}
            got = {"role": "assistant", "content": words, **made}
            usage = dict(zip(("input", "output"), tokens, strict=True))
        elif kind == "tool":
            given, got = content[1], content[3]
        failed = kind == "tool" and content[4]
        rows.append(
            {
                "id": f"o{at}",
                "trace_id": "t1",
                "parent_observation_id": "o0" if at else None,
                "type": kinds[kind],
                "name": content[0] if kind == "tool" else "desk",
                "start_time": START.format(at),
                "end_time": START.format(at),
                "input": json.dumps(given),
                "output": None if failed else json.dumps(got),
                "level": "ERROR" if failed else "DEFAULT",
                "status_message": "shut" if failed else None,
                "model": MODEL if kind == "model" else None,
                "usage_details": usage,
            }
        )
    return lines(*rows)


class Model(GenericFakeChatModel):
    """Says these messages."""

    def bind_tools(self, *_, **__):
        return self


@pytest.fixture
def live():
    """The run of an agent of LangChain."""

    @tool
    def look_up(order: str) -> str:
        """Look an order up."""
        return RESULTS["c1"] if order else ""

    @tool
    def pay(euros: int) -> str:
        """Pay."""
        raise ToolException(RESULTS["c2"] if euros else "")

    pay.handle_tool_error = True
    said = [
        AIMessage.model_validate(
            {
                **ai_message(*one),
                "usage_metadata": {
                    **ai_message(*one)["usage_metadata"],
                    "total_tokens": sum(one[2]),
                },
            }
        )
        for one in SAID
    ]
    collector = RunCollector()
    desk = create_agent(Model(messages=iter(said)), [look_up, pay], name="desk")
    desk.invoke({"messages": [("user", ASKED)]}, {"callbacks": [KPCallbackHandler(collector)]})
    [run] = collector.runs
    return run


FILES = {
    "messages": chat,
    "claude-code": claude_code,
    "otlp": genai,
    "otlp by openllmetry": openllmetry,
    "otlp by openinference": openinference,
    "langsmith": langsmith,
    "langfuse": langfuse,
}


def told(run):
    """The facts that each tool has to tell alike."""
    outcome, metadata = run.trace.outcome, run.trace.metadata
    tokens = [(one.input_tokens, one.output_tokens) for one in run.facts]
    inputs = [step.input for step in run.trace.steps if step.type == "tool_call"]
    return {
        "steps": [(kind, tool, said.rpartition(": ")[2]) for kind, tool, said in step_tuples(run)],
        "objective": run.trace.task.objective,
        "result": outcome.result_summary,
        "success": (metadata.success, run.success_source, run.complete, run.error_type),
        "confidence": (outcome.confidence, run.confidence_source),
        "model": (run.model, {one.model for one in run.facts}),
        "inputs": inputs,
        "tokens": (run.input_tokens, run.output_tokens, [one for one in tokens if any(one)]),
    }


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_conversation_is_the_run_that_it_was_live(read, live, name):
    (run,), _ = read(name.partition(" ")[0], FILES[name]())

    found, wanted = told(run), told(live)
    assert wanted["steps"] == WHOLE
    assert found.pop("steps") == [("observation", "", ASKED), *wanted.pop("steps")]
    assert found == wanted
