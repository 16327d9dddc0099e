"""Rules 10 to 20 of reading spans, each alone, through a real tracer provider."""

import contextvars
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from sample_spans import (
    GENAI,
    OPENINFERENCE,
    agent,
    call,
    chat,
    fail,
    left_open,
    messages_json,
    model,
    step_lines,
    text,
    tool,
    tracer_for,
)

import kp_otel
from kp_middleware import current_trace
from kp_middleware.recording import Recorder, inside
from kp_middleware.traces import Limits


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ({"final_result": "An egg."}, "An egg."),
        (
            {
                "gen_ai.output.messages": messages_json(text("I ask."))[:-1]
                + ","
                + messages_json(text("B."))[1:]
            },
            "B.",
        ),
        ({}, "Yes."),
    ],
)
def test_rule_10_the_result_is_what_the_agent_says_last(tracer, collector, more, result):
    with agent(tracer, **more):
        model(tracer, text("Yes."))

    assert collector.runs[0].trace.outcome.result_summary == result


def test_rule_11_a_model_in_a_model_and_a_tool_in_the_same_tool_are_parts(tracer, collector):
    with agent(tracer):
        with chat(tracer, text("Yes.")):
            model(tracer, text("Yes."))
        with tool(tracer, "boil"), tool(tracer, "boil"):
            pass

    assert step_lines(collector.runs[0]) == [
        "thought Yes.",
        "tool_call boil",
        "observation boil done",
    ]


def test_a_tool_that_the_models_provider_ran_is_answered_by_the_model(tracer, collector):
    result = {"type": "tool_call_response", "id": "w1", "result": "a page"}
    with agent(tracer):
        model(tracer, call("web_search", "w1", q="egg"), result, text("Yes."), asked="An egg?")

    [run] = collector.runs
    assert step_lines(run)[2:] == ["observation web_search a page", "thought Yes."]
    assert run.complete


@pytest.mark.parametrize(
    ("operation", "more", "asked", "beside"),
    [
        ("invoke_workflow", {"gen_ai.workflow.name": "desk"}, "A draft?", ["cook", "critic"]),
        (
            "invoke_swarm",
            {"gen_ai.input.messages": messages_json(text("Eggs!"), role="user")},
            "Eggs!",
            [None, "critic"],
        ),
    ],
)
def test_agents_one_after_another_are_one_run(tracer, collector, operation, more, asked, beside):
    group = {"gen_ai.operation.name": operation, **more}
    with tracer.start_as_current_span(operation, attributes=group):
        for name, request in (("cook", "A draft?"), ("critic", "Is it good?")):
            with agent(tracer, name):
                model(tracer, text("Yes."), asked=request)

    [run] = collector.runs
    assert (run.trace.task.objective, [one.agent for one in run.facts]) == (asked, [None, *beside])


def test_pydantic_ai_tells_the_request_of_a_model_that_failed_at_once_at_the_end(tracer, collector):
    asked = messages_json(text("An egg?"), role="user")
    with agent(tracer, **{"pydantic_ai.all_messages": asked}) as own:
        with chat(tracer) as failed:
            fail(failed, ConnectionError("away"))
        fail(own, ConnectionError("away"))

    [run] = collector.runs
    assert (run.trace.task.objective, run.error_type) == ("An egg?", "ConnectionError")


def test_rule_11_of_two_dialects_the_one_that_began_is_heard(provider, tracer, collector):
    other = provider.get_tracer(OPENINFERENCE)
    twice = {
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Yes.",
    }
    with agent(tracer):
        model(tracer, text("Yes."))
        with other.start_as_current_span("llm", attributes=twice):
            pass
        with tool(tracer, "ask"), other.start_as_current_span("llm", attributes=twice):
            pass

    assert step_lines(collector.runs[0]) == [
        "thought Yes.",
        "tool_call ask",
        "observation ask done",
        "thought Yes.",
    ]


def test_a_chains_question_and_a_retrievers_documents_are_told_once(provider, collector):
    def span(kind, **more):
        given = {"openinference.span.kind": kind} | more
        return provider.get_tracer(OPENINFERENCE).start_as_current_span(kind, attributes=given)

    found = {"retrieval.documents.0.document.content": "Six minutes."}
    with (
        span("CHAIN", **{"input.value": "How long?"}),
        span("RETRIEVER", **found),
        span("RETRIEVER"),
    ):
        pass

    [run] = collector.runs
    assert run.trace.task.objective == "How long?"
    assert step_lines(run)[1:] == ["tool_call RETRIEVER", "observation RETRIEVER Six minutes."]


def test_rule_11_a_copy_completes_a_tool_without_content(provider, tracer, collector):
    copied = {"openinference.span.kind": "TOOL", "output.value": "Yes."}
    with (
        agent(tracer),
        provider.get_tracer(OPENINFERENCE).start_as_current_span("ask.acall", attributes=copied),
        tool(tracer, "ask", result=None),
    ):
        pass

    assert step_lines(collector.runs[0]) == ["tool_call ask", "observation ask Yes."]


@pytest.mark.parametrize(
    ("scope", "heard"), [("langsmith", False), ("openinference.instrumentation.other", True)]
)
def test_rule_12_beside_the_langchain_adapter_langchain_is_not_heard(
    provider, collector, scope, heard
):
    around = Recorder(collector.ended.append, Limits(), framework="langgraph")

    with inside(around), agent(provider.get_tracer(scope)):
        model(provider.get_tracer(scope), text("Yes."))
    around.finish()

    assert [step_lines(run) for run in collector.runs] == ([["thought Yes."]] if heard else [])


ARGUMENTS = "gen_ai.tool.call.arguments"
LANGCHAIN = "opentelemetry.instrumentation.langchain"


def test_rule_12_langchains_span_around_the_adapters_run_is_dropped(provider, collector, buffer):
    tracer = provider.get_tracer(LANGCHAIN)
    around = Recorder(collector.ended.append, Limits(), framework="langgraph")

    with suppress(KeyError), agent(tracer), agent(tracer):
        with inside(around), tool(tracer, "look_up"):
            around.thought("Yes.")
        around.finish()
        raise KeyError

    assert ([step_lines(run) for run in collector.runs], len(buffer)) == ([["thought Yes."]], 0)


def test_without_the_adapter_langchain_is_heard_with_its_envelopes(provider, collector):
    tracer = provider.get_tracer(LANGCHAIN)
    given = {"input_str": "{'a': 1}", "tags": [], "inputs": {"a": 1}, "kwargs": {}}
    message = {"content": "two", "tool_call_id": "c1", "status": "error"}
    output = {"lc": 1, "type": "constructor", "id": ["ToolMessage"], "kwargs": message}
    result = json.dumps({"output": output, "kwargs": {"color": "green"}})

    with agent(tracer):
        model(tracer, call("add", "c1", a=1), asked="An egg?")
        with tool(tracer, "add", result=result, **{ARGUMENTS: json.dumps(given)}):
            pass
        with tool(tracer, "see", result=result, **{ARGUMENTS: json.dumps(given)}):
            pass

    found = f"observation add {result}", "tool_call see", f"observation see {result}"
    [run] = collector.runs
    assert step_lines(run) == ["observation An egg?", "tool_call add", *found]
    assert [step.input for step in run.trace.steps if step.type == "tool_call"] == [{"a": 1}] * 2


@pytest.mark.parametrize(
    ("chain", "named"),
    [
        ({"traceloop.span.kind": "task"}, "traceloop.association.properties.lc_agent_name"),
        ({"openinference.span.kind": "CHAIN"}, None),
    ],
)
def test_an_inner_agent_of_langchain_is_told_by_the_name_in_its_metadata(
    tracer, collector, chain, named
):
    def inner(name):
        given = {named: name} if named else {"metadata": json.dumps({"lc_agent_name": name})}
        return tracer.start_as_current_span("model", attributes=chain | given)

    with agent(tracer, "cook"), inner("cook"):
        model(tracer, call("ask"), asked="An egg?")
        with tool(tracer, "ask"), inner("hen"), inner("hen"):
            model(tracer, text("Yes."))

    [run] = collector.runs
    assert run.agent_name == "cook"
    assert [facts.agent for facts in run.facts] == [None, None, None, "hen"]


def test_rule_12_inside_a_captured_function_a_run_is_a_part_of_its(tracer, collector):
    around = collector.start_recording("python")

    with inside(around):
        around.thought("I ask the cook.")
        with agent(tracer):
            model(tracer, text("Yes."), asked="An egg?")
        around.thought("He says yes.")
    around.finish()

    [run] = collector.runs
    assert step_lines(run) == ["thought I ask the cook.", "thought Yes.", "thought He says yes."]
    assert run.duration_ms < 60_000


def test_rule_13_a_run_without_content_is_counted_and_said_once(
    provider, collector, caplog, without_content
):
    tracer = provider.get_tracer("gcp.vertex.agent")

    for _ in range(2):
        with agent(tracer), tool(tracer, "boil", result=None):
            pass

    assert (collector.runs, without_content()) == ([], 2)
    [said] = [record.getMessage() for record in caplog.records]
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in said


def test_rule_14_of_too_many_attributes_the_messages_are_in_the_value(processor, collector):
    limits = SpanLimits(max_span_attributes=8)
    tracer = tracer_for(processor, OPENINFERENCE, span_limits=limits)
    long = [{"role": "user", "content": f"Egg {number}?"} for number in range(5)]

    said = {
        f"llm.input_messages.{number}.message.{key}": value
        for number, message in enumerate(long)
        for key, value in message.items()
    } | {
        "input.value": json.dumps({"messages": long}),
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Yes.",
    }

    with (
        tracer.start_as_current_span("run", attributes={"openinference.span.kind": "AGENT"}),
        tracer.start_as_current_span("llm", attributes={"openinference.span.kind": "LLM"}) as span,
    ):
        span.set_attributes(said)

    assert step_lines(collector.runs[0])[0] == "observation " + " ".join(
        one["content"] for one in long
    )


def test_rule_14_a_text_that_was_cut_is_kept(processor, collector):
    tracer = tracer_for(processor, span_limits=SpanLimits(max_span_attribute_length=60))

    with agent(tracer), tool(tracer, "boil", result=json.dumps({"egg": "x" * 100})):
        pass

    assert step_lines(collector.runs[0])[1].startswith('observation boil {"egg": "xxx')


def test_rule_15_a_span_that_is_not_sampled_is_not_told(processor, collector, buffer):
    with agent(tracer_for(processor, sampler=ALWAYS_OFF)):
        assert len(buffer) == 0

    assert collector.ended == []


def test_rule_16_tools_may_run_in_other_threads(tracer, collector):
    with agent(tracer) as own:

        def work(number):
            with trace.use_span(own, end_on_exit=False), tool(tracer, "boil", f"c{number}"):
                pass

        model(tracer, *(call("boil", f"c{number}", eggs=number) for number in range(8)))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        model(tracer, text("Yes."))

    kinds = [step.type for step in collector.runs[0].trace.steps]
    assert kinds == ["tool_call"] * 8 + ["observation"] * 8 + ["thought"]


def test_rule_16_what_another_thread_tells_late_has_the_place_of_its_start(tracer, collector):
    with agent(tracer):
        began_ns = time.time_ns()
        model(tracer, text("Yes."))
        given = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "boil"}
        around = contextvars.copy_context()
        begin = partial(tracer.start_span, "boil", attributes=given, start_time=began_ns)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: around.run(begin).end()).result()

    assert step_lines(collector.runs[0]) == [
        "tool_call boil",
        "observation boil null",
        "thought Yes.",
    ]


def test_rule_16_the_run_is_found_inside_a_span_and_not_after_it(tracer, collector):
    with agent(tracer):
        current_trace().thought("I think aloud.")
        model(tracer, text("Yes."))
    current_trace().thought("Nobody hears.")

    assert step_lines(collector.runs[0]) == ["thought I think aloud.", "thought Yes."]


def test_rule_17_a_root_that_was_left_over_is_no_parent_of_a_new_run(tracer, processor, collector):
    with left_open(tracer):
        with chat(tracer, asked="One?") as said:
            fail(said, ConnectionError("the model is away"))
        with left_open(tracer) as own:
            model(tracer, text("Yes."), asked="Two?")
        own.end()
    processor.shutdown()

    first, second = collector.runs
    assert (first.trace.task.objective, second.trace.task.objective) == ("One?", "Two?")
    assert (first.complete, second.complete) == (False, True)


def test_rule_18_an_agent_that_is_open_at_the_end_is_given_up_with_its_task_and_name(
    provider, processor, collector
):
    tracer = provider.get_tracer(OPENINFERENCE)
    told = {"openinference.span.kind": "AGENT", "agent.name": "cook"}
    own = tracer.start_span("run", attributes=told | {"input.value": '{"task": "Boil an egg."}'})
    with trace.use_span(own, end_on_exit=False):
        model(tracer, text("Yes."))
        model(tracer, text("No."))
    assert processor.force_flush()
    processor.shutdown()

    [run] = collector.runs
    assert (run.agent_name, run.complete) == ("cook", False)
    assert step_lines(run) == ["observation Boil an egg.", "thought Yes.", "thought No."]


def test_rule_18_a_forked_child_leaves_the_spans_to_its_parent(tracer, collector, buffer):
    with agent(tracer):
        model(tracer, text("Yes."))
        buffer.clear()  # as after a fork

    assert collector.ended == []
    assert len(buffer) == 0


@pytest.mark.parametrize("is_the_same", [True, False])
def test_rule_19_a_bracket_around_two_runs_is_none(tracer, collector, is_the_same):
    with tracer.start_as_current_span(
        "a conversation", attributes={"gen_ai.operation.name": "invoke_workflow"}
    ):
        for number in range(2):
            with agent(tracer, name="cook"):
                asked = "An egg?" if is_the_same else f"Egg {number}?"
                model(tracer, text("Yes."), asked=asked)

    assert len(collector.runs) == (1 if is_the_same else 2)


def test_rule_20_texts_are_bounded(tracer, collector):
    with agent(tracer, name="c" * 10_000), tool(tracer, "boil", result="x" * 1_000_000):
        pass

    run = collector.runs[0]
    assert len(run.agent_name) < 300
    assert len(run.trace.steps[1].output_summary) < 66 * 1024


def test_ten_thousand_open_spans_are_the_most(tracer, collector, buffer):
    for _ in range(100):
        with left_open(tracer):
            model(tracer, text("Yes."), asked="An egg?")
            for _ in range(150):
                tracer.start_span("open")
            assert len(buffer) <= 10_000

    assert len(collector.ended) > 30
    assert not any(run.complete for run in collector.runs)


def test_an_open_run_holds_sixteen_megabytes_and_the_names_of_the_rest(tracer, collector, buffer):
    with agent(tracer) as own:
        for number in range(50):
            with tool(tracer, f"boil {number}", result=f"{number} " + "x" * 1_000_000):
                pass
        top = buffer.get(own.get_span_context().span_id)
        assert 15_000_000 < sum(span.size_bytes for span in top.subtree()) < 17_000_000
        model(tracer, text("Yes."))

    [run] = collector.runs
    assert run.trace.steps[-2].tool.name.endswith("boil 49")
    assert run.trace.steps[0].tool.name == "boil 0"


def test_the_older_messages_of_openllmetry_are_read(tracer, collector):
    said = {
        "traceloop.span.kind": "agent",
        "traceloop.entity.name": "cook",
        "traceloop.association.properties.thread_id": "a thread",
    }
    spoken = {
        "llm.request.type": "chat",
        "gen_ai.usage.prompt_tokens": 5,
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "An egg?",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "I boil.",
        "gen_ai.completion.0.tool_calls.0.name": "boil",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"minutes": 6}',
    }
    with (
        tracer.start_as_current_span("cook.agent", attributes=said),
        tracer.start_as_current_span("openai.chat", attributes=spoken),
    ):
        pass

    run = collector.runs[0]
    assert step_lines(run) == ["observation An egg?", "thought I boil.", "tool_call boil"]
    assert (run.thread_id, run.agent_name, run.input_tokens) == ("a thread", "cook", 5)


def test_enable_uses_the_global_provider(collector, monkeypatch):
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    processor = kp_otel.enable(collector, domain="cooking")
    with agent(provider.get_tracer(GENAI)):
        model(provider.get_tracer(GENAI), text("Yes."))

    assert collector.runs[0].trace.metadata.task_domain == "cooking"
    processor.shutdown()


def test_a_turn_of_a_model_takes_until_its_end_or_its_first_tool(tracer, collector):
    with agent(tracer):
        given = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        whole = {"gen_ai.output.messages": messages_json(text("I boil."), call("boil", "c1"))}
        around = tracer.start_span("chat", attributes=given | whole, start_time=10**18)
        boil = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "boil"}
        tracer.start_span("boil", attributes=boil, start_time=10**18 + 2 * 10**9).end(
            10**18 + 3 * 10**9
        )
        around.end(10**18 + 4 * 10**9)
        last = {"gen_ai.output.messages": messages_json(text("Yes."))}
        tracer.start_span("chat", attributes=given | last, start_time=10**18 + 5 * 10**9).end(
            10**18 + 6 * 10**9
        )

    facts = [one.model_latency_ms for one in collector.runs[0].facts if one.model]
    assert facts == [2000, 1000]
