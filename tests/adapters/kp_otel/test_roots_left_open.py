"""smolagents leaves an agent's span open, and current, when its model fails (rules 6, 9, 17)."""

import contextvars
import time

from opentelemetry import context, trace
from sample_spans import agent, fail, model, step_lines, text, tool

from kp_middleware.recording import inside

SMOLAGENTS = "openinference.instrumentation.smolagents"
AGENT = {"openinference.span.kind": "AGENT", "input.value": '{"task": "One?"}'}
STEP = {"openinference.span.kind": "CHAIN"}


def fail_with_its_model(tracer):
    """Tell what smolagents tells then."""
    left = tracer.start_span("cook.run", attributes=AGENT)
    context.attach(trace.set_span_in_context(left))
    error = ConnectionError("the model is away")
    told = {"openinference.span.kind": "LLM"}
    with tracer.start_as_current_span("Step 1", attributes=STEP) as step:
        with tracer.start_as_current_span("generate", attributes=told) as said:
            fail(said, error)
        fail(step, RuntimeError(f"Error while generating output: {error}"))


def test_an_agent_that_its_failed_model_ended_is_over_after_a_while(provider, collector, buffer):
    buffer._grace_s = 0.01

    contextvars.copy_context().run(fail_with_its_model, provider.get_tracer(SMOLAGENTS))

    while not collector.ended:
        time.sleep(0.001)
    [run] = collector.runs
    assert step_lines(run) == ["observation One?", "observation ConnectionError: the model is away"]
    assert (run.error_type, run.complete) == ("ConnectionError", False)
    assert run.trace.metadata.success is False
    assert len(buffer) == 0


def test_rule_17_what_begins_inside_it_is_a_run_of_its_own(provider, tracer, collector):
    def begin():
        fail_with_its_model(provider.get_tracer(SMOLAGENTS))
        with agent(tracer, name="another"):
            model(tracer, text("Yes."), asked="Two?")

    contextvars.copy_context().run(begin)

    told = [(run.trace.task.objective, run.agent_name, run.complete) for run in collector.runs]
    assert told == [("One?", "cook.run", False), ("Two?", "another", True)]


def test_an_agent_that_waits_after_a_step_is_not_over(provider, collector, buffer):
    buffer._grace_s = 0.0
    tracer = provider.get_tracer(SMOLAGENTS)

    with tracer.start_as_current_span("cook.run", attributes=AGENT):
        with tracer.start_as_current_span("Step 1", attributes=STEP) as step:
            model(tracer, text("I boil."))
            with tool(tracer, "boil", result=None) as boil:
                fail(boil, ValueError("no gas"))
            fail(step, ValueError("no gas"))
        with tracer.start_as_current_span("Step 2", attributes=STEP):
            model(tracer, text("Cold, then."))

    [run] = collector.runs
    assert len(run.trace.steps) == 5
    assert run.complete


def test_inside_a_captured_function_the_function_goes_on(provider, processor, collector):
    around = collector.start_recording("python")
    with inside(around):
        contextvars.copy_context().run(fail_with_its_model, provider.get_tracer(SMOLAGENTS))
        processor.shutdown()
        around.thought("Then without it.")
    around.finish()

    [run] = collector.runs
    assert step_lines(run)[-2:] == [
        "error_recovery ConnectionError: the model is away",
        "thought Then without it.",
    ]
    assert run.complete
