"""Rules 1 to 9 of reading spans, each alone, through a real tracer provider."""

import json
import time
from types import SimpleNamespace

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags
from sample_spans import (
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
)

from kp_middleware.recording import shield


@pytest.mark.parametrize("broken", [None, SimpleNamespace(), SimpleNamespace(context=3)])
def test_rule_1_nothing_is_raised_into_the_agent(processor, broken):
    processor.on_start(broken)
    processor.on_end(broken)

    assert shield.failures


def test_rule_1_a_pipeline_that_raises_is_no_matter_of_the_agent(tracer, collector, monkeypatch):
    monkeypatch.setattr(collector, "start_recording", lambda _: 1 / 0)

    with agent(tracer):
        model(tracer, text("Yes."))

    assert collector.ended == []


def test_rule_2_what_is_around_an_agent_and_is_none_changes_nothing(provider, tracer, collector):
    far = SpanContext(5, 6, is_remote=True, trace_flags=TraceFlags(1))

    with provider.get_tracer("a.web.server").start_as_current_span("POST /chat"):
        for words in ("One.", "Two."):
            with agent(tracer):
                model(tracer, text(words))
        assert [step_lines(run) for run in collector.runs] == [["thought One."], ["thought Two."]]
    with trace.use_span(NonRecordingSpan(far)), agent(tracer):
        model(tracer, text("Three."))

    assert len(collector.runs) == 3


def test_rule_2_what_is_around_may_end_before_its_agent(tracer, collector, buffer):
    request = tracer.start_span("POST /chat")
    with trace.use_span(request, end_on_exit=False), tracer.start_as_current_span("handler"):
        own = agent(tracer)
        own.__enter__()
        model(tracer, text("Yes."))
    request.end()
    assert collector.ended == []

    own.__exit__(None, None, None)

    assert len(collector.runs) == 1
    assert len(buffer) == 0


def test_rule_2_neither_a_chain_in_which_nothing_is_done_nor_a_model_alone_is_a_run(
    provider, tracer, processor, collector, without_content
):
    chain = {"openinference.span.kind": "CHAIN"}
    with provider.get_tracer(OPENINFERENCE).start_as_current_span("chain", attributes=chain):
        pass
    model(tracer, text("Yes."))
    processor.shutdown()

    assert collector.ended == []
    assert without_content() == 0


def test_rule_3_the_order_is_that_of_the_starts(tracer, collector):
    """A model whose span ends after its tools, as of ADK, and which is beside them."""
    with agent(tracer):
        said = tracer.start_span("chat", attributes={"gen_ai.operation.name": "chat"})
        with tool(tracer, "boil", "c1"):
            pass
        said.set_attribute(
            "gen_ai.output.messages", messages_json(text("I boil."), call("boil", "c1"))
        )
        said.end()
        model(tracer, text("It is done."))

    assert step_lines(collector.runs[0]) == [
        "thought I boil.",
        "tool_call boil",
        "observation boil done",
        "thought It is done.",
    ]


def test_rule_4_what_a_span_is_may_be_told_at_its_end(tracer, collector):
    with tracer.start_as_current_span("x") as root:
        with tracer.start_as_current_span("y") as said:
            said.set_attribute("gen_ai.operation.name", "chat")
            said.set_attribute("gen_ai.output.messages", messages_json(text("Yes.")))
        root.set_attribute("gen_ai.operation.name", "invoke_agent")

    assert step_lines(collector.runs[0]) == ["thought Yes."]


def test_rule_5_the_objective_is_what_people_said_since_the_last_answer(tracer, collector):
    history = [
        {"role": "user", "parts": [text("Good morning.")]},
        {"role": "assistant", "parts": [text("Hello.")]},
        {"role": "user", "parts": [text("An egg?")]},
        {"role": "user", "parts": [text("Soft.")]},
    ]

    with agent(tracer):
        model(tracer, text("Yes."), **{"gen_ai.input.messages": json.dumps(history)})

    assert collector.runs[0].trace.task.objective == "An egg? Soft."
    assert step_lines(collector.runs[0])[0] == "observation An egg? Soft."


def test_rule_5_messages_may_be_events(tracer, collector):
    with agent(tracer), chat(tracer) as said:
        said.add_event("gen_ai.user.message", {"content": '[{"text": "An egg?"}]'})
        use = {"toolUse": {"toolUseId": "c1", "name": "boil", "input": {"minutes": 6}}}
        message = json.dumps([{"text": "I boil."}, use])
        said.add_event("gen_ai.choice", {"message": message, "finish_reason": "tool_use"})

    run = collector.runs[0]
    assert step_lines(run) == ["observation An egg?", "thought I boil.", "tool_call boil"]
    assert run.trace.steps[2].input == {"minutes": 6}


def test_rule_5_messages_may_be_in_one_event(tracer, collector):
    with agent(tracer), chat(tracer) as said:
        given = {"gen_ai.output.messages": messages_json(text("Yes."))}
        given["gen_ai.input.messages"] = messages_json(text("An egg?"), role="user")
        said.add_event("gen_ai.client.inference.operation.details", given)

    assert step_lines(collector.runs[0]) == ["observation An egg?", "thought Yes."]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ('{"task": "Boil an egg."}', "Yes."),
        (
            '{"input_args": {"question": "Boil an egg.", "limit": 2}}',
            '{"answer": "Yes.", "why": 1}',
        ),
        ("Boil an egg.", '{"tasks": [], "raw": "Yes."}'),
    ],
)
def test_rule_5_the_task_of_an_agent_is_its_objective(provider, collector, given, answer):
    told = {"openinference.span.kind": "AGENT", "input.value": given, "output.value": answer}
    said = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": ""
        if given == "Boil an egg."
        else "New task: Boil.",
        "llm.output_messages.1.message.role": "assistant",
        "llm.output_messages.1.message.content": "Yes, I do.",
    }
    tracer = provider.get_tracer(OPENINFERENCE)
    with (
        tracer.start_as_current_span("run", attributes=told),
        tracer.start_as_current_span("llm", attributes=said),
    ):
        pass

    [run] = collector.runs
    assert step_lines(run) == ["observation Boil an egg.", "thought Yes, I do."]
    assert run.trace.outcome.result_summary == ("Yes, I do." if answer == "Yes." else "Yes.")


def test_rule_5_where_no_model_tells_what_was_asked_the_agent_does(tracer, collector):
    asked = {"gen_ai.input.messages": messages_json(text("An egg?"), role="user")}
    with agent(tracer, **asked):
        tracer.start_span("chat never ends", attributes={"gen_ai.operation.name": "chat"})
    with agent(tracer, **asked):
        model(tracer, text("Yes."), asked="Two eggs?")

    assert [run.trace.task.objective for run in collector.runs] == ["Two eggs?"]


def test_rule_6_a_run_is_over_with_its_last_span(tracer, collector):
    with agent(tracer):
        late = tracer.start_span("x", attributes={"gen_ai.operation.name": "execute_tool"})
        model(tracer, text("Yes."))
    assert collector.ended == []

    late.end()

    assert len(collector.ended) == 1


def test_rule_6_or_when_a_thousand_others_have_begun(tracer, collector):
    with agent(tracer):
        tracer.start_span("never ends")
        model(tracer, text("Yes."))

    for _ in range(1001):
        tracer.start_span("another").end()

    assert not collector.runs[0].complete


def test_rule_6_or_after_a_while(tracer, collector, buffer):
    buffer._grace_s = 0.01

    with agent(tracer):
        tracer.start_span("never ends")
        model(tracer, text("Yes."))

    while not collector.ended:
        time.sleep(0.001)


def test_rule_7_an_agent_that_failed_fails_the_run_and_a_tool_does_not(tracer, collector):
    for is_the_agents in (True, False):
        with agent(tracer) as own:
            with tool(tracer, "boil", result=None) as boil:
                fail(boil, ValueError("no gas"))
            model(tracer, text("It is raw."))
            if is_the_agents:
                fail(own, RuntimeError("given up"))

    failed, well = collector.runs
    assert (failed.error_type, failed.trace.metadata.success) == ("RuntimeError", False)
    assert (well.error_type, well.trace.metadata.success) == (None, True)
    assert step_lines(well)[1] == "error_recovery boil ValueError: no gas"


def test_rule_8_the_same_error_is_reported_once(tracer, collector):
    with agent(tracer) as own:
        with tool(tracer, "boil", None, None, tool_arguments='{"minutes": 6}') as boil:
            fail(boil, ValueError("no gas"))
        own.set_status(Status(StatusCode.ERROR, "Error in agent run: boil failed: no gas"))

    assert step_lines(collector.runs[0]) == [
        "tool_call boil",
        "observation boil ValueError: no gas",
    ]
    assert collector.runs[0].error_type == "ValueError"


def test_what_a_model_said_before_it_failed_is_reported_once(tracer, collector):
    used = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}
    with agent(tracer), chat(tracer, text("Hm."), call("boil", "c1", minutes=6), **used) as span:
        fail(span, ConnectionError("cut"))

    (run,) = collector.runs
    assert [one.split()[0] for one in step_lines(run)] == ["thought", "tool_call", "error_recovery"]
    assert (run.facts[0].input_tokens, sum(one.input_tokens or 0 for one in run.facts)) == (10, 10)


class CancelledError(Exception):
    """Named as asyncio's."""


def calls_its_answer(tracer):
    """Pydantic AI: a structured result is a call that no tool answers."""
    model(tracer, text("I count."), call("final_result", "c1", eggs=2))


@pytest.mark.parametrize(
    ("work", "told", "complete"),
    [
        (lambda tracer: model(tracer, text("Yes.")), {}, True),
        (lambda tracer: model(tracer, call("boil", "c1", minutes=6)), {}, False),
        (
            lambda tracer: [model(tracer, text("Hm.")), tool(tracer, "boil").__enter__().end()],
            {},
            False,
        ),
        (
            lambda tracer: [
                model(tracer, call("final_answer", "c1", answer="egg")),
                tool(tracer, "final_answer", "c1").__enter__().end(),
            ],
            {},
            True,
        ),
        (lambda tracer: fail(model(tracer), CancelledError()), {}, True),
        (calls_its_answer, {"gen_ai.agent.call.id": "1", "final_result": '{"eggs": 2}'}, True),
        (
            lambda tracer: [
                calls_its_answer(tracer),
                tool(tracer, "final_result", "c1").__enter__().end(),
            ],
            {"gen_ai.output.messages": messages_json(text('{"eggs": 2}'))},
            True,
        ),
        (lambda tracer: model(tracer, text("Hm.")), {"gen_ai.agent.call.id": "1"}, False),
        (
            lambda tracer: model(tracer, text("Hm.")),
            {"final_result": '{"calls": [], "approvals": [{}]}'},
            False,
        ),
    ],
    ids=[
        *("answered", "called", "result last", "final answer", "ended before"),
        *("tells its result", "a tool takes its result", "should tell its result"),
        "waits for a person",
    ],
)
def test_rule_9_a_run_without_a_last_word_is_incomplete(collector, tracer, work, told, complete):
    with left_open(tracer, **told) as own:
        model(tracer, text("I begin."))
        work(tracer)
    own.end()

    assert collector.runs[0].complete is complete


def test_rule_9_a_cancelled_tool_makes_a_run_incomplete(tracer, collector):
    with agent(tracer):
        with tool(tracer, "boil", result=None) as boil:
            fail(boil, CancelledError())
        model(tracer, text("Yes."))

    assert (collector.runs[0].complete, collector.runs[0].error_type) == (False, "CancelledError")


def test_rule_9_a_cancellation_may_be_told_beside_the_status(provider, tracer, collector):
    with agent(tracer, **{"strands.cancellation.type": "GeneratorExit"}):
        model(tracer, text("Yes."))
    chain = {"openinference.span.kind": "CHAIN"}
    other = provider.get_tracer(OPENINFERENCE)
    with other.start_as_current_span("chain", attributes=chain) as own:
        model(tracer, text("Yes."))
        own.add_event("span.cancelled", {"reason": "by the user"})

    assert [run.error_type for run in collector.runs] == ["GeneratorExit", "CancelledError"]
    assert not any(run.complete for run in collector.runs)


def test_an_agent_tells_the_texts_that_its_models_lack(tracer, collector):
    asked, said = messages_json(text("An egg?"), role="user"), messages_json(text("Yes."))
    with agent(tracer, **{"gen_ai.input.messages": asked, "gen_ai.output.messages": said}):
        model(tracer)

    [run] = collector.runs
    told = run.trace.task.objective, run.trace.outcome.result_summary, run.complete
    assert told == ("An egg?", "Yes.", True)


def test_a_run_that_was_resumed_has_the_objective_of_its_history(tracer, collector):
    history = [
        {"role": "user", "parts": [text("Delete it.")]},
        {"role": "assistant", "parts": [call("delete", "c1")]},
        {"role": "user", "parts": [{"type": "function_approval_response"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "done"}]},
    ]
    with agent(tracer):
        model(tracer, text("Done."), **{"gen_ai.input.messages": json.dumps(history)})

    [run] = collector.runs
    assert (run.trace.task.objective, step_lines(run)) == ("Delete it.", ["thought Done."])


def test_of_a_model_in_a_model_the_one_with_messages_is_the_step(collector, tracer):
    with agent(tracer), chat(tracer):
        model(tracer, text("An egg."), asked="What shall I boil?")

    [run] = collector.runs
    assert step_lines(run) == ["observation What shall I boil?", "thought An egg."]
    assert (run.trace.task.objective, run.complete) == ("What shall I boil?", True)


def test_a_model_in_a_model_with_messages_is_a_detail_of_it(collector, tracer):
    with agent(tracer), chat(tracer, text("An egg."), asked="What shall I boil?"):
        model(tracer, text("An egg, by the client."), asked="What shall I boil?")

    [run] = collector.runs
    assert step_lines(run) == ["observation What shall I boil?", "thought An egg."]


def test_an_answer_that_the_agent_alone_reports_is_a_thought(collector, tracer):
    """As in a group chat of Semantic Kernel, whose models report no texts."""
    draft = json.dumps([{"role": "assistant", "content": "A draft.", "name": "writer"}])
    edited = json.dumps([{"role": "assistant", "content": "A text.", "name": "editor"}])
    messages = {"gen_ai.input.messages": draft, "gen_ai.output.messages": edited}
    with agent(tracer, "editor", **messages):
        model(tracer, **{"gen_ai.usage.output_tokens": 3})

    [run] = collector.runs
    assert step_lines(run) == ["observation A draft.", "thought A text."]
    assert (run.trace.task.objective, run.trace.outcome.result_summary) == ("A draft.", "A text.")


def test_an_agent_without_spans_of_models_has_their_answer_model_and_tokens(collector, tracer):
    """As the Claude Agent SDK's."""
    asked = {"openinference.span.kind": "AGENT", "input.value": "What is here?"}
    said = {
        "output.value": "One file.",
        "llm.output_messages.0.message.content.0": "I look.",
        "llm.model_name": "claude",
        "llm.token_count.prompt": 10,
        "llm.token_count.completion": 5,
    }
    tool_told = {"openinference.span.kind": "TOOL", "tool.name": "Bash", "output.value": "a.txt"}
    with tracer.start_as_current_span("query", attributes=asked) as span:
        with tracer.start_as_current_span("Bash", attributes=tool_told):
            pass
        span.set_attributes(said)

    [run] = collector.runs
    assert step_lines(run) == [
        "observation What is here?",
        "tool_call Bash",
        "observation Bash a.txt",
        "thought One file.",
    ]
    assert (run.complete, run.trace.metadata.success) == (True, True)
    assert (run.model, run.input_tokens, run.output_tokens) == ("claude", 10, 5)
    assert run.facts[-1].model_latency_ms is None
