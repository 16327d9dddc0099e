"""Two parts of a thread are one run; the laws of joining, and what each fact becomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.recording import Limits, Place, Recorder, alone, assemble, ended, joined
from kp_middleware.runs import RecordedRun


def part(
    note=lambda recorder: recorder.thought("said"), *, asked="go", error=None, most=1000, **notes
):
    """What is recorded of one part of thread T."""
    recorder = Recorder(lambda _: None, Limits(steps=most), framework="test")
    recorder.thread_id = "T"
    recorder.set_objective(asked)
    for name, value in notes.items():
        setattr(recorder.thread_notes, name, value)
    note(recorder)
    recorder.finish(error)
    return assemble(
        recorder,
        domain="general",
        visibility="network",
        privacy_level="aggregated",
        agent_id=None,
    )


def waiting(note=lambda recorder: recorder.thought("said"), **notes):
    return part(note, **{"awaits": "human", **notes})


def following(note=lambda recorder: recorder.thought("went on"), **notes):
    return part(note, **{"asked": "", "follows": True, "repeats_calls": True, **notes})


def story(run):
    return [
        (step.type, step.content or step.output_summary or step.tool.name)
        for step in run.trace.steps
    ]


def call(call_id, tool="add", **given):
    return lambda recorder: recorder.note("tool_call", tool=tool, input=given, call_id=call_id)


def result(call_id, text="3"):
    return lambda recorder: recorder.note(
        "observation", tool="add", output_summary=text, call_id=call_id
    )


def both(*notes):
    return lambda recorder: [note(recorder) for note in notes]


def test_the_whole_begins_as_the_first_and_ends_as_the_second():
    first = waiting()
    second = following(
        lambda recorder: (recorder.thought("went on"), recorder.outcome("done", confidence=0.9))
    )

    whole = joined(first, second, Limits())

    assert (whole.trace.id, whole.trace.task.objective) == (first.trace.id, "go")
    assert whole.trace.metadata.created_at == first.trace.metadata.created_at
    assert story(whole) == [("thought", "said"), ("thought", "went on")]
    assert whole.trace.outcome == second.trace.outcome
    assert (whole.trace.metadata.success, whole.complete, whole.part) == (True, True, None)
    assert whole.duration_ms == first.duration_ms + second.duration_ms


def test_what_a_later_part_was_asked_is_what_a_person_said():
    whole = joined(waiting(awaits="turn"), following(asked="and then?"), Limits())

    assert story(whole)[1] == ("observation", "and then?")
    assert (whole.shape.steps, whole.shape.types) == (3, {"thought", "observation"})


def test_a_part_without_a_step_has_only_what_was_asked():
    whole = joined(waiting(awaits="turn"), following(lambda _: None, asked="bye"), Limits())

    assert story(whole) == [("thought", "said"), ("observation", "bye")]
    assert whole.shape.steps == 2


def test_a_call_that_was_cut_short_is_one_call():
    first = waiting(call("c1", a=1), pending_calls={"c1": "add"})
    second = following(both(call("c1", a=1), result("c1")))

    whole = joined(first, second, Limits())

    assert story(whole) == [("tool_call", "add"), ("observation", "3")]
    assert (whole.shape.steps, whole.shape.tools) == (2, 1)


def test_a_result_that_the_first_part_has_is_not_told_again():
    first = waiting(
        both(call("c1", a=1), result("c1"), call("c2", a=2)), pending_calls={"c2": "add"}
    )
    second = following(both(call("c2", a=2), result("c1"), result("c2", "4")))

    whole = joined(first, second, Limits())

    assert story(whole)[2:] == [("tool_call", "add"), ("observation", "4")]


def test_calls_without_ids_are_known_by_what_they_ask():
    first = waiting(call(None, a=1), pending_calls={"nameless 0": "add"})
    second = following(both(call(None, a=1), call(None, a=1), call(None, a=2)))

    whole = joined(first, second, Limits())

    assert [step.input for step in whole.trace.steps] == [{"a": 1}, {"a": 1}, {"a": 2}]


def test_a_part_that_waits_again_owes_what_nobody_has_answered():
    first = waiting(pending_calls={"c1": "add", "c2": "add"})
    second = following(result("c1"), awaits="human", pending_calls={"c3": "add"})

    between = joined(first, second, Limits())
    whole = joined(
        between, following(both(call("c1"), call("c2"), call("c3"), result("c2"))), Limits()
    )

    assert between.part.awaits == "human"
    assert len(between.part.owed) == 2
    calls = [step for step in whole.trace.steps if step.type == "tool_call"]
    assert len(calls) == 1  # of c1, which had its result


def test_recoveries_that_were_told_before_do_not_count_twice():
    failed = lambda recorder: recorder.error("no", tool="add", call_id="c1")  # noqa: E731
    first = waiting(both(call("c1"), failed, call("c2")), pending_calls={"c2": "add"})

    whole = joined(first, following(both(failed, result("c2"))), Limits())

    assert whole.shape.recoveries == 1
    assert whole.shape.steps == len(whole.trace.steps) == 4


def test_agents_inside_stay_with_their_steps():
    inside = lambda recorder: recorder.note("thought", "inner", place=Place("inner"))  # noqa: E731
    first, second = waiting(inside), following(both(lambda r: r.thought("own"), inside))

    whole = joined(first, second, Limits())

    assert [facts.agent for facts in whole.facts] == ["inner", None, "inner"]


def test_tokens_are_added_and_what_nobody_counted_is_none():
    used = lambda recorder: recorder.used_tokens(input_tokens=3, output_tokens=4)  # noqa: E731
    told = both(lambda recorder: recorder.thought("said"), used)

    one_told = joined(waiting(told), following(), Limits())
    both_told = joined(waiting(told), following(told), Limits())
    none_told = joined(waiting(), following(), Limits())

    assert [run.input_tokens for run in (one_told, both_told, none_told)] == [3, 6, None]


def test_an_error_after_the_pause_ends_the_whole():
    whole = joined(waiting(), following(error=ValueError("no")), Limits())

    assert (whole.error_type, whole.trace.metadata.success) == ("ValueError", False)


def test_an_answer_without_words_keeps_the_earlier_one():
    spoke = both(
        lambda recorder: recorder.thought("said"), lambda recorder: recorder.outcome("the answer")
    )

    whole = joined(waiting(spoke, awaits="turn"), following(asked="thanks"), Limits())

    assert whole.trace.outcome.result_summary == "the answer"


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.integers(2, 40),
    st.integers(4096, 8192),
)
def test_however_many_parts_the_whole_is_bounded_and_counts_them_all(parts, steps, size):
    limits = Limits(steps=steps, trace_bytes=size)
    told = lambda count: lambda r: [r.thought(f"{at} " + "x" * 99) for at in range(count)]  # noqa: E731

    whole = waiting(told(parts[0]))
    for count in parts[1:]:
        whole = joined(whole, following(told(count), awaits="human"), limits)

    assert whole.shape.steps == sum(parts)
    assert len(parts) == 1 or len(whole.trace.steps) <= steps
    assert len(parts) == 1 or sum(len(step.content or "") for step in whole.trace.steps) <= size
    assert whole.part.awaits == "human"


@pytest.mark.parametrize(
    ("run", "success", "ends"),
    [
        (waiting(), None, (False, False, 0.2)),
        (waiting(), True, (True, True, 0.8)),
        (waiting(awaits="turn"), None, (True, True, 0.8)),
        (waiting(awaits="turn"), False, (True, False, 0.2)),
    ],
    ids=["a question", "a question, done", "a thread", "a thread, failed"],
)
def test_what_nothing_follows_ends_as_it_is_or_as_somebody_knows(run, success, ends):
    over = ended(run, success=success)

    trace = over.trace
    assert (over.complete, trace.metadata.success, trace.outcome.confidence) == ends
    assert over.part is None


def test_how_sure_somebody_is_goes_before_what_is_usual():
    over = ended(waiting(), success=False, confidence=0.8)

    assert over.trace.outcome.confidence == 0.8


def test_a_marker_tells_the_truth_however_often_parts_are_joined():
    limits = Limits(steps=10)
    told = lambda recorder: [recorder.thought(f"{at}") for at in range(7)]  # noqa: E731

    whole = waiting(told)
    for _ in range(5):
        whole = joined(whole, following(told, awaits="human"), limits)

    assert [step.output_summary for step in whole.trace.steps if step.output_summary] == [
        "[33 of 42 steps left out here]"
    ]
    assert whole.shape.steps == 42
    assert [step.step_id for step in whole.trace.steps] == [*range(10)]


def test_a_run_that_was_long_after_its_pause_still_ends_with_its_last_step():
    limits = Limits(steps=10)
    many = lambda recorder: [recorder.thought(f"{at}") for at in range(20)]  # noqa: E731

    whole = joined(waiting(), part(many, asked="", follows=True, most=10), limits)

    assert [step.content or step.output_summary for step in whole.trace.steps] == [
        *("said", "0", "1", "2", "[12 of 21 steps left out here]", "15", "16", "17", "18", "19")
    ]


def test_tools_are_counted_also_where_their_steps_were_left_out():
    limits = Limits(steps=10)
    use = lambda first: lambda r: [r.tool_call(f"tool {first + at}", {}) for at in range(10)]  # noqa: E731

    whole = waiting(use(0))
    for first in (10, 20, 30):
        whole = joined(whole, following(use(first), awaits="human"), limits)

    assert whole.shape.tools == 40


def ask(number):
    return lambda recorder: recorder.note(
        "observation", output_summary=f"{number}?", call_id=number
    )


def test_a_question_that_is_still_open_is_one_question():
    first = waiting(both(ask("1"), ask("2")), questions=("1", "2"))

    whole = joined(first, following(ask("2"), awaits="human", questions=("2",)), Limits())

    assert story(whole) == [("observation", "1?"), ("observation", "2?")]


def test_parts_without_a_step_can_be_joined_and_read_again():
    nothing = lambda _: None  # noqa: E731
    first = waiting(nothing, awaits="turn", follows=True, asked="")

    whole = joined(first, following(nothing, awaits="turn"), Limits())

    assert whole.shape.steps == 0
    assert RecordedRun.model_validate_json(whole.model_dump_json()) == whole


def test_alone_it_leaves_out_results_that_belong_elsewhere():
    run = following(both(result("c1"), lambda recorder: recorder.thought("well")))

    assert story(alone(run)) == [("thought", "well")]
    assert alone(run).shape.steps == 1


def test_alone_an_answer_is_nothing():
    assert alone(following(lambda recorder: recorder.observation("yes"))) is None


def test_alone_a_run_with_all_its_own_is_as_it_is():
    run = following(both(call("c1"), result("c1")))

    assert alone(run) is run


def test_an_error_that_nothing_follows_is_no_recovery():
    fails = waiting(awaits="turn", error=ValueError("no"))

    assert story(fails)[-1] == ("error_recovery", "ValueError: no")
    assert story(ended(fails))[-1] == ("observation", "ValueError: no")
    assert (ended(fails).shape.recoveries, ended(fails).trace.metadata.success) == (0, False)
