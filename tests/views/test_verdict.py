"""What is said of a verdict is true of the gate that gave it."""

from contextlib import closing

import pytest
from terminal import typed

from kp_middleware import Decision, KnowledgePulse, ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.explanation import explain_score
from kp_middleware.views.trace import arithmetic, gate_in_words, markdown, run_as_json
from kp_middleware.web.pages import FullRun, trace_html
from kp_middleware.web.trace_map import SimilarRuns


@pytest.fixture
def decided(db):
    """Submits runs of these confidences; returns the rows of all traces."""

    def submit(confidences, **settings):
        with KnowledgePulse(db=db, embedder=None, sync=True, **settings) as kp:
            for confidence in confidences:
                kp.submit(trace_of(confidence))
        with closing(connect(db, read_only=True)) as connection:
            return [History(connection).run(seq + 1) for seq in range(len(confidences))]

    return submit


def trace_of(confidence):
    steps = [Step(step_id=0, type="thought", content="x"), Step(step_id=1, type="observation")]
    return ReasoningTrace.of("Ask", steps, domain="medical", confidence=confidence)


@pytest.fixture
def told(db):
    """What `show --why` says of a trace, with these options."""

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
        ([0.5] * 55, "tied_with_share", "is only as good as the best"),
        ([0.1] * 55 + [0.9], "forwarded", "is among the best"),
    ],
    ids=["below", "as good", "among"],
)
def test_a_share_says_how_a_run_ranked(decided, told, confidences, verdict, words):
    trace = decided(confidences, threshold="top 10%")[-1]
    scoring, account = trace.scoring, explain_score(trace)

    ranks = f"rank {scoring.rank_key:.3f} against {scoring.bar:.3f}"
    assert (run_as_json(trace)["verdict"], account.threshold) == (verdict, None)
    assert gate_in_words(trace) == f"top 10%, by {ranks}"
    assert arithmetic(trace)[-1].working == f"ranked by {ranks}"
    assert words in account.other_reason
    assert f"The score alone did not decide: {account.other_reason}." in told(trace)
    assert "with one change" not in told(trace)


def test_a_distance_is_told_however_small(decided, told, db):
    (below,) = decided([0.1], threshold=0.33751)
    with closing(connect(db)) as connection:
        connection.execute("UPDATE traces SET threshold = score + 0.00001")
        narrowly = History(connection).run(below.seq)

    assert arithmetic(narrowly)[-1].working.endswith(" by 0.00001")
    assert " by 0.00001." in told(narrowly)


def test_until_there_are_enough_runs_the_protocol_s_bar_is_told(decided, told):
    (trace,) = decided([0.1], threshold="top 10%")

    assert run_as_json(trace)["verdict"] == "warming_up"
    assert gate_in_words(trace) == "top 10%, its bar for this run 0.75"
    assert "To reach 0.75 with" in told(trace)
    assert explain_score(trace).threshold == 0.75


def test_what_a_daily_limit_kept_was_not_kept_by_the_bar(decided, told):
    trace = decided([0.9] * 2, threshold=0.1, max_per_day=1)[-1]

    account = explain_score(trace)

    assert (run_as_json(trace)["verdict"], account.cleared) == ("daily_limit", True)
    assert {(one.least, one.remedy) for one in account.signals} == {(None, "")}
    assert "The score alone did not decide: score 0." in told(trace)
    assert "but max_per_day = 1 were forwarded in the last 24 hours." in told(trace)
    assert "with one change" not in told(trace)


def test_a_gate_that_failed_asked_for_nothing_and_another_threshold_can_be_asked_about(
    decided, told, db
):
    (trace,) = decided([0.9], gate=Rule(None))

    account = explain_score(trace)

    assert (trace.reason_code, account.threshold, account.cleared) == ("gate_failed", None, None)
    assert arithmetic(trace)[-1].working == "its gate failed to decide"
    assert "The score alone did not decide: the gate failed: AttributeError." in told(trace)
    assert "threshold" not in typed("--db", str(db), "show", trace.id)
    page = trace_html(FullRun(trace, SimilarRuns()), links=None)
    assert "Gate: mine, which failed to decide." in page
    assert "the threshold of" not in page

    another = explain_score(trace, threshold=0.9)

    assert (another.cleared, another.threshold, another.other_reason) == (False, 0.9, None)
    assert "To reach 0.9 with one change" in told(trace, "--threshold", "0.9")


@pytest.mark.parametrize(
    ("decision", "verdict"), [("withhold", "custom"), ("forward", "forwarded")]
)
def test_a_rule_of_the_user_s_own_may_decide_beside_its_bar(decided, told, decision, verdict):
    bar = 0.0 if decision == "withhold" else 1.0
    (trace,) = decided([0.9], gate=Rule(Decision(decision, "it is Monday", bar)))

    assert run_as_json(trace)["verdict"] == verdict
    assert "The score alone did not decide: it is Monday" in told(trace)


def test_the_gate_is_named_wherever_a_trace_is_shown(decided, db):
    (trace,) = decided([0.9], threshold=0.4, max_per_day=7)

    words = "threshold 0.4, at most 7 a day"
    assert f"  gate: {words}" in typed("--db", str(db), "show", trace.id).splitlines()
    assert f"- gate: `{words}`" in [*markdown(trace, steps=None)]
