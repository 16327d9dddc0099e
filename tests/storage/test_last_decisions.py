"""The gate's decisions on recent runs, with advice if none passes."""

from contextlib import closing

import pytest
from stored_runs import run, scored

from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.database import connect, transaction
from kp_middleware.storage import SqliteStore

DAY_S = 86_400
BELOW = ReasonCode.BELOW_THRESHOLD


@pytest.fixture
def decide(store, connection):
    """Scores runs, and lets the gate say so of each."""

    def put(
        *values, domain="code", gate="threshold 0.75", decision="withhold", reason=BELOW, **args
    ):
        verdict = Verdict(gate, 0.75, decision, Reason(reason, args))
        with transaction(connection):
            for value in values:
                seq = store.record(run(domain=domain))
                store.save_evaluation(seq, Evaluation(scored(value), verdict), took_ms=1)

    return put


@pytest.fixture
def words(history):
    return lambda: history.last_decisions().in_words()


def test_where_none_of_100_cleared_the_remedy_is_reported_with_what_the_best_reach(decide, words):
    decide(*(place / 200 for place in range(99)))

    assert words() == "0 of the last 99 scored runs cleared the gate (threshold 0.75)"

    decide(0.495)

    assert words() == (
        "none of the last 100 scored runs cleared the gate (threshold 0.75): the best scored 0.495,"
        ' the best tenth at least 0.450; KP_THRESHOLD="top 10%", or threshold="top 10%" in the'
        " program, lets the best tenth of each domain through; kp-middleware calibrate shows what"
        " each setting would do"
    )


def test_where_gates_changed_the_last_is_not_said_to_have_decided_on_all(decide, words):
    decide(*[0.1] * 98)
    decide(0.1, gate="threshold 0.655")
    changed = "scored runs cleared their gate; the last was threshold 0.655"

    assert words().startswith(f"0 of the last 99 {changed}")

    decide(0.1, gate="threshold 0.655")

    assert words().startswith(f"none of the last 100 {changed}")


@pytest.mark.parametrize(("at", "is_dry"), [(0, True), (1, False)])
def test_the_last_100_runs_with_a_score_count_and_no_more(decide, keep, history, at, is_dry):
    decide(*[0.1] * at)
    decide(0.9, decision="forward")
    keep()
    decide(*[0.1] * (100 - at))

    assert history.last_decisions().is_dry == is_dry


@pytest.mark.parametrize(("shared", "is_dry"), [(50, False), (51, True)])
def test_where_half_are_private_and_so_never_sent_no_gate_keeps_them(
    decide, connection, history, store, shared, is_dry
):
    decide(*[0.1] * 100)
    connection.execute("UPDATE traces SET visibility = 'private' WHERE seq > ?", (shared,))

    assert history.last_decisions().is_dry == is_dry
    assert bool(store.forwarding_warning(1.0)) == is_dry


def test_domains_of_ten_runs_or_more_are_told_apart(decide, words):
    decide(*[0.25] * 60)
    decide(*[0.5] * 31, domain="chat\n")
    decide(*[0.7] * 9, domain="law")

    assert "the best tenth at least 0.500 ('code' 0.250, 'chat\\n' 0.500);" in words()


@pytest.mark.parametrize(
    ("gate", "reason", "remedy"),
    [
        ("threshold 0.1", ReasonCode.DAILY_LIMIT, "hit max_per_day: raise it"),
        ("every other", ReasonCode.GATE_FAILED, "the gate raises errors: see"),
        ("top 10%", ReasonCode.WARMING_UP, "nothing to do"),
        ("top 10%", ReasonCode.BELOW_SHARE, "a larger share lets more through"),
        ("every other", ReasonCode.CUSTOM, "your program uses a custom gate"),
        ("top secret rule", ReasonCode.CUSTOM, "your program uses a custom gate"),
    ],
)
def test_the_remedy_is_that_of_the_gate_whatever_a_user_s_gate_says(
    decide, words, gate, reason, remedy
):
    odd = (
        {"words": "legal says no, but max_per_day = unknown"} if reason == ReasonCode.CUSTOM else {}
    )
    decide(*[0.5] * 100, gate=gate, reason=reason, **odd)

    assert remedy in words()
    assert "KP_THRESHOLD" not in words()
    assert ("max_per_day" in words()) == (reason == ReasonCode.DAILY_LIMIT)


def test_a_full_day_is_named_before_all_that_a_setting_of_the_gate_could_mend(decide, words):
    decide(*[0.5] * 95, gate="top 10%", reason=ReasonCode.BELOW_SHARE)
    decide(*[0.9] * 5, gate="top 10%", reason=ReasonCode.DAILY_LIMIT)

    assert "5 scored high enough but hit max_per_day: raise it" in words()


def test_an_empty_file_says_so(words):
    assert words() == "no run is scored yet"


@pytest.mark.parametrize(
    ("later_s", "again"), [(DAY_S - 1, False), (DAY_S + 1, True), (-1, True)], ids=str
)
def test_it_is_to_be_said_once_a_day_for_all_who_share_the_file(store, decide, db, later_s, again):
    decide(*[0.1] * 100)
    now_s = 1.7e9

    assert store.forwarding_warning(now_s)
    with closing(connect(db)) as another:
        assert bool(SqliteStore(another).forwarding_warning(now_s + later_s)) == again
