"""A run is written once as it was recorded, and completed once."""

import json
from contextlib import closing
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_runs import run, scored, tool_step, verdict

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.core.evaluation import Evaluation
from kp_middleware.core.formula import Adjustment, Nearest, Shape
from kp_middleware.database import connect
from kp_middleware.instants import to_milliseconds
from kp_middleware.runs import RecordedRun
from kp_middleware.storage import History, SqliteStore
from kp_middleware.views.trace import run_as_json

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def test_a_run_is_recorded_with_all_that_is_known_of_it(store, history):
    recorded = run(
        "find the fare",
        tool_step("tool_call", "search", input={"q": "fare", "ü": [None]}),
        Step(
            step_id=0, type="observation", tool=Tool(name="search", mcp_server="web"), latency_ms=3
        ),
        domain="travel",
        result_summary="7 euro",
        duration_ms=12,
        error_type="ValueError",
        agent_name="researcher",
        model="gpt-9",
        thread_id="42",
        tags=("nightly", "ü"),
        input_tokens=5,
        output_tokens=2,
        instant="2026-11-01T09:14:03.123456789Z",
    )

    seq = store.record(recorded)

    assert ReasoningTrace.model_validate_json(store.stored(seq).document) == recorded.trace
    row = run_as_json(history.run(seq))
    assert (row["state"], row["started_at"], row["day"]) == (
        "recorded",
        "2026-11-01T09:14:03.123Z",
        "2026-11-01",
    )
    assert (row["objective"], row["result_summary"], row["domain"]) == (
        "find the fare",
        "7 euro",
        "travel",
    )
    assert (row["success"], row["confidence"], row["duration_ms"]) == (1, 0.8, 12)
    assert (row["step_count"], row["tool_count"], row["recovery_count"]) == (2, 1, 0)
    assert (row["error_type"], row["agent_name"], row["model"]) == (
        "ValueError",
        "researcher",
        "gpt-9",
    )
    assert (row["thread_id"], row["tags"]) == ("42", ("nightly", "ü"))
    assert (row["input_tokens"], row["output_tokens"]) == (5, 2)
    assert (row["score"], row["decision"], row["rules"], row["outbox"]) == (None, None, [], None)
    assert row["steps"] == [
        {"step_id": 0, "type": "tool_call", "tool": "search", "input": {"q": "fare", "ü": [None]}},
        {
            "step_id": 1,
            "type": "observation",
            "tool": "search",
            "mcp_server": "web",
            "latency_ms": 3.0,
        },
    ]


def test_a_run_that_comes_again_stays_as_it_was(store, history, keep):
    seqs = [keep("first", id="kp:trace:1"), keep("second", id="kp:trace:1")]
    scored_one = keep(id="kp:trace:2", score=0.5)
    keep(id="kp:trace:2")

    assert seqs[0] == seqs[1]
    assert history.counts().recorded == 2
    assert history.run(seqs[0]).objective == "first"
    assert not store.is_recorded(scored_one)


def test_runs_wait_to_be_scored_oldest_first(store, keep):
    seqs = [keep(score=0.5), keep(), keep(), keep(complete=False)]

    assert store.next_recorded() == seqs[1]
    assert store.next_recorded(seqs[1] + 1) == store.last_recorded() == seqs[2]
    assert store.next_recorded(0, seqs[0]) is None
    assert [store.is_recorded(seq) for seq in seqs] == [False, True, True, False]


def test_a_run_that_was_given_up_or_cannot_be_scored_is_kept_with_the_reason(store, history, keep):
    given_up, failed = keep(complete=False, success=False), keep()

    store.save_evaluation(given_up, Evaluation(scored(), verdict()), took_ms=1)
    store.fail(given_up, "not_scored", "no")
    store.fail(failed, "not_scored", "the vector is NaN")

    row = run_as_json(history.run(given_up))
    assert (row["state"], row["score"]) == ("incomplete", None)
    row = run_as_json(history.run(failed))
    assert (row["state"], row["reason"]) == ("failed", "could not be scored: the vector is NaN")
    assert store.next_recorded() is None


def test_a_score_is_written_with_everything_that_led_to_it(store, history, keep):
    near, seq, other = keep(id="kp:trace:near"), keep(), keep()
    gone = scored(nearest=Nearest("kp:trace:gone", 0.9))
    score = scored(
        0.7,
        adjustments=(Adjustment("many_recoveries", 0.1), Adjustment("single_tool", -0.1)),
        nearest=Nearest("kp:trace:near", 0.25),
        embedder="MiniLM",
    )

    store.save_evaluation(seq, Evaluation(score, verdict("forward", "cleared")), took_ms=1.23456)
    store.save_evaluation(other, Evaluation(gone, verdict()), took_ms=1)

    row = run_as_json(history.run(seq))
    assert (row["state"], row["score"], row["scored_ms"], row["scorer"]) == (
        "scored",
        0.7,
        1.235,
        "test 1",
    )
    assert (row["complexity"], row["novelty"]) == (0.1, 0.2)
    assert (row["tool_diversity_weight"], row["outcome_confidence_weight"]) == (0.3, 0.4)
    assert row["base_score"] == pytest.approx(0.3)
    assert row["rules"] == [
        {"rule": "many_recoveries", "delta": 0.1},
        {"rule": "single_tool", "delta": -0.1},
    ]
    assert (row["nearest_seq"], row["nearest_id"]) == (near, "kp:trace:near")
    assert (row["nearest_similarity"], row["embedder"]) == (0.25, "MiniLM")
    assert (row["gate"], row["threshold"]) == ("threshold 0.75", 0.75)
    assert (row["decision"], row["reason"], row["margin"]) == ("forward", "cleared", -0.05)
    assert store.stored(seq).score == 0.7
    row = run_as_json(history.run(other))
    assert (row["nearest_id"], row["nearest_similarity"]) == ("kp:trace:gone", 0.9)


def test_a_run_is_scored_once_and_does_not_fail_afterwards(store, history, keep):
    seq = keep(score=0.5)

    store.save_evaluation(seq, Evaluation(scored(0.9), verdict()), took_ms=1)
    store.fail(seq, "not_scored", "late")

    assert (store.stored(seq).score, history.run(seq).state) == (0.5, "scored")


def test_the_true_counts_are_kept_of_a_run_that_is_kept_in_part(store):
    shape = Shape(steps=5000, types=frozenset({"thought"}), tools=7, recoveries=3)

    seq = store.record(run(shape=shape))

    assert store.stored(seq)[1:4] == (5000, 7, 3)


@settings(max_examples=40, deadline=None)
@given(
    objective=TEXT.filter(bool),
    inputs=st.dictionaries(TEXT, JSON, max_size=3),
    latency_ms=st.none() | st.floats(0, allow_infinity=False),
)
def test_any_valid_trace_can_be_recorded(objective, inputs, latency_ms):
    times = {} if latency_ms is None else {"latency_ms": latency_ms}
    step = tool_step("tool_call", objective, input=inputs, content=objective, **times)
    trace = ReasoningTrace.of(objective, [step], result_summary=objective)

    with TemporaryDirectory() as folder, closing(connect(f"{folder}/kp.db")) as connection:
        store = SqliteStore(connection, scorer="test 1")
        seq = store.record(RecordedRun(trace=trace, shape=trace.shape))

        assert ReasoningTrace.model_validate_json(store.stored(seq).document) == trace
        [kept] = run_as_json(History(connection).run(seq))["steps"]
        assert kept.get("input") == json.loads(json.dumps(step.input))


@pytest.mark.parametrize(
    ("instant", "kept"),
    [
        ("2026-11-01T09:14Z", "2026-11-01T09:14:00.000Z"),
        ("2026-11-01T09:14:03Z", "2026-11-01T09:14:03.000Z"),
        ("2026-11-01T09:14:03.1Z", "2026-11-01T09:14:03.100Z"),
        ("2026-11-01T09:14:03.1239Z", "2026-11-01T09:14:03.123Z"),
    ],
)
def test_instants_are_kept_so_that_text_sorts_as_time(instant, kept):
    assert to_milliseconds(instant) == kept


def test_that_there_was_no_key_is_forgotten_once_there_is_one(store, history, outbox):
    seq = store.record(run())
    stays = Evaluation(scored(0.9), verdict("forward", "good").with_delivery("no_key"))
    store.save_evaluation(seq, stays, took_ms=1)
    before = history.run(seq).reason

    outbox.add(seq, b"{}", redactor="r", redactions={})

    assert before == "good; not queued: there is no API key"
    assert history.run(seq).reason == "good"
