"""Spans as frameworks make them, and the steps that become of them."""

import json
from contextlib import contextmanager

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, use_span

GENAI, OPENINFERENCE = "a.framework", "openinference.instrumentation.a_framework"


def tracer_for(processor, scope=GENAI, **options):
    """A tracer whose spans go to this processor."""
    provider = TracerProvider(shutdown_on_exit=False, **options)
    provider.add_span_processor(processor)
    return provider.get_tracer(scope)


def messages_json(*parts, role="assistant"):
    return json.dumps([{"role": role, "parts": list(parts)}])


def text(words):
    return {"type": "text", "content": words}


def call(name, call_id=None, **arguments):
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def agent(tracer, name="cook", **more):
    given = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return tracer.start_as_current_span(f"invoke_agent {name}", attributes=given | more)


@contextmanager
def left_open(tracer, **more):
    """An agent whose span does not end with the block."""
    given = {"gen_ai.operation.name": "invoke_agent"}
    own = tracer.start_span("run", attributes=given | more)
    with use_span(own, end_on_exit=False):
        yield own


def chat(tracer, *parts, asked=None, **more):
    """A model's span, with what it said, if that is known at its start."""
    given = {"gen_ai.operation.name": "chat"}
    given |= {"gen_ai.output.messages": messages_json(*parts)} if parts else {}
    given |= (
        {} if asked is None else {"gen_ai.input.messages": messages_json(text(asked), role="user")}
    )
    return tracer.start_as_current_span("chat", attributes=given | more)


def model(tracer, *parts, **more):
    with chat(tracer, *parts, **more) as span:
        return span


def tool(tracer, name, call_id=None, result="done", **more):
    given = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    given |= {"gen_ai.tool.call.result": result} if result is not None else {}
    given |= {"gen_ai.tool.call.id": call_id} if call_id else {}
    return tracer.start_as_current_span(f"execute_tool {name}", attributes=given | more)


def step_lines(run):
    return [
        " ".join(
            str(word)
            for word in (one.type, one.tool and one.tool.name, one.content, one.output_summary)
            if word is not None
        )
        for one in run.trace.steps
    ]


def fail(span, error, description=None):
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, description))
