"""Spans that were kept in files become the runs that they become live."""

import json

import pytest
from import_samples import (
    langfuse_observations,
    langsmith_runs,
    lines,
    otlp_spans,
    phoenix_spans,
    step_tuples,
)

REFUND = [
    ("observation", "", "Refund order A1."),
    ("thought", "", "Look first."),
    ("tool_call", "refund", ""),
    ("error_recovery", "refund", "ValueError: shut"),
    ("thought", "", "The till is closed."),
]


@pytest.mark.parametrize("snake", [False, True], ids=["camel case", "snake case"])
def test_a_trace_is_gathered_from_all_lines_of_the_collector(read, snake):
    first, second = otlp_spans(snake=snake)

    (run, other), context = read("otlp", lines(first, *otlp_spans("77aa"), second))

    assert step_tuples(run) == step_tuples(other) == REFUND
    assert (run.thread_id, run.agent_name, run.model) == ("a-talk", "desk", "a-model")
    assert (run.trace.metadata.created_at, run.duration_ms) == ("2026-11-01T09:00:00.000Z", 6000)
    assert (run.input_tokens, run.complete, context.skipped) == (10, True, {})


@pytest.mark.parametrize("whole", [False, True], ids=["one a line", "an answer"])
def test_spans_of_phoenix_are_openinference(read, whole):
    spans = phoenix_spans()

    (run,), _ = read("otlp", json.dumps({"data": spans}) if whole else lines(*spans))

    assert step_tuples(run) == [
        ("observation", "", "Refund."),
        ("thought", "", "I look."),
        ("tool_call", "look_up", ""),
        ("observation", "look_up", "12 EUR"),
        ("thought", "", "Done."),
    ]
    assert (run.agent_name, run.thread_id) == ("desk", "a-talk")


def test_a_span_of_the_sdk_s_own_json_has_failed_by_its_status(read):
    def span(id, parent, operation, second, **attributes):
        at = f"2026-11-01T09:00:0{second}.000000Z"
        named = {"gen_ai.operation.name": operation, **attributes}
        return {
            "name": operation,
            "context": {"trace_id": "0xaa", "span_id": id},
            "parent_id": parent,
            "start_time": at,
            "end_time": at,
            "status": {"status_code": "UNSET"},
            "attributes": named,
        }

    failed = {"status": {"status_code": "ERROR", "description": "ValueError: shut"}}
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Refund order A1."}]}]
    spans = [
        span("0x2", "0x1", "chat", 1, **{"gen_ai.input.messages": json.dumps(asked)}),
        span("0x3", "0x1", "execute_tool", 2, **{"gen_ai.tool.name": "refund"}) | failed,
        span("0x1", None, "invoke_agent", 0),
    ]

    (run,), _ = read("otlp", "\n".join(json.dumps(span, indent=4) for span in spans))

    assert step_tuples(run)[-1] == ("error_recovery", "refund", "ValueError: shut")


def test_openinference_that_langfuse_kept_is_read_as_such(read):
    rows = [
        {
            "id": span["context"]["span_id"],
            "trace_id": "p1",
            "parent_observation_id": span["parent_id"],
            "type": "SPAN",
            "name": span["name"],
            "start_time": span["start_time"],
            "end_time": span["end_time"],
            "input": span["attributes"].pop("input.value", None),
            "output": span["attributes"].pop("output.value", None),
            "metadata": {
                "attributes": {"openinference.span.kind": span["span_kind"], **span["attributes"]}
            },
        }
        for span in phoenix_spans()[:3]
    ]

    (run,), _ = read("langfuse", lines(*rows))

    assert step_tuples(run)[1:] == [
        ("thought", "", "I look."),
        ("tool_call", "look_up", ""),
        ("observation", "look_up", "12 EUR"),
    ]


def test_what_is_no_agents_and_what_has_no_content_is_counted(read):
    request = otlp_spans("0001")
    for span in request[1]["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["attributes"] = []
    silent = otlp_spans("0002")
    for line in silent:
        for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            keys = {"gen_ai.operation.name", "gen_ai.tool.name"}
            span["attributes"] = [one for one in span["attributes"] if one["key"] in keys]
            span["status"] = {}

    runs, context = read("otlp", lines(*request, *silent, {"a": 1}))

    assert runs == []
    assert context.skipped == {"no_agent": 1, "no_content": 1, "unknown_type": 1}


def test_a_trace_without_a_model_and_a_tool_is_no_run(read):
    page = {"id": "f1", "input": "GET /", "observations": [{"id": "s", "type": "SPAN"}]}

    runs, context = read("langfuse", json.dumps(page))

    assert (runs, context.skipped) == ([], {"no_agent": 1})


def test_a_tool_that_never_ended_has_no_result(read):
    trace = otlp_spans()
    first, last = (batch["resourceSpans"][0]["scopeSpans"][0] for batch in trace)
    last["spans"] = last["spans"][1:]
    for span in (first["spans"][1], *last["spans"]):
        del span["endTimeUnixNano"]

    (run,), _ = read("otlp", lines(*trace))

    assert (step_tuples(run), run.complete) == (REFUND[:3], False)


def test_results_of_tools_without_spans_are_in_what_the_model_was_given(read):
    """Langfuse's and LangSmith's wrappers of a client tell models alone."""
    asked = [{"role": "user", "content": "Refund order A1."}]
    call = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "paid"}
    rows = [
        {
            "id": f"g{at}",
            "trace_id": "f1",
            "parent_observation_id": None,
            "type": "GENERATION",
            "name": "openai",
            "start_time": f"2026-11-01 09:00:0{at}",
            "end_time": f"2026-11-01 09:00:0{at + 1}",
            "input": given,
            "output": output,
        }
        for at, given, output in [
            (0, asked, called),
            (2, [*asked, called, result], {"role": "assistant", "content": "Done."}),
        ]
    ]

    (run,), _ = read("langfuse", lines(*rows))

    assert step_tuples(run) == [
        ("observation", "", "Refund order A1."),
        ("tool_call", "refund", ""),
        ("observation", "refund", "paid"),
        ("thought", "", "Done."),
    ]
    assert run.complete


def test_spans_of_langsmith_become_runs_in_the_order_of_their_events(read):
    spans = [*langsmith_runs("t1"), *langsmith_runs("t2", 1)]

    (first, second), _ = read("langsmith", lines(*reversed(spans)))

    assert second.trace.metadata.created_at < first.trace.metadata.created_at
    assert step_tuples(first) == [
        ("observation", "", "Refund order A1."),
        ("thought", "", "I look."),
        ("tool_call", "look_up", ""),
        ("observation", "look_up", "12 EUR"),
        ("tool_call", "pay", ""),
        ("error_recovery", "pay", "E: no"),
    ]
    assert (first.thread_id, first.input_tokens) == ("a-thread", 4)
    assert first.trace.outcome.result_summary == "Done."
    assert (first.trace.metadata.success, first.success_source) == (False, "verdict")


@pytest.mark.parametrize("key", ["type", "role"])
def test_a_tool_may_answer_by_an_update_of_the_graph(read, key):
    root, model, look, _ = langsmith_runs()
    update = {"messages": [{key: "tool", "content": "12 EUR", "tool_call_id": "c1"}]}

    (run,), _ = read(
        "langsmith", lines(root, model, look | {"outputs": {"output": {"update": update}}})
    )

    assert step_tuples(run)[-1] == ("observation", "look_up", "12 EUR")


def test_a_graph_that_waits_for_a_person_is_incomplete(read):
    root, model = langsmith_runs()[:2]
    waits = {"type": "ai", "content": "Shall I?", "tool_calls": [{"name": "pay", "id": "c1"}]}

    (run,), _ = read("langsmith", lines(root | {"outputs": {"messages": [waits]}}, model))

    assert not run.complete


def test_langsmiths_bulk_export_has_json_in_texts(read):
    columns = ("inputs", "outputs", "extra", "feedback_stats")
    texts = [
        {**run, **{name: json.dumps(run[name]) for name in columns if name in run}}
        for run in langsmith_runs()
    ]

    (run,), _ = read("langsmith", lines(*langsmith_runs()))
    (other,), _ = read("langsmith", lines(*texts))

    assert step_tuples(other) == step_tuples(run)
    assert (other.thread_id, other.success_source) == ("a-thread", "verdict")


def test_runs_of_langsmith_may_be_inside_of_their_parents(read):
    root, *others = langsmith_runs()

    (run,), _ = read("langsmith", lines(root, *others))
    (nested,), _ = read("langsmith", json.dumps(root | {"child_runs": others}))

    assert nested == run


def test_observations_of_langfuse_become_a_run(read):
    (run,), _ = read("langfuse", lines(*langfuse_observations()))

    assert step_tuples(run) == [
        ("observation", "", "Refund order A1."),
        ("thought", "", "I look."),
        ("tool_call", "look_up", ""),
        ("observation", "look_up", "12 EUR"),
    ]
    assert (run.thread_id, run.model, run.input_tokens) == ("a-session", "m", 5)
    assert run.trace.outcome.result_summary == "Done."


def test_a_trace_of_langfuses_page_is_read_with_its_scores(read):
    observations = [{**one, "trace_id": None} for one in langfuse_observations()[:2]]
    document = {
        "id": "f1",
        "timestamp": "2026-11-01T09:00:00Z",
        "input": "Refund order A1.",
        "observations": [{**one, "traceId": "f1"} for one in observations],
        "scores": [{"name": "good", "value": 0.2}],
    }

    (run,), _ = read("langfuse", json.dumps(document, indent=2))

    assert len(run.trace.steps) == 4
    assert (run.trace.metadata.success, run.success_source) == (False, "verdict")


def test_a_run_that_raised_failed_by_its_own_word(read):
    root, *others = langsmith_runs()
    root |= {"error": "ValueError('shut')", "feedback_stats": None}

    (run,), _ = read("langsmith", lines(root, *others))

    assert (run.error_type, run.success_source) == ("ValueError", "said")


def test_the_thread_of_langchain_is_in_langfuses_metadata(read):
    rows = [
        {**one, "session_id": None, "metadata": {**one.get("metadata", {}), "thread_id": '"talk"'}}
        for one in langfuse_observations()
    ]

    (run,), _ = read("langfuse", lines(*rows))

    assert run.thread_id == "talk"
