"""What `current_trace()` offers: notes from any thread, none of which can hurt."""

import gc
import json
import sys
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from hostile_objects import HOSTILE, OddError, Unspeakable
from hypothesis import given
from hypothesis import strategies as st
from notebook import Notebook, line, run_of

from kp_middleware.recording import LateNote, Limits, current_trace, shield


def finished(recorder, error=None, **how):
    recorder.finish(error, **how)
    return run_of(recorder)


def story(run):
    return [line(step) for step in run.trace.steps]


def test_a_run_is_told_step_by_step(recorder):
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


def test_the_sink_gets_the_recorder_once(notebook):
    recorder = notebook.start()

    recorder.finish()
    recorder.finish(ValueError("late"))

    assert notebook.ended == [recorder]
    assert recorder.success is True


def test_what_comes_after_the_end_is_dropped(recorder):
    recorder.thought("in time")
    recorder.finish()

    recorder.thought("late")
    recorder.error(ValueError("late"))
    recorder.set_objective("late")
    recorder.outcome("late", confidence=0.1)
    recorder.used_tokens(input_tokens=1, output_tokens=1)

    run = run_of(recorder)
    assert story(run) == ["thought in time"]
    assert (run.trace.task.objective, run.trace.outcome.confidence) == ("(not said)", 0.8)
    assert run.input_tokens is None


def test_an_error_that_the_run_survived_is_a_recovery(recorder):
    recorder.error(ValueError("no such page"), tool="fetch", latency_ms=2)

    run = finished(recorder)

    assert story(run) == ["error_recovery fetch ValueError: no such page"]
    assert (run.shape.recoveries, run.trace.metadata.success) == (1, True)


def test_an_error_that_ended_the_run_is_an_observation(recorder):
    error = ValueError("no such page")
    recorder.error(error, tool="fetch")

    run = finished(recorder, error)

    assert story(run) == ["observation fetch ValueError: no such page"]
    assert (run.shape.recoveries, run.trace.metadata.success, run.error_type) == (
        0,
        False,
        "ValueError",
    )


def test_an_error_that_was_not_noted_before_is_noted_at_the_end(recorder):
    recorder.thought("let me see")

    run = finished(recorder, TimeoutError())

    assert story(run) == ["thought let me see", "observation TimeoutError"]
    assert run.shape.steps == 2


def error_from(cause, *, hidden=False):
    try:
        try:
            raise cause
        except type(cause) as error:
            if hidden:
                raise RuntimeError("gave up") from None
            raise RuntimeError("gave up") from error
    except RuntimeError as raised:
        return raised


def test_the_cause_of_the_error_that_ended_the_run_was_not_survived(recorder):
    cause = ValueError("no such page")
    recorder.error(cause)

    run = finished(recorder, error_from(cause))

    assert story(run) == ["observation ValueError: no such page"]
    assert (run.error_type, run.shape.recoveries) == ("RuntimeError", 0)


def test_a_long_chain_of_causes_is_followed_ten_deep(recorder):
    first = error = ValueError("first")
    recorder.error(first)
    [error := caused_by(error) for _ in range(12)]

    run = finished(recorder, error)

    assert story(run) == ["error_recovery ValueError: first", "observation RuntimeError: again"]


def caused_by(cause):
    error = RuntimeError("again")
    error.__cause__ = cause
    return error


def test_a_cause_that_the_user_has_cut_off_was_survived(recorder):
    cause = ValueError("no such page")
    recorder.error(cause)

    run = finished(recorder, error_from(cause, hidden=True))

    assert story(run) == [
        "error_recovery ValueError: no such page",
        "observation RuntimeError: gave up",
    ]


def test_each_failed_attempt_counts_also_where_the_same_error_is_raised_again(recorder):
    error = ValueError("busy")
    [recorder.error(error) for _ in range(3)]

    run = finished(recorder, error)

    assert [step.type for step in run.trace.steps] == ["error_recovery"] * 2 + ["observation"]


def test_a_survived_error_is_not_taken_for_another_that_has_its_place_in_memory(recorder):
    [recorder.error(ValueError(f"attempt {number}")) for number in range(5)]

    run = finished(recorder, ValueError("the end"))

    assert run.shape.recoveries == 5
    assert story(run)[-1] == "observation ValueError: the end"


def test_an_error_that_has_just_been_noted_is_known(recorder):
    error = ValueError("no")
    before = recorder.has_just_noted(error)

    recorder.error(error)

    assert (before, recorder.has_just_noted(error)) == (False, True)
    assert not recorder.has_just_noted(ValueError("no"))


def test_an_error_is_no_longer_on_its_way_when_something_else_was_noted(recorder):
    error = ValueError("no")
    recorder.error(error)

    recorder.thought("well then")

    assert not recorder.has_just_noted(error)


def test_an_error_may_be_a_text(recorder):
    recorder.error("the page was empty", tool="fetch")

    assert story(finished(recorder)) == ["error_recovery fetch the page was empty"]


def test_an_error_that_cannot_speak_is_named(recorder):
    recorder.error(OddError())

    assert story(finished(recorder)) == ["error_recovery OddError"]


def test_a_cancelled_run_is_incomplete_and_no_success(recorder):
    recorder.thought("working")

    run = finished(recorder, complete=False)

    assert (run.complete, run.trace.metadata.success) == (False, False)


@pytest.mark.parametrize(("said", "kept"), [(False, False), (True, True), (0, False)])
def test_the_agent_may_say_whether_it_succeeded(recorder, said, kept):
    recorder.thought("well")
    recorder.outcome(success=said)

    assert finished(recorder).trace.metadata.success is kept


def test_what_is_not_said_again_is_left_as_it_was(recorder):
    recorder.thought("well")
    recorder.outcome("first", confidence=0.4, success=False)
    recorder.outcome()

    run = finished(recorder)

    assert (run.trace.outcome.result_summary, run.trace.outcome.confidence) == ("first", 0.4)
    assert run.trace.metadata.success is False


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), "high"])
def test_a_confidence_that_cannot_be_is_ignored_and_counted(recorder, confidence):
    before = sum(shield.failures.values())

    recorder.thought("well")
    recorder.outcome("done", confidence=confidence)

    assert finished(recorder).trace.outcome.confidence == 0.8
    assert recorder.result_summary == "done"
    assert sum(shield.failures.values()) == before + 1


@pytest.mark.parametrize(
    "latency_ms",
    [-1, float("nan"), float("inf"), 10**400, "3", [], Unspeakable],
    ids=["negative", "NaN", "infinite", "huge", "text", "list", "class"],
)
def test_a_latency_that_cannot_be_is_left_out_and_its_step_kept(recorder, latency_ms):
    recorder.observation("seen", latency_ms=latency_ms)

    [step] = finished(recorder).trace.steps

    assert (step.content, step.latency_ms) == ("seen", None)


@pytest.mark.parametrize("latency_ms", [0, 2, 1.5, np.float32(1.5), True], ids=repr)
def test_a_latency_is_kept_as_a_number(recorder, latency_ms):
    recorder.observation("seen", latency_ms=latency_ms)

    assert finished(recorder).trace.steps[0].latency_ms == float(latency_ms)


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

    [recorder.observation(output_summary="x" * 50_000) for _ in range(10_000)]
    [recorder.error(ValueError("x" * 50_000)) for _ in range(100)]

    assert recorder.log.size_bytes < 200_000
    assert finished(recorder).shape.steps == 10_100


def test_tokens_are_summed(recorder):
    recorder.thought("well")
    recorder.used_tokens(input_tokens=3, output_tokens=1)
    recorder.used_tokens(input_tokens=2, output_tokens=np.int64(1))

    run = finished(recorder)

    assert (run.input_tokens, run.output_tokens) == (5, 2)


def test_notes_from_many_threads_are_all_kept(recorder):
    threads = [threading.Thread(target=note_often, args=(recorder, name)) for name in "abcd"]

    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    run = finished(recorder)
    assert run.shape.steps == 400
    assert [step.content for step in run.trace.steps if step.content[0] == "a"] == [
        f"a{number}" for number in range(100)
    ]


def note_often(recorder, name):
    [recorder.thought(f"{name}{number}") for number in range(100)]


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


def test_notes_with_wrong_arguments_do_not_reach_the_agent():
    trace = current_trace()

    trace.thought("x", bogus=1)
    trace.observation(bogus=1)
    trace.tool_call()
    trace.error()


def test_a_step_that_turns_out_late_stands_where_it_belongs(recorder):
    recorder.note_late([LateNote("error_recovery", "before all", recorder.last_step)])
    recorder.thought("one")
    one = recorder.last_step
    recorder.tool_call("slow")
    recorder.note_late([LateNote("error_recovery", "it took too long", one, tool="slow")])

    assert story(finished(recorder)) == [
        "error_recovery before all",
        "thought one",
        "error_recovery slow it took too long",
        "tool_call slow",
    ]


def test_late_steps_after_the_same_step_stand_in_the_order_in_which_they_are_given(recorder):
    recorder.thought("one")
    one = recorder.last_step
    recorder.thought("two")

    recorder.note_late(LateNote("thought", text, one) for text in ("late", "later"))

    assert story(finished(recorder)) == [
        "thought one",
        "thought late",
        "thought later",
        "thought two",
    ]


@pytest.mark.parametrize("notes", [0, 2, 18])
def test_a_late_step_after_one_of_another_run_is_kept_and_none_is_said_to_be_left_out(notes):
    recorder, other = Notebook(Limits(steps=20)).start(), Notebook().start()
    other.thought("elsewhere")
    for number in range(notes):
        recorder.thought(str(number))

    recorder.note_late([LateNote("thought", "late", other.last_step)])

    told = [step["content"] for step in recorder.log.steps()]
    assert told == [*map(str, range(notes)), "late"]


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
