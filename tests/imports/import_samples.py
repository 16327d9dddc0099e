"""Small files in the formats of other tools, written for these tests."""

import json

START = "2026-11-01T09:00:{:02d}.000Z"


def lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


def claude(kind, content, at, *, id, parent=None, session="s1", **more):
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind,
        "uuid": id,
        "parentUuid": parent,
        "sessionId": session,
        "timestamp": START.format(at),
        "message": message,
        **more,
    }


def claude_answer(words, at, *, id, parent, **more):
    content = [{"type": "text", "text": words}]
    return claude("assistant", content, at, id=id, parent=parent, **more)


def claude_session(session="s1"):
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 3}
    message = {"id": "m1", "model": "a-model", "usage": usage}
    call = {"type": "tool_use", "id": "t1", "name": "mcp__shop__refund", "input": {"order": "A1"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "closed", "is_error": True}
    said = {"id": "u1", "session": session}
    thinking = [{"type": "thinking", "thinking": "Look first."}]
    return [
        {"type": "summary", "summary": "Refunds", "leafUuid": "a3"},
        claude("user", "<command-name>/clear</command-name>", 0, id="u0", session=session),
        claude("user", "Refund order A1.", 1, **said),
        claude("assistant", thinking, 2, id="a1", parent="u1", message=message, session=session),
        claude("assistant", [call], 3, id="a2", parent="a1", message=message, session=session),
        claude("user", [result], 5, id="u2", parent="a2", session=session),
        claude_answer("The till is closed.", 6, id="a3", parent="u2", session=session),
        claude("user", "Then tomorrow.", 10, id="u3", parent="a3", session=session),
        claude_answer("I will.", 12, id="a4", parent="u3", session=session),
        {"type": "from-a-later-version", "x": {"y": []}},
    ]


def codex_session():
    def line(kind, payload, at):
        return {"type": kind, "payload": payload, "timestamp": START.format(at)}

    def item(payload, at):
        return line("response_item", payload, at)

    def user(words, at):
        content = [{"type": "input_text", "text": words}]
        return item({"type": "message", "role": "user", "content": content}, at)

    def agent(words, at):
        content = [{"type": "output_text", "text": words}]
        return item({"type": "message", "role": "assistant", "content": content}, at)

    usage = {"last_token_usage": {"input_tokens": 7, "output_tokens": 2}, "total_token_usage": 9}
    ended = "Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nno"
    end = {"type": "exec_command_end", "call_id": "c1", "aggregated_output": "no", "exit_code": 1}
    call = {"type": "function_call", "name": "shell", "arguments": '{"cmd":"ls"}', "call_id": "c1"}
    return [
        line("session_meta", {"id": "s2", "cli_version": "0.149.0"}, 0),
        line("session_meta", {"id": "the session that it forks"}, 0),
        user("<environment_context>x</environment_context>", 0),
        line("turn_context", {"model": "a-model"}, 1),
        user("List the files.", 1),
        item({"type": "reasoning", "summary": [{"text": "Look."}], "encrypted_content": "x"}, 2),
        item(call, 3),
        line("event_msg", end, 4),
        item({"type": "function_call_output", "call_id": "c1", "output": "Exit code: 1"}, 4),
        line("event_msg", {"type": "token_count", "info": usage}, 5),
        line("event_msg", {"type": "token_count", "info": usage}, 5),
        agent("There are none.", 6),
        line("event_msg", {"type": "task_complete"}, 6),
        user("Make one.", 20),
        agent("I begin", 21),
        item({**call, "call_id": "c2"}, 21),
        item({"type": "function_call_output", "call_id": "c2", "output": ended}, 21),
        line("event_msg", {"type": "turn_aborted"}, 22),
    ]


def call(id, name="look_up", arguments='{"order": "A1"}'):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(result="12 EUR", **more):
    return [
        {"role": "system", "content": "You are a support desk."},
        {"role": "user", "content": "Refund order A1."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("c1"), call("c1", "ask")]},
        {"role": "tool", "tool_call_id": "c1", "content": result, **more},
        {"role": "tool", "tool_call_id": "c1", "content": "yes"},
        {"role": "assistant", "content": "Done."},
    ]


TRAJECTORY = {
    "environment": "swe_main",
    "trajectory": [
        {"thought": "Look.", "action": "ls -F\n", "observation": "a.py\n", "execution_time": 0.5},
        {"thought": "Fix it.", "action": "edit 1:2", "observation": "done"},
    ],
    "history": [
        {"role": "system", "content": "You are a programmer."},
        {"role": "user", "content": "A demonstration", "is_demo": True},
        {"role": "user", "content": [{"type": "text", "text": "Mend the parser."}]},
    ],
    "info": {"exit_status": "submitted", "submission": "diff --git a b"},
}

MINI = {
    "trajectory_format": "mini-swe-agent-1.1",
    "info": {"exit_status": "LimitsExceeded", "submission": ""},
    "messages": [
        {"role": "system", "content": "You are a programmer."},
        {"role": "user", "content": "Mend the parser."},
        {"role": "assistant", "content": "Look.\n\n```bash\nls\n```"},
        {"role": "user", "content": "<returncode>1</returncode><output>no</output>"},
        {"role": "exit", "content": "LimitsExceeded"},
    ],
}

MINI_RESPONSES = {
    "trajectory_format": "mini-swe-agent-1.1",
    "info": {"exit_status": "Submitted", "submission": "diff --git a b"},
    "messages": [
        {"role": "user", "content": "Mend the parser."},
        {
            "object": "response",
            "model": "a-model",
            "usage": {"input_tokens": 7, "output_tokens": 2},
            "output": [
                {"type": "reasoning", "summary": [{"text": "Look."}]},
                {
                    "type": "function_call",
                    "call_id": "c1",
                    "name": "bash",
                    "arguments": '{"command": "ls"}',
                },
            ],
        },
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": "no",
            "extra": {"returncode": 1},
        },
    ],
}

ATIF = {
    "schema_version": "ATIF-v1.7",
    "session_id": "h1",
    "agent": {"name": "terminus", "version": "2", "model_name": "a-model"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "You are at a terminal."},
        {"step_id": 2, "source": "user", "message": "Count.", "timestamp": START.format(0)},
        {
            "step_id": 3,
            "source": "agent",
            "timestamp": START.format(2),
            "message": "I count.",
            "reasoning_content": "With wc.",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "sh", "arguments": {"cmd": "wc"}}
            ],
            "observation": {"results": [{"source_call_id": "c1", "content": "3"}]},
            "metrics": {"prompt_tokens": 8, "completion_tokens": 2},
        },
    ],
    "extra": {"reward": 1.0},
}


def langsmith_runs(trace="t1", second=0):
    def run(id, kind, parent, start, end, **more):
        return {
            "id": f"{trace}-{id}",
            "trace_id": trace,
            "parent_run_id": parent and f"{trace}-{parent}",
            "run_type": kind,
            "name": more.pop("name", kind),
            "start_time": f"2026-11-01 09:{second:02d}:{start:02d}.000+00:00",
            "end_time": f"2026-11-01 09:{second:02d}:{end:02d}.000+00:00",
            "dotted_order": f"20261101T09{second:02d}{start:02d}Z{id}",
            "extra": {"metadata": {"thread_id": "a-thread"}},
            **more,
        }

    answer = {"lc": 1, "id": ["x", "AIMessage"], "kwargs": {"content": "I look.", "tool_calls": []}}
    answer["kwargs"]["usage_metadata"] = {"input_tokens": 4, "output_tokens": 1}
    output = {"output": {"type": "tool", "content": "12 EUR", "status": "success"}}
    return [
        run(
            "root",
            "chain",
            None,
            0,
            9,
            inputs={"messages": [["user", "Refund order A1."]]},
            outputs={"messages": [{"type": "ai", "content": "Done."}]},
            feedback_stats={"correctness": {"n": 1, "avg": 0.0}},
        ),
        run("llm", "llm", "root", 1, 2, outputs={"generations": [[{"message": answer}]]}),
        run("look", "tool", "root", 3, 5, name="look_up", inputs={"order": "A1"}, outputs=output),
        run("pay", "tool", "root", 4, 6, name="pay", inputs={"input": "{}"}, error="E('no')"),
    ]


def langfuse_observations():
    def one(id, kind, parent, start, end, **more):
        return {
            "id": id,
            "trace_id": "f1",
            "parent_observation_id": parent,
            "type": kind,
            "name": more.pop("name", id),
            "start_time": f"2026-11-01 09:00:{start:02d}.000000",
            "end_time": f"2026-11-01 09:00:{end:02d}.000000",
            "session_id": "a-session",
            **more,
        }

    asked = json.dumps({"messages": [{"role": "user", "content": "Refund order A1."}]})
    answered = json.dumps({"role": "assistant", "content": "I look."})
    usage = {"input": 5, "output": 2, "total": 7}
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up"}
    return [
        one(
            "tool",
            "TOOL",
            "root",
            3,
            4,
            input='{"order": "A1"}',
            output="12 EUR",
            metadata={"attributes": named},
        ),
        one("llm", "GENERATION", "root", 1, 2, output=answered, model="m", usage_details=usage),
        one("root", "SPAN", None, 0, 9, input=asked, output=json.dumps("Done.")),
        one("note", "EVENT", "root", 5, 5),
    ]


def otlp_spans(trace="5b8e", snake=False):
    """A trace as the collector writes it: children first, one batch a line."""

    def key(camel):
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in camel) if snake else camel

    def span(id, parent, operation, start, end, failed=False, **attributes):
        told = {"gen_ai.operation.name": operation, **attributes}
        return {
            key("traceId"): trace,
            key("spanId"): id,
            key("parentSpanId"): parent,
            "name": operation,
            key("startTimeUnixNano"): f"{1_793_523_600 + start}000000000",
            key("endTimeUnixNano"): f"{1_793_523_600 + end}000000000",
            "attributes": [
                {"key": name, "value": {key("intValue"): str(value)}}
                if isinstance(value, int)
                else {"key": name, "value": {key("stringValue"): value}}
                for name, value in told.items()
            ],
            "status": {"code": 2 if failed else 1, "message": "ValueError: shut" if failed else ""},
        }

    def batch(*spans):
        scopes = [{"scope": {"name": "a.framework"}, "spans": spans}]
        return {key("resourceSpans"): [{"resource": {}, key("scopeSpans"): scopes}]}

    asked = [{"role": "user", "parts": [{"type": "text", "content": "Refund order A1."}]}]
    call = {"type": "tool_call", "id": "c1", "name": "refund", "arguments": {"order": "A1"}}
    thought = {"type": "reasoning", "content": "Look first."}
    first = {
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [thought, call]}]),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.request.model": "a-model",
    }
    tool = {"gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"}
    parts = [{"type": "text", "content": "The till is closed."}]
    last = {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}])}
    agent = {"gen_ai.agent.name": "desk", "gen_ai.conversation.id": "a-talk"}
    return [
        batch(
            span("b", "a", "chat", 1, 2, **first),
            span("c", "a", "execute_tool", 2, 4, failed=True, **tool),
        ),
        batch(span("d", "a", "chat", 4, 5, **last), span("a", "", "invoke_agent", 0, 6, **agent)),
    ]


def phoenix_spans():
    def one(id, parent, kind, start, end, **attributes):
        return {
            "name": kind,
            "context": {"trace_id": "p1", "span_id": id},
            "span_kind": kind,
            "parent_id": parent,
            "start_time": START.format(start),
            "end_time": START.format(end),
            "status_code": "OK",
            "status_message": "",
            "attributes": attributes,
            "events": [],
        }

    def message(role, content):
        return {"message": {"role": role, "content": content}}

    def flat(way, role, content):
        start = f"llm.{way}_messages.0.message"
        return {f"{start}.role": role, f"{start}.content": content}

    nested = {"llm": {"output_messages": [message("assistant", "Done.")]}}
    return [
        one("root", None, "AGENT", 0, 9, **{"agent.name": "desk", "session.id": "a-talk"}),
        one("m1", "root", "LLM", 1, 2, **flat("input", "user", "Refund."),
            **flat("output", "assistant", "I look.")),
        one("t1", "root", "TOOL", 2, 3, **{"tool.name": "look_up", "input.value": '{"order": "A1"}',
            "output.value": "12 EUR"}),
        one("m2", "root", "LLM", 4, 5, **nested),
    ]  # fmt: skip


SAMPLES = {
    "otlp": lines(*otlp_spans()),
    "claude-code": lines(*claude_session()),
    "codex": lines(*codex_session()),
    "messages": lines({"messages": conversation()}, conversation("other")),
    "swe-agent": json.dumps(TRAJECTORY, indent=2),
    "atif": json.dumps(ATIF),
    "langsmith": lines(*langsmith_runs("t1"), *langsmith_runs("t2", 1)),
    "langfuse": lines(*langfuse_observations()),
}
"""A file of each format."""


def step_tuples(run):
    """The steps of a run, each as its type, tool and text."""
    return [
        (step.type, step.tool.name if step.tool else "", step.content or step.output_summary or "")
        for step in run.trace.steps
    ]
