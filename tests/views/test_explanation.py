import re
from contextlib import closing
from dataclasses import replace

import pytest
from hand_made import put, run, scored, step
from hypothesis import given
from hypothesis import strategies as st
from terminal import typed

from kp_middleware.core.formula import (
    PROFILES,
    SIGNALS,
    Parts,
    Signals,
    fired_rules,
    measure,
)
from kp_middleware.database import connect
from kp_middleware.storage import History, OutboxTable
from kp_middleware.views.explanation import remedy, shape_of
from kp_middleware.views.trace import ScoreLine, added_up, arithmetic, delivery_status
from kp_middleware.views.wording import one_line


@pytest.fixture
def shown(agent, db):
    """A run of the agent on one question, as it is read from the file."""

    def show():
        agent("one")
        with History.open(db) as history:
            return history.run(history.find("@last"))

    return show


@pytest.fixture
def item(shown, db):
    """The outbox item of the last run, changed like this."""

    def put(**facts):
        run = shown()
        with closing(connect(db)) as connection:
            table = OutboxTable(connection, registry="r", agent_id=None)
            table.add(run.seq, b"{}", redactor="x", redactions={})
        with History.open(db) as history:
            return replace(run, outbox=replace(history.run(run.seq).outbox, **facts))

    return put


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
    st.sampled_from([(0.2, 0.25, 0.1, 0.45), (0.2, 0.3, 0.3, 0.2), (1 / 3, 1 / 3, 1 / 6, 1 / 6)]),
    st.lists(st.sampled_from([-0.1, 0.1]), max_size=2),
)
def test_amounts_as_they_are_printed_add_up_to_the_score_as_it_is_printed(values, weights, rules):
    products = [value * weight for value, weight in zip(values, weights, strict=True)]
    score = sum(products) + sum(rules)
    lines = [ScoreLine("", "", amount) for amount in (*products, *rules, score)]

    *parts, total = added_up(lines)

    printed = [round(1000 * line.amount) for line in parts]
    assert sum(printed) == round(1000 * total.amount) == round(1000 * score)
    assert all(
        abs(line.amount - exact.amount) < 0.001 for line, exact in zip(parts, lines, strict=False)
    )


def test_where_the_score_was_clamped_each_amount_is_rounded_by_itself():
    lines = [ScoreLine("", "", amount) for amount in (0.7004, 0.4006, 1.0)]

    assert [line.amount for line in added_up(lines)] == [0.7, 0.401, 1.0]


def test_without_a_score_there_is_no_sum(shown):
    assert added_up([]) == arithmetic(replace(shown(), scoring=None)) == []


def test_each_signal_is_shown_times_its_weight_and_each_rule_by_name(shown):
    lines = arithmetic(shown())

    assert [line.part for line in lines] == [
        "complexity",
        "novelty",
        "tool_diversity",
        "outcome_confidence",
        "single_tool",
        "score",
    ]
    assert lines[3].working == "0.900 × 0.20"
    assert sum(line.amount for line in lines[:-1]) == pytest.approx(lines[-1].amount)


def test_novelty_says_what_it_was_compared_with(shown):
    first, repeated = shown(), shown()
    unmeasured = replace(first, scoring=replace(first.scoring, embedder=None))

    told = [arithmetic(run)[1].working for run in (first, repeated, unmeasured)]

    assert "nothing to compare with yet" in told[0]
    assert "1.000 like " in told[1]
    assert "not measured" in told[2]


def test_the_score_is_held_against_the_threshold(shown):
    run = shown()
    below = replace(run, scoring=replace(run.scoring, score=0.5, threshold=0.75))

    assert arithmetic(below)[-1].working == "is below 0.75 by 0.250"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "recorded"}, "not scored yet"),
        ({"state": "incomplete", "error_type": "CancelledError"}, "CancelledError"),
        ({"state": "failed", "reason": "NaN"}, "kept here: NaN"),
        ({"state": "scored", "reason": "below"}, "kept here: below"),
    ],
    ids=["recorded", "incomplete", "failed", "withheld"],
)
def test_it_is_said_why_a_trace_stayed(shown, change, words):
    assert words in delivery_status(replace(shown(), **change))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"state": "sent", "sent_at": "now", "remote_id": "x"}, "sent to r at now as x"),
        ({"state": "pending", "last_error": "500"}, "waits to be sent to r after 500"),
        ({"state": "rejected", "reason": "steps"}, "rejected: steps"),
    ],
    ids=["sent", "pending", "rejected"],
)
def test_it_is_said_where_a_trace_went(item, facts, words):
    assert words in delivery_status(item(**facts))


def test_a_person_reads_the_question_the_sum_the_way_and_the_steps(agent, db):
    agent("one")

    text = typed("--db", str(db), "show", "@last")

    assert text.startswith("one\nkp:trace:")
    assert "  score  " in text
    assert "→ kept here: score 0." in text
    assert "   0  Agent" in text
    assert text.endswith("result: ONE\n")


def test_signs_that_join_others_are_left_and_those_that_steer_are_not():
    family, persian = "\U0001f469\u200d\U0001f467", "\u0645\u06cc\u200c\u062e\u0648"

    assert one_line(f"{family} {persian} \x1b\u202e") == f"{family} {persian} ??"


UNIT = st.floats(0, 1)
THRESHOLDS = UNIT | st.sampled_from([0.1, 0.5, 0.6, 0.7, 0.75, 0.8])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run as it is read from a file."""
    db = tmp_path_factory.mktemp("remedies") / "kp.db"
    made = run("Book", step("thought"), step("tool_call", "search"))
    seq = put(db, made, scored(made))
    with closing(connect(db, read_only=True)) as connection:
        return History(connection).run(seq)


def made(stored, steps, tools, recoveries, confidence, *, success):
    facts = {"step_count": steps, "tool_count": min(tools, steps), "recovery_count": recoveries}
    return replace(stored, **facts, confidence=confidence, success=success)


def parts_of(of, weights, measured):
    """The parts of its score, by the formula; complexity and novelty as they were measured."""
    of_run = measure(shape_of(of), None, of.confidence, success=of.success)
    signals = Signals(*measured, of_run.tool_diversity, of_run.outcome_confidence)
    return Parts(signals, weights, fired_rules(shape_of(of), success=of.success))


@given(
    st.tuples(st.integers(2, 30), st.integers(0, 6), st.integers(0, 4), UNIT),
    st.booleans(),
    st.sampled_from([*PROFILES.values()]),
    st.tuples(UNIT, UNIT),
    THRESHOLDS,
    st.sampled_from(SIGNALS),
)
def test_what_is_named_gives_the_other_verdict(
    stored, counts, success, weights, measured, threshold, signal
):
    of = made(stored, *counts, success=success)
    parts = parts_of(of, weights, measured)
    cleared = parts.score >= threshold

    words = remedy(of, parts, signal, threshold, measured=True)

    if value := re.match(r"(at most )?(\d\.\d{3}) instead of", words):
        score = parts.with_signal(signal, max(0.0, float(value[2]))).score
        assert score < threshold if cleared else score >= threshold - 1e-9
    if tools := re.match(r"(\d+) different tools? instead of", words):
        other = replace(of, tool_count=int(tools[1]))
        assert (parts_of(other, weights, measured).score >= threshold) != cleared
    if confidence := re.search(r"(a|its) confidence of (\d\.\d{3})", words):
        said = of.confidence if confidence[1] == "its" else float(confidence[2])
        outcome = "a failure" not in words if success else "a success" in words
        other = replace(of, confidence=said, success=outcome)
        score = parts_of(other, weights, measured).score
        assert score < threshold if cleared else score >= threshold - 1e-9
    if words.startswith("cannot alone") and signal == "tool_diversity":
        others = [replace(of, tool_count=tools) for tools in range(of.step_count + 1)]
        scores = [parts_of(other, weights, measured).score for other in others]
        assert {score >= threshold for score in scores} == {cleared}
