"""A tracing processor keeps its own errors from the agent, and knows its conversation."""

from types import SimpleNamespace

import pytest

from kp_middleware.recording import shield
from kp_openai_agents import KPTracingProcessor


def span(number, parent, kind, **data):
    return SimpleNamespace(
        span_id=f"s{number}",
        parent_id=parent and f"s{parent}",
        trace_id="t",
        started_at=f"2026-11-22T10:00:0{number}+00:00",
        ended_at=f"2026-11-22T10:00:1{number}+00:00",
        span_data=SimpleNamespace(type=kind, **data),
        error=None,
    )


def model_span(number, parent, words, answer):
    return span(
        number,
        parent,
        "generation",
        model="m",
        usage={"input_tokens": 2, "output_tokens": 3},
        input=[{"role": "user", "content": words}],
        output=[{"role": "assistant", "content": answer}],
    )


def send_spans(processor, *spans):
    for one in spans:
        processor.on_span_start(one)
    for one in reversed(spans):
        processor.on_span_end(one)


def test_the_group_of_a_trace_is_the_thread_of_its_runs(collector):
    processor = KPTracingProcessor(collector, domain="cooking")
    trace = SimpleNamespace(trace_id="t", group_id="a group")

    processor.on_trace_start(trace)
    send_spans(processor, span(1, None, "agent", name="cook"), model_span(2, 1, "An egg?", "Yes."))
    processor.on_trace_end(trace)

    [run] = collector.runs
    assert (run.thread_id, run.trace.metadata.task_domain) == ("a group", "cooking")
    assert [step.content for step in run.trace.steps] == ["An egg?", "Yes."]
    assert (run.input_tokens, run.output_tokens) == (2, 3)


def test_a_search_by_the_provider_needs_no_result(collector):
    search = {
        "type": "web_search_call",
        "id": "w1",
        "status": "completed",
        "action": {"query": "q"},
    }
    asked = model_span(2, 1, "An egg?", "Yes.")
    asked.span_data.output.insert(0, search)

    send_spans(KPTracingProcessor(collector), span(1, None, "agent", name="cook"), asked)

    [run] = collector.runs
    assert [step.tool and step.tool.name for step in run.trace.steps] == [None, "web_search", None]
    assert run.complete


@pytest.mark.parametrize("broken", [None, SimpleNamespace(), SimpleNamespace(span_data=3)])
def test_nothing_is_raised_into_the_agent(collector, broken):
    processor = KPTracingProcessor(collector)

    for hook in ("on_trace_start", "on_trace_end", "on_span_start", "on_span_end"):
        getattr(processor, hook)(broken)
    processor.force_flush()
    processor.shutdown()

    assert collector.ended == []
    assert shield.failures


def test_the_end_of_the_program_gives_up_what_is_open(collector):
    processor = KPTracingProcessor(collector)
    processor.on_span_start(span(1, None, "agent", name="cook"))
    send_spans(processor, model_span(2, 1, "An egg?", "Yes."))

    processor.shutdown()

    assert not collector.runs[0].complete


def guarded(answer="Mix it.", *, triggered=False):
    """An agent beside whose model a guardrail asks another agent."""
    guard = (
        span(4, 2, "guardrail", name="is it food?", triggered=triggered),
        span(5, 4, "agent", name="guard"),
        model_span(6, 5, "Is this about food: a cake?", "It is."),
    )
    turn = span(2, 1, "custom", data={"sdk_span_type": "turn"})
    if triggered:
        turn.error = {"message": "Guardrail tripwire triggered", "data": {"guardrail": "food"}}
    return span(1, None, "agent", name="cook"), turn, model_span(3, 2, "A cake?", answer), *guard


def test_what_a_guardrail_says_is_seen_and_is_neither_the_question_nor_the_answer(collector):
    send_spans(KPTracingProcessor(collector), *guarded())

    [run] = collector.runs
    seen = [(step.type, step.content or step.output_summary) for step in run.trace.steps]
    assert seen == [("observation", "A cake?"), ("thought", "Mix it."), ("observation", "It is.")]
    assert [facts.agent for facts in run.facts] == [None, None, "guard"]
    assert (run.trace.task.objective, run.trace.outcome.result_summary) == ("A cake?", "Mix it.")
    assert (run.complete, run.trace.metadata.success) == (True, True)


def test_a_guardrails_question_is_the_objective_if_its_agent_was_never_asked(collector):
    root, turn, _, *guard = guarded(triggered=True)

    send_spans(KPTracingProcessor(collector), root, turn, *guard)

    [run] = collector.runs
    assert run.trace.task.objective == "Is this about food: a cake?"


def test_a_tripwire_is_a_failure_although_only_the_turn_has_its_error(collector):
    send_spans(KPTracingProcessor(collector), *guarded(triggered=True))

    [run] = collector.runs
    assert run.trace.metadata.success is False
    assert run.error_type == "Guardrail tripwire triggered"


def test_an_agent_that_was_never_asked_is_no_run(collector):
    root, turn, _, tripwire, *_ = guarded(triggered=True)

    send_spans(KPTracingProcessor(collector), root, turn, tripwire)

    assert collector.runs == []
