"""Explanations of a run, its score and its decision agree with the formula and the gate."""

import re
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_runs import put, run, scored, step
from terminal import typed

import kp_middleware.views.wording
from kp_middleware import Decision, KnowledgePulse, ReasoningTrace, Step
from kp_middleware.core.formula import PROFILES, SIGNALS, ScoreParts, Signals, fired_rules, measure
from kp_middleware.database import connect
from kp_middleware.storage import History, OutboxTable
from kp_middleware.views.explanation import explain_score, remedy, shape_of
from kp_middleware.views.trace import (
    arithmetic,
    delivery_status,
    gate_in_words,
    markdown,
    run_as_json,
)
from kp_middleware.views.wording import one_line
from kp_middleware.web.pages import FullRun, trace_html
from kp_middleware.web.trace_map import SimilarRuns


@pytest.fixture
def shown(agent, db):
    """A run of the agent on one question, as it is read from the file."""

    def show():
        agent("one")
        with History.open(db) as history:
            return history.run(history.find("@last"))

    return show


def test_without_a_score_there_is_no_sum(shown):
    assert arithmetic(replace(shown(), scoring=None)) == []


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

    assert "no earlier run" in told[0]
    assert "1.000 like " in told[1]
    assert "no embedding model" in told[2]


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
def test_it_is_said_where_a_trace_went(shown, db, facts, words):
    run = shown()
    with closing(connect(db)) as connection:
        table = OutboxTable(connection, registry="r", agent_id=None)
        table.add(run.seq, b"{}", redactor="x", redactions={})
        item = History(connection).run(run.seq).outbox

    assert words in delivery_status(replace(run, outbox=replace(item, **facts)))


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
    return ScoreParts(signals, weights, fired_rules(shape_of(of), success=of.success))


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

    words = remedy(parts, signal, threshold)

    if value := re.match(r"(at most )?(\d\.\d{3}) instead of", words):
        score = parts.with_signal(signal, max(0.0, float(value[2]))).score
        assert score < threshold if cleared else score >= threshold - 1e-9
    if words.startswith("not enough by itself"):
        scores = [parts.with_signal(signal, value).score for value in (0.0, 1.0)]
        assert {score >= threshold for score in scores} == {cleared}


@pytest.mark.parametrize(
    ("call", "words"),
    {
        'one_line("first\\n\\x1b[2Jsecond")': "first ?[2Jsecond",
        'counted(1, "step"), counted(1200, "step")': ("1 step", "1,200 steps"),
        "outcome(True), outcome(None)": ("succeeded", "not known"),
        'in_words({"email": 2, "api_key": 1, "phone": 0})': "2 email, 1 api_key",
        "short_bar(0.75), short_bar(0.778798)": ("0.75", "0.779"),
        "distance(-0.25), distance(0.69999 - 0.7), distance(0)": ("0.250", "0.00001", "0.000"),
        "percent(8, 165), percent(1, 100_000), percent(0, 0)": ("4.8%", "<0.1%", "0%"),
        "percent(99_999, 100_000), percent(48, 600)": (">99.9%", "8.0%"),
        "duration(0.4), duration(242.2)": ("<1\xa0ms", "242\xa0ms"),
        "duration(4200), duration(754_000)": ("4.2\xa0s", "12\xa0min 34\xa0s"),
        'day("2026-11-01"), day("2026-11-01", year=False)': ("1 Nov 2026", "1 Nov"),
        'minute("2026-11-01T12:30:59.123Z")': "2026-11-01 12:30",
        'shortened("Find the invoice", 10), shortened(" ", 10)': ("Find the …", "(no objective)"),
        "signed(0.1), signed(1234, 0)": ("+0.100", "+1,234"),
        'short_id("kp:trace:1339c01f-d20b-469c-90a1-9b4f1b03419e")': "1339c01f",
        'cut("as it is", 8), cut("longer than that", 8)': ("as it is", "longer…"),
    }.items(),
)
def test_numbers_days_and_texts_are_written_so_that_people_read_them(call, words):
    assert eval(call, vars(kp_middleware.views.wording)) == words


@pytest.fixture
def decided(db):
    """Submits runs of these confidences; returns the rows of all traces."""

    steps = [Step(step_id=0, type="thought", content="x"), Step(step_id=1, type="observation")]

    def submit(confidences, **settings):
        with KnowledgePulse(db=db, embedder=None, sync=True, **settings) as kp:
            for confidence in confidences:
                facts = {"domain": "medical", "confidence": confidence}
                kp.submit(ReasoningTrace.of("Ask", steps, **facts))
        with closing(connect(db, read_only=True)) as connection:
            return [History(connection).run(seq + 1) for seq in range(len(confidences))]

    return submit


@pytest.fixture
def why(db):
    """Return the output of `show --why` for a trace."""

    def show(trace, *words):
        command = "--db", str(db), "show", "--why", trace.id, *words
        return " ".join(typed(*command, columns=400).split())

    return show


class Rule:
    """A gate of the user's own, which asks for nothing and answers this."""

    name = "mine"

    def __init__(self, answer):
        self.answer = answer

    def decide(self, score, history):  # noqa: ARG002
        return self.answer


@pytest.mark.parametrize(
    ("confidences", "verdict", "words"),
    [
        ([0.5] * 55 + [0.1], "below_share", "is below"),
        ([0.5] * 55, "tied_with_share", "ties with the last of the best"),
        ([0.1] * 55 + [0.9], "forwarded", "is among the best"),
    ],
    ids=["below", "as good", "among"],
)
def test_a_share_says_how_a_run_ranked(decided, why, confidences, verdict, words):
    trace = decided(confidences, threshold="top 10%")[-1]
    scoring, account = trace.scoring, explain_score(trace)

    ranks = f"rank {scoring.rank_key:.3f} against {scoring.bar:.3f}"
    assert (run_as_json(trace)["verdict"], account.threshold) == (verdict, None)
    assert gate_in_words(trace) == f"top 10%, by {ranks}"
    assert arithmetic(trace)[-1].working == f"ranked by {ranks}"
    assert words in account.other_reason
    assert f"The score alone did not decide: {account.other_reason}." in why(trace)
    assert "with one change" not in why(trace)


def test_a_distance_is_reported_however_small(decided, why, db):
    (below,) = decided([0.1], threshold=0.33751)
    with closing(connect(db)) as connection:
        connection.execute("UPDATE traces SET threshold = score + 0.00001")
        narrowly = History(connection).run(below.seq)

    assert arithmetic(narrowly)[-1].working.endswith(" by 0.00001")
    assert ", 0.00001 below" in why(narrowly)


def test_until_there_are_enough_runs_the_protocol_s_bar_is_reported(decided, why):
    (trace,) = decided([0.1], threshold="top 10%")

    assert run_as_json(trace)["verdict"] == "warming_up"
    assert gate_in_words(trace) == "top 10%, threshold 0.75"
    assert "To reach 0.75 with" in why(trace)
    assert explain_score(trace).threshold == 0.75


def test_what_a_daily_limit_kept_was_not_kept_by_the_bar(decided, why):
    trace = decided([0.9] * 2, threshold=0.1, max_per_day=1)[-1]

    account = explain_score(trace)

    assert (run_as_json(trace)["verdict"], account.cleared) == ("daily_limit", True)
    assert {(one.least, one.remedy) for one in account.signals} == {(None, "")}
    assert "The score alone did not decide: score 0." in why(trace)
    assert "but max_per_day = 1 were forwarded in the last 24 hours." in why(trace)
    assert "with one change" not in why(trace)


def test_a_gate_that_failed_asked_for_nothing_and_another_threshold_can_be_asked_about(
    decided, why, db
):
    (trace,) = decided([0.9], gate=Rule(None))

    account = explain_score(trace)

    assert (trace.reason_code, account.threshold, account.cleared) == ("gate_failed", None, None)
    assert arithmetic(trace)[-1].working == "its gate failed to decide"
    assert "The score alone did not decide: the gate failed: AttributeError." in why(trace)
    assert "threshold" not in typed("--db", str(db), "show", trace.id)
    page = trace_html(FullRun(trace, SimilarRuns()), links=None)
    assert "Gate: mine, which failed to decide." in page
    assert "the threshold of" not in page

    another = explain_score(trace, threshold=0.9)

    assert (another.cleared, another.threshold, another.other_reason) == (False, 0.9, None)
    assert "To reach 0.9 with one change" in why(trace, "--threshold", "0.9")


@pytest.mark.parametrize(
    ("decision", "verdict"), [("withhold", "custom"), ("forward", "forwarded")]
)
def test_a_rule_of_the_user_s_own_may_decide_beside_its_bar(decided, why, decision, verdict):
    bar = 0.0 if decision == "withhold" else 1.0
    (trace,) = decided([0.9], gate=Rule(Decision(decision, "it is Monday", bar)))

    assert run_as_json(trace)["verdict"] == verdict
    assert "The score alone did not decide: it is Monday" in why(trace)


def test_the_gate_is_named_wherever_a_trace_is_shown(decided, db):
    (trace,) = decided([0.9], threshold=0.4, max_per_day=7)

    words = "threshold 0.4, at most 7 a day"
    assert f"  gate: {words}" in typed("--db", str(db), "show", trace.id).splitlines()
    assert f"- gate: `{words}`" in [*markdown(trace, steps=None)]
