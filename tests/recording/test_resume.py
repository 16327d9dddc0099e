"""Two parts of a thread are one run; the laws of joining, and what each fact becomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.recording import Place, Recorder, assemble, detach_from_thread, ended, joined
from kp_middleware.runs import RecordedRun
from kp_middleware.traces import Limits


def part(
    note=lambda recorder: recorder.thought("said"), *, asked="go", error=None, most=1000, **notes
):
    """Record one part of thread T."""
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


def failure(call_id):
    return lambda recorder: recorder.error("no", tool="add", call_id=call_id)


def notes_of(*notes):
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


@pytest.mark.parametrize(
    ("note", "steps"),
    [
        (lambda recorder: recorder.thought("well"), [("thought", "well")]),
        (lambda _: None, []),
    ],
    ids=["with steps", "without a step"],
)
def test_what_a_later_part_was_asked_is_what_a_person_said(note, steps):
    whole = joined(waiting(awaits="turn"), following(note, asked="and then?"), Limits())

    assert story(whole) == [("thought", "said"), ("observation", "and then?"), *steps]
    assert whole.shape.steps == 2 + len(steps)
    assert whole.shape.types == {"thought", "observation"}


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        (
            [call("c1")],
            [call("c1"), result("c1")],
            [("tool_call", "add"), ("observation", "3")],
        ),
        (
            [call("c0"), result("c0"), call("c1")],
            [call("c1"), result("c0"), result("c1", "4")],
            [
                *(("tool_call", "add"), ("observation", "3")),
                *(("tool_call", "add"), ("observation", "4")),
            ],
        ),
        (
            [call("c0"), failure("c0"), call("c1")],
            [failure("c0"), result("c1")],
            [
                *(("tool_call", "add"), ("error_recovery", "no")),
                *(("tool_call", "add"), ("observation", "3")),
            ],
        ),
    ],
    ids=["a call that was cut short", "a result", "a recovery"],
)
def test_what_the_first_part_has_is_no_new_step(before, after, steps):
    first = waiting(notes_of(*before), pending_calls={"c1": "add"})

    whole = joined(first, following(notes_of(*after)), Limits())

    assert story(whole) == steps
    assert (whole.shape.steps, whole.shape.tools) == (len(steps), 1)
    assert whole.shape.recoveries == [kind for kind, _ in steps].count("error_recovery")


def test_calls_without_ids_are_known_by_what_they_ask():
    first = waiting(call(None, a=1), pending_calls={"nameless 0": "add"})
    second = following(notes_of(call(None, a=1), call(None, a=1), call(None, a=2)))

    whole = joined(first, second, Limits())

    assert [step.input for step in whole.trace.steps] == [{"a": 1}, {"a": 1}, {"a": 2}]


def test_a_part_that_waits_again_has_the_calls_that_nobody_has_answered():
    first = waiting(pending_calls={"c1": "add", "c2": "add"})
    second = following(result("c1"), awaits="human", pending_calls={"c3": "add"})

    between = joined(first, second, Limits())
    whole = joined(
        between, following(notes_of(call("c1"), call("c2"), call("c3"), result("c2"))), Limits()
    )

    assert between.part.awaits == "human"
    assert len(between.part.pending_calls) == 2
    calls = [step for step in whole.trace.steps if step.type == "tool_call"]
    assert len(calls) == 1  # of c1, which had its result


def test_agents_inside_stay_with_their_steps():
    inside = lambda recorder: recorder.note("thought", "inner", place=Place("inner"))  # noqa: E731
    first, second = waiting(inside), following(notes_of(lambda r: r.thought("own"), inside))

    whole = joined(first, second, Limits())

    assert [facts.agent for facts in whole.facts] == ["inner", None, "inner"]


def test_tokens_are_added_and_what_nobody_counted_is_none():
    used = lambda recorder: recorder.used_tokens(input_tokens=3, output_tokens=4)  # noqa: E731
    noted = notes_of(lambda recorder: recorder.thought("said"), used)

    one_noted = joined(waiting(noted), following(), Limits())
    both_noted = joined(waiting(noted), following(noted), Limits())
    none_noted = joined(waiting(), following(), Limits())

    assert [run.input_tokens for run in (one_noted, both_noted, none_noted)] == [3, 6, None]


def test_an_answer_without_words_keeps_the_earlier_one():
    spoke = notes_of(
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
    noted = lambda count: lambda r: [r.thought(f"{at} " + "x" * 99) for at in range(count)]  # noqa: E731

    whole = waiting(noted(parts[0]))
    for count in parts[1:]:
        whole = joined(whole, following(noted(count), awaits="human"), limits)

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


def test_a_marker_and_the_counts_tell_the_truth_however_often_parts_are_joined():
    limits = Limits(steps=10)
    use = lambda number: lambda r: [r.tool_call(f"{number}-{at}") for at in range(7)]  # noqa: E731

    whole = waiting(use(0))
    for number in range(1, 6):
        whole = joined(whole, following(use(number), awaits="human"), limits)

    assert [step.output_summary for step in whole.trace.steps if step.output_summary] == [
        "[33 of 42 steps left out here]"
    ]
    assert (whole.shape.steps, whole.shape.tools) == (42, 42)
    assert [step.step_id for step in whole.trace.steps] == [*range(10)]


def test_a_run_that_was_long_after_its_pause_still_ends_with_its_last_step():
    limits = Limits(steps=10)
    many = lambda recorder: [recorder.thought(f"{at}") for at in range(20)]  # noqa: E731

    whole = joined(waiting(), part(many, asked="", follows=True, most=10), limits)

    assert [step.content or step.output_summary for step in whole.trace.steps] == [
        *("said", "0", "1", "2", "[12 of 21 steps left out here]", "15", "16", "17", "18", "19")
    ]


def test_parts_without_a_step_can_be_joined_and_read_again():
    nothing = lambda _: None  # noqa: E731
    first = waiting(nothing, awaits="turn", follows=True, asked="")

    whole = joined(first, following(nothing, awaits="turn"), Limits())

    assert whole.shape.steps == 0
    assert RecordedRun.model_validate_json(whole.model_dump_json()) == whole


def test_alone_a_part_has_what_is_its_own():
    thought = lambda recorder: recorder.thought("well")  # noqa: E731
    own = following(notes_of(call("c1"), result("c1")))
    with_a_result_of_elsewhere = detach_from_thread(following(notes_of(result("c1"), thought)))
    an_answer = following(lambda recorder: recorder.observation("yes"))

    assert detach_from_thread(own) is own
    assert story(with_a_result_of_elsewhere) == [("thought", "well")]
    assert with_a_result_of_elsewhere.shape.steps == 1
    assert detach_from_thread(an_answer) is None
