"""Notes of `current_trace()`: from any thread, and harmless if invalid."""

import gc
import json
import sys
import tracemalloc
import weakref

import numpy as np
import pytest
from hostile_objects import HOSTILE, AlwaysRaises, OddError
from hypothesis import given
from hypothesis import strategies as st
from notebook import Notebook, line, run_of

from kp_middleware.recording import LateNote, shield
from kp_middleware.traces import Limits


def finished(recorder, error=None, **how):
    recorder.finish(error, **how)
    return run_of(recorder)


def story(run):
    return [line(step) for step in run.trace.steps]


def test_a_run_is_recorded_step_by_step(recorder):
    recorder.set_objective("find the fare")
    recorder.thought("look it up")
    recorder.tool_call("search", {"q": "fare"}, mcp_server="web")
    recorder.observation(tool="search", output_summary={"fare": 7}, latency_ms=3)
    recorder.observation("make it quick")
    recorder.outcome("7 euro", confidence=0.9)

    run = finished(recorder)

    assert story(run) == [
        "thought look it up",
        "tool_call search {'q': 'fare'}",
        'observation search {"fare": 7}',
        "observation make it quick",
    ]
    assert run.trace.steps[1].tool.mcp_server == "web"
    assert run.trace.steps[2].latency_ms == 3
    assert run.trace.task.objective == "find the fare"
    assert (run.trace.outcome.result_summary, run.trace.outcome.confidence) == ("7 euro", 0.9)
    assert (run.trace.metadata.success, run.complete, run.error_type) == (True, True, None)


@pytest.mark.parametrize("value", ["x", 1], ids=["texts", "numbers"])
def test_of_a_huge_input_no_more_is_copied_than_is_kept(recorder, value):
    huge = {str(number): value for number in range(300_000)}

    tracemalloc.start()
    recorder.tool_call("search", huge)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most_bytes < 1_000_000
    assert finished(recorder).trace.steps[0].input["…"] == "cut: 300000 items in all"


def test_what_comes_after_the_end_is_dropped(notebook, recorder):
    recorder.thought("in time")
    recorder.finish()

    recorder.finish(ValueError("late"))
    recorder.thought("late")
    recorder.error(ValueError("late"))
    recorder.set_objective("late")
    recorder.outcome("late", confidence=0.1)
    recorder.used_tokens(input_tokens=1, output_tokens=1)

    assert notebook.ended == [recorder]
    assert notebook.story == ["thought in time"]
    outcome = notebook.run.trace.outcome
    assert (outcome.result_summary, outcome.confidence) == ("", 0.8)
    assert notebook.run.trace.task.objective == "(not said)"
    assert notebook.run.input_tokens is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such page"), "ValueError: no such page"),
        ("the page was empty", "the page was empty"),
        (OddError(), "OddError"),
    ],
    ids=["error", "text", "error that cannot speak"],
)
def test_an_error_that_the_run_survived_is_a_recovery(recorder, error, words):
    recorder.error(error, tool="fetch", latency_ms=2)

    run = finished(recorder)

    assert story(run) == [f"error_recovery fetch {words}"]
    assert (run.shape.recoveries, run.trace.metadata.success) == (1, True)


def caused_by(cause, *, times=1):
    for _ in range(times):
        error = RuntimeError("gave up")
        error.__cause__, cause = cause, error
    return cause


def after(cause, *, is_cut_off=False):
    error = RuntimeError("gave up")
    error.__context__, error.__suppress_context__ = cause, is_cut_off
    return error


@pytest.mark.parametrize(
    ("fatal_after", "steps"),
    [
        (lambda error: error, ["observation ValueError: no"]),
        (caused_by, ["observation ValueError: no"]),
        (after, ["observation ValueError: no"]),
        (
            lambda error: after(error, is_cut_off=True),
            ["error_recovery ValueError: no", "observation RuntimeError: gave up"],
        ),
        (
            lambda error: caused_by(error, times=12),
            ["error_recovery ValueError: no", "observation RuntimeError: gave up"],
        ),
        (
            lambda error: ExceptionGroup("all", [KeyError(), error]),
            ["observation ValueError: no"],
        ),
        (
            lambda _: TimeoutError(),
            ["error_recovery ValueError: no", "observation TimeoutError"],
        ),
    ],
    ids=[
        "itself",
        "its cause",
        "before it",
        "cut off by the user",
        "too deep",
        "in a group",
        "no cause",
    ],
)
def test_an_error_that_ended_the_run_or_caused_its_end_was_not_survived(
    recorder, fatal_after, steps
):
    error = ValueError("no")
    fatal = fatal_after(error)
    recorder.error(error)

    run = finished(recorder, fatal)

    assert story(run) == steps
    assert (run.error_type, run.trace.metadata.success) == (type(fatal).__name__, False)
    assert (run.shape.recoveries, run.shape.steps) == (len(steps) - 1, len(steps))


def test_each_failed_attempt_counts_also_where_the_same_error_is_raised_again(recorder):
    error = ValueError("busy")
    [recorder.error(error) for _ in range(3)]

    run = finished(recorder, error)

    assert [step.type for step in run.trace.steps] == ["error_recovery"] * 2 + ["observation"]


def test_an_error_is_on_its_way_until_something_else_is_noted(recorder):
    error = ValueError("no")
    before = recorder.already_recorded(error)
    recorder.error(error)
    then = recorder.already_recorded(error)
    of_another = recorder.already_recorded(ValueError("no"))

    recorder.thought("well then")

    assert (before, then, of_another) == (False, True, False)
    assert not recorder.already_recorded(error)


@pytest.mark.parametrize(("said", "kept"), [(False, False), (True, True), (0, False)])
def test_the_agent_states_the_outcome_and_what_is_not_stated_again_is_left(recorder, said, kept):
    recorder.thought("well")
    recorder.outcome("first", confidence=0.4, success=said)
    recorder.outcome()

    run = finished(recorder)

    assert (run.trace.outcome.result_summary, run.trace.outcome.confidence) == ("first", 0.4)
    assert run.trace.metadata.success is kept


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), "high"])
def test_a_confidence_that_cannot_be_is_ignored_and_counted(recorder, confidence):
    recorder.thought("well")
    recorder.outcome("done", confidence=confidence)

    assert finished(recorder).trace.outcome.confidence == 0.8
    assert recorder.result_summary == "done"
    assert shield.failures.total() == 1


@pytest.mark.parametrize("success", ["no", "false", "", [], {}, 2, 0.5])
def test_a_success_that_is_no_bool_is_ignored_and_counted(recorder, success):
    recorder.thought("well")
    recorder.outcome("done", confidence=0.4, success=success)

    run = finished(recorder)

    assert (run.trace.outcome.result_summary, run.trace.outcome.confidence) == ("done", 0.4)
    assert (run.trace.metadata.success, run.success_source) == (True, "assumed")
    assert shield.failures.total() == 1


@pytest.mark.parametrize(
    ("latency_ms", "kept"),
    [
        *((-1, None), (float("nan"), None), (float("inf"), None), (10**400, None)),
        *(("3", None), ([], None), (AlwaysRaises, None)),
        *((0, 0), (2, 2), (1.5, 1.5), (np.float32(1.5), 1.5), (True, 1)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_latency_is_a_number_and_one_that_cannot_be_costs_no_step(recorder, latency_ms, kept):
    recorder.observation("seen", latency_ms=latency_ms)

    [step] = finished(recorder).trace.steps

    assert (step.content, step.latency_ms) == ("seen", kept)


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_object_can_be_noted_anywhere_and_the_run_is_kept(recorder, make):
    recorder.thought("before")
    recorder.set_objective(make())
    recorder.thought(make())
    recorder.tool_call(make(), make(), mcp_server=make())
    recorder.observation(make(), tool=make(), output_summary=make(), latency_ms=make())
    recorder.error(make(), tool=make())
    recorder.outcome(make(), confidence=make(), success=make())
    recorder.used_tokens(input_tokens=make(), output_tokens=make())
    recorder.thought("after")

    run = finished(recorder)

    assert (story(run)[0], story(run)[-1]) == ("thought before", "thought after")
    json.loads(run.trace.model_dump_json())


def test_nothing_of_the_user_s_is_kept_alive(recorder):
    class Page:
        pass

    page, error, decision = Page(), OddError(), Page()
    here = weakref.ref(page), weakref.ref(error), weakref.ref(decision)

    recorder.tool_call("read", {"page": page})
    recorder.observation(output_summary=[page])
    recorder.error(error)
    recorder.thread_notes.last_decision_input = decision
    recorder.finish()
    del page, error, decision

    gc.collect()
    assert [alive() for alive in here] == [None, None, None]


def test_an_input_that_is_no_mapping_is_kept_under_a_name(recorder):
    recorder.tool_call("add", [1, 2])

    assert finished(recorder).trace.steps[0].input == {"value": [1, 2]}


def test_long_texts_and_names_are_cut_with_words(recorder):
    recorder.tool_call("t" * 1000, {"q": "x" * 100_000}, mcp_server="s" * 1000)
    recorder.thought("日" * 100_000)

    call, thought = finished(recorder).trace.steps

    assert call.tool.name.endswith("[cut: 1000 characters in all]")
    assert call.tool.mcp_server.endswith("[cut: 1000 characters in all]")
    assert "cut: 100000 characters" in call.input["q"]
    assert len(thought.content.encode()) < 65 * 1024


def test_a_run_of_any_length_takes_bounded_memory():
    notebook = Notebook(Limits(trace_bytes=100_000))
    recorder = notebook.start()

    [recorder.observation(output_summary="x" * 50_000) for _ in range(1000)]
    [recorder.error(ValueError("x" * 50_000)) for _ in range(100)]

    assert recorder.log.size_bytes < 200_000
    assert finished(recorder).shape.steps == 1100


def test_tokens_are_summed(recorder):
    recorder.thought("well")
    recorder.used_tokens(input_tokens=3, output_tokens=1)
    recorder.used_tokens(input_tokens=2, output_tokens=np.int64(1))

    run = finished(recorder)

    assert (run.input_tokens, run.output_tokens) == (5, 2)


@pytest.mark.timeout(10)
def test_a_note_that_is_interrupted_by_another_of_its_thread_does_not_hang(recorder):
    def interrupt(frame, event, _):
        if (frame.f_code.co_name, event) == ("append", "call"):
            sys.setprofile(None)
            recorder.thought("interrupting")

    sys.setprofile(interrupt)
    recorder.thought("interrupted")
    sys.setprofile(None)

    assert {step["content"] for step in recorder.log.steps()} == {"interrupting", "interrupted"}


def test_a_step_that_turns_out_late_stands_where_it_belongs(recorder):
    recorder.note_late([LateNote("error_recovery", "before all", recorder.last_step)])
    recorder.thought("one")
    one = recorder.last_step
    recorder.tool_call("slow")
    recorder.note_late(LateNote("error_recovery", text, one, tool="slow") for text in "ab")

    assert story(finished(recorder)) == [
        "error_recovery before all",
        "thought one",
        "error_recovery slow a",
        "error_recovery slow b",
        "tool_call slow",
    ]


@pytest.mark.parametrize("notes", [0, 2, 18])
def test_a_late_step_after_one_of_another_run_is_kept_and_no_marker_is_added(notes):
    recorder, other = Notebook(Limits(steps=20)).start(), Notebook().start()
    other.thought("elsewhere")
    for number in range(notes):
        recorder.thought(str(number))

    recorder.note_late([LateNote("thought", "late", other.last_step)])

    steps = [step["content"] for step in recorder.log.steps()]
    assert steps == [*map(str, range(notes)), "late"]


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 30))
def test_steps_that_turn_out_late_keep_the_bounds_and_the_true_counts(places, most):
    recorder = Notebook(Limits(steps=most)).start()
    steps = [recorder.last_step]
    for number in range(20):
        recorder.thought(str(number))
        steps.append(recorder.last_step)

    afters = [steps[place % len(steps)] for place in places]
    recorder.note_late(LateNote("error_recovery", "late", after) for after in afters)

    kept = recorder.log.steps()
    thoughts = [int(step["content"]) for step in kept if step["type"] == "thought"]
    shape = recorder.log.shape()
    assert (shape.steps, shape.recoveries) == (20 + len(places), len(places))
    assert recorder.log.kept <= most
    assert thoughts == sorted(thoughts)
