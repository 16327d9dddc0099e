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
    told = run(
        "find the fare",
        tool_step("tool_call", "search", input={"q": "fare", "ü": [None]}),
        Step(
            step_id=7, type="observation", tool=Tool(name="search", mcp_server="web"), latency_ms=3
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
        instant="2026-11-01T09:14:03.123456Z",
    )

    row = run_as_json(history.run(store.record(told)))

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


def test_the_document_is_kept_as_it_was_recorded(store):
    told = run(instant="2026-11-01T09:14:03.123456789Z")

    document = store.stored(store.record(told)).document

    assert ReasoningTrace.model_validate_json(document) == told.trace


def test_a_trace_that_is_stored_is_not_stored_again(store, history):
    told = run("first", id="kp:trace:1")
    again = run("second", id="kp:trace:1")

    seqs = store.record(told), store.record(again)

    assert seqs[0] == seqs[1]
    assert history.counts().recorded == 1
    assert history.run(seqs[0]).objective == "first"


def test_a_scored_trace_that_comes_again_stays_scored(store, keep):
    told = run(id="kp:trace:1")
    seq = keep(id="kp:trace:1", score=0.5)

    store.record(told)

    assert not store.is_recorded(seq)


def test_runs_wait_to_be_scored_oldest_first(store, keep):
    seqs = [keep(score=0.5), keep(), keep(), keep(complete=False)]

    assert store.next_recorded() == seqs[1]
    assert store.next_recorded(seqs[1] + 1) == store.last_recorded() == seqs[2]
    assert store.next_recorded(0, seqs[0]) is None
    assert [store.is_recorded(seq) for seq in seqs] == [False, True, True, False]


def test_a_run_that_was_given_up_is_kept_and_not_scored(store, history, keep):
    seq = keep(complete=False, success=False)

    store.save_evaluation(seq, Evaluation(scored(), verdict()), took_ms=1)
    store.fail(seq, "not_scored", "no")

    assert (history.run(seq).state, run_as_json(history.run(seq))["score"]) == (
        "incomplete",
        None,
    )


def test_a_score_is_written_with_everything_that_led_to_it(store, history, keep):
    near = keep(id="kp:trace:near")
    seq = keep()
    score = scored(
        0.7,
        adjustments=(Adjustment("many_recoveries", 0.1), Adjustment("single_tool", -0.1)),
        nearest=Nearest("kp:trace:near", 0.25),
        embedder="MiniLM",
    )

    store.save_evaluation(seq, Evaluation(score, verdict("forward", "cleared")), took_ms=1.23456)

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


def test_a_neighbour_that_is_not_in_the_file_is_known_by_its_id(store, history, keep):
    seq = keep()

    store.save_evaluation(
        seq, Evaluation(scored(nearest=Nearest("kp:trace:gone", 0.9)), verdict()), took_ms=1
    )

    row = run_as_json(history.run(seq))
    assert (row["nearest_id"], row["nearest_similarity"]) == ("kp:trace:gone", 0.9)


def test_a_run_is_scored_once(store, keep):
    seq = keep(score=0.5)

    store.save_evaluation(seq, Evaluation(scored(0.9), verdict()), took_ms=1)

    assert store.stored(seq).score == 0.5


def test_a_run_that_cannot_be_scored_is_kept_with_the_reason(store, history, keep):
    seq = keep()

    store.fail(seq, "not_scored", "the vector is NaN")

    row = run_as_json(history.run(seq))
    assert (row["state"], row["reason"]) == ("failed", "could not be scored: the vector is NaN")
    assert store.next_recorded() is None


def test_a_scored_run_does_not_fail_afterwards(store, history, keep):
    seq = keep(score=0.5)

    store.fail(seq, "not_scored", "late")

    assert history.run(seq).state == "scored"


def test_what_cleared_without_a_key_waits_for_one(outbox, keep):
    queued = keep(score=0.9, decision="forward")
    outbox.add(queued, b"{}", redactor="r", redactions={})
    waiting = keep(score=0.9, decision="forward")
    keep(score=0.9, decision="forward", visibility="private")
    keep(score=0.1)

    assert outbox.next_unqueued(after=0) == waiting
    assert outbox.next_unqueued(after=waiting) is None


def test_a_reason_can_be_replaced(store, history, keep):
    seq = keep(score=0.9, decision="forward")

    store.set_reason(seq, "not_continued")

    assert history.run(seq).reason == "it was not resumed"


def test_the_true_counts_are_kept_of_a_run_that_is_kept_in_part(store):
    shape = Shape(steps=5000, types=frozenset({"thought"}), tools=7, recoveries=3)

    seq = store.record(run(shape=shape))

    assert store.stored(seq)[1:4] == (5000, 7, 3)


def test_steps_with_the_same_number_are_all_kept_in_order(store, history):
    steps = [Step(step_id=5, type="thought", content=text) for text in "ab"]

    seq = store.record(run("x", *steps))

    assert [(s["step_id"], s["content"]) for s in run_as_json(history.run(seq))["steps"]] == [
        (0, "a"),
        (1, "b"),
    ]


@pytest.mark.parametrize(
    ("word", "found"),
    [("fares", 1), ("FARE", 1), ("zurich", 1), ("euros", 1), ("train", 0)],
    ids=["stem", "case", "no accent", "in the result", "not there"],
)
def test_a_run_is_found_by_its_words(connection, keep, word, found):
    keep("find the fare to Zürich", result_summary="seven euro")
    keep("bake bread")

    rows = connection.execute(
        "SELECT t.objective FROM traces_fts JOIN traces t ON t.seq = traces_fts.rowid"
        " WHERE traces_fts MATCH ?",
        (word,),
    ).fetchall()

    assert rows == [("find the fare to Zürich",)] * found


def test_a_deleted_run_takes_all_that_is_its_own_with_it(connection, outbox, keep):
    seq = keep("find the fare", score=0.9, decision="forward")
    outbox.add(seq, b"{}", redactor="r", redactions={})

    connection.execute("DELETE FROM traces WHERE seq = ?", (seq,))

    left = [
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("steps", "documents", "outbox", "asked", "traces_fts", "asked_fts")
    ]
    assert left == [0] * 6
    for words in ("traces_fts", "asked_fts"):
        connection.execute(f"INSERT INTO {words}({words}) VALUES ('integrity-check')")


def test_another_process_reads_what_was_recorded(db, keep):
    seq = keep("find the fare")

    with closing(connect(db, read_only=True)) as reader:
        assert History(reader).run(seq).objective == "find the fare"
        assert History(reader).counts().unscored == 1


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
