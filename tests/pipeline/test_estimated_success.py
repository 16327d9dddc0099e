"""A few known outcomes predict those of later runs."""

import json
import random
from functools import partial

import numpy as np
import pytest
from rescored import rescore

from kp_middleware import ReasoningTrace, Step, Tool, current_trace
from kp_middleware.testing import StandInEmbedder


@pytest.fixture
def kp(pulse):
    return pulse(sync=True, threshold="top 20%")


@pytest.fixture
def submit(kp):
    """Submits a run that went well or badly, and says nothing of it; returns its id."""

    def put(*, well, through=kp, **facts):
        trace = trace_of(well, **facts)
        through.submit(trace)
        return trace.id

    return put


LUCK = random.Random(1)
ENDS = {True: "Your refund is confirmed, all done.", False: "Sorry, I am unable to do that."}


def trace_of(well, domain="airline", began=None, **facts):
    task = f"Cancel flight {LUCK.randrange(1000)}"
    calls = [
        step
        for number in range(LUCK.randint(1, 3))
        for step in (
            Step(step_id=0, type="tool_call", tool=Tool(name="find"), input={"id": number}),
            Step(step_id=0, type="observation", output_summary="found"),
        )
    ]
    steps = [*calls, Step(step_id=0, type="thought", content=ENDS[well])]
    numbered = [step.model_copy(update={"step_id": at}) for at, step in enumerate(steps)]
    trace = ReasoningTrace.of(task, numbered, domain=domain, **facts)
    metadata = trace.metadata.model_copy(update={"created_at": began} if began else {})
    return trace.model_copy(update={"metadata": metadata})


def teach(kp, submit, count=20):
    for number in range(count):
        well = number % 2 == 0
        kp.feedback(submit(well=well), success=well)


def test_what_was_told_of_twenty_runs_tells_the_next_apart(kp, submit, stored):
    before = [stored(submit(well=well)) for well in (True, False)]
    teach(kp, submit)

    good, bad = [[stored(submit(well=well)) for _ in range(5)] for well in (True, False)]

    told_nothing = {(run["confidence"], run["confidence_source"]) for run in before}
    assert told_nothing == {(0.8, "assumed")}
    assert {run["p_success"] for run in before} == {None}
    assert {(run["success"], run["confidence_source"]) for run in good + bad} == {(1, "estimated")}
    assert min(run["confidence"] for run in good) > 0.6
    assert max(run["confidence"] for run in bad) < 0.4
    assert all(run["p_success"] == run["confidence"] for run in good + bad)
    assert min(run["rank_key"] for run in good) > max(run["rank_key"] for run in bad)


def test_a_run_like_those_that_failed_is_less_likely_a_success(kp, stored):
    def put(task):
        trace = ReasoningTrace.of(task, [Step(step_id=0, type="thought", content="Done.")])
        kp.submit(trace)
        return trace.id

    for number in range(20):
        kp.feedback(put(f"Task {number % 2}"), success=number % 2 == 0)

    good, bad = (stored(put(task))["p_success"] for task in ("Task 0", "Task 1"))

    assert good > 0.5 > bad


def test_what_the_agent_says_is_not_replaced(kp, submit, stored):
    teach(kp, submit)

    sure = stored(submit(well=False, confidence=0.9))
    failed = stored(submit(well=True, success=False))

    assert (sure["confidence"], sure["confidence_source"]) == (0.9, "said")
    assert (failed["success"], failed["success_source"]) == (0, "said")
    assert failed["confidence_source"] != "estimated"
    assert failed["p_success"] == 0


def test_neither_another_kind_of_run_nor_one_where_it_is_off_is_estimated(
    kp, submit, stored, pulse
):
    teach(kp, submit)
    off = pulse(sync=True, threshold="top 20%", estimate="off")

    runs = [stored(submit(well=True, domain="retail")), stored(submit(well=True, through=off))]

    assert [(run["p_success"], run["confidence_source"]) for run in runs] == [(None, "assumed")] * 2


def test_an_answer_counts_for_the_next_200_runs_however_late_it_comes(kp, submit, stored):
    first = submit(well=True)
    for _ in range(205):
        submit(well=True)

    kp.feedback(first, success=True)

    later = [stored(submit(well=True, began="2024-05-15T15:00:00Z")) for _ in range(201)]
    assert [run["confidence_source"] for run in later] == 200 * ["estimated"] + ["assumed"]


def test_what_is_reported_afterwards_replaces_what_was_estimated(kp, submit, stored):
    teach(kp, submit)
    name = submit(well=False)

    kp.feedback(name, success=True)

    run = stored(name)
    assert (run["success"], run["success_source"], run["confidence"]) == (1, "feedback", 0.8)


def test_rescoring_estimates_anew_from_what_is_known_today(pulse, stored, db):
    off = pulse(sync=True, threshold="top 20%", estimate="off")
    runs = [trace_of(well=number % 2 == 0) for number in range(40)]
    [off.submit(run) for run in runs]
    [off.feedback(run.id, success=at % 2 == 0) for at, run in enumerate(runs[:20])]
    off.close()

    foreseen = rescore(db, StandInEmbedder(), dry_run=True, threshold="top 20%").counts
    assert {stored(run.id)["p_success"] for run in runs} == {None}
    assert rescore(db, StandInEmbedder(), threshold="top 20%").counts == foreseen

    rest = [stored(run.id) for run in runs[20:]]
    assert min(run["p_success"] for run in rest[::2]) > 0.6
    assert max(run["p_success"] for run in rest[1::2]) < 0.4
    assert all(run["p_success"] == run["confidence"] for run in rest)
    assert {run["confidence_source"] for run in rest} == {"estimated"}
    assert rescore(db, StandInEmbedder(), threshold="top 20%").counts == {"unchanged": 40}

    rescore(db, StandInEmbedder(), threshold="top 20%", estimate="off")
    without = [stored(run.id) for run in runs[20:]]
    told = {(run["p_success"], run["confidence"], run["confidence_source"]) for run in without}
    assert told == {(None, 0.8, "assumed")}


def test_rescoring_moves_a_choice_from_one_run_to_another(pulse, submit, column, db):
    LUCK.seed(2)
    kp = pulse(sync=True, threshold="top 25%")
    put = partial(submit, through=kp)
    first = [(well, put(well=well, confidence=0.3)) for well in [True, False] * 5]
    _, refuted = put(well=False, confidence=1.0), put(well=True, confidence=0.2)
    assert column("chosen")[-2:] == [1, 0]

    for well, trace_id in first:
        kp.feedback(trace_id, success=well)
    kp.feedback(refuted, success=False)  # withheld either way, and the credit after it is equal
    rescore(db, StandInEmbedder(), threshold="top 25%")

    assert column("chosen")[-2:] == [0, 1]


def test_the_document_that_leaves_says_the_confidence_that_was_scored(
    pulse, sending, submit, registry, stored
):
    kp = pulse(sync=True, **{**sending, "threshold": 0.3})
    teach(kp, partial(submit, through=kp))
    name = submit(well=True, through=kp)
    kp.flush()

    sent, run = registry.documents[name], stored(name)
    assert sent.outcome.confidence == run["confidence"] == run["p_success"]
    assert "estimated" not in sent.model_dump_json()


def test_the_document_that_leaves_marks_what_nobody_has_said(pulse, sending, registry):
    kp = pulse(sync=True, **sending)

    @kp.capture
    def answer(success):
        current_trace().thought("42")
        if success is not None:
            current_trace().outcome("42", success=success)

    [answer(success) for success in (None, True)]
    kp.flush()

    found = [one.metadata for one in registry.documents.values()]
    assert {(one.success, one.success_source) for one in found} == {(True, "assumed"), (True, None)}


def test_an_assumed_success_that_is_confirmed_before_it_leaves_is_one(
    pulse, stored, connection, type_command, monkeypatch
):
    kp = pulse(sync=True, threshold=0.1, registry_url="http://127.0.0.1:9", api_key="kp_x")
    trace = trace_of(well=True)
    assumed = trace.metadata.model_copy(update={"success_source": "assumed"})
    kp.submit(trace.model_copy(update={"metadata": assumed}))
    assert stored(trace.id)["success_source"] == "assumed"

    kp.close()
    monkeypatch.setenv("KP_THRESHOLD", "0.1")
    type_command("feedback", trace.id, "--success")

    [(body,)] = connection.execute("SELECT body FROM outbox")
    assert "success_source" not in json.loads(body)["metadata"]


def test_runs_from_before_the_estimate_do_not_make_each_run_solve_again(pulse, submit, monkeypatch):
    off = pulse(sync=True, threshold="top 20%", estimate="off")
    [submit(well=True, through=off) for _ in range(30)]
    kp = pulse(sync=True, threshold="top 20%")
    teach(kp, partial(submit, through=kp), 40)
    solved = []
    monkeypatch.setattr(
        "numpy.array_split", lambda *of, split=np.array_split: (solved.append(1), split(*of))[1]
    )

    [submit(well=True, through=kp) for _ in range(8)]

    assert len(solved) / 2 <= 4  # after the last label, and when a twentieth more was seen
