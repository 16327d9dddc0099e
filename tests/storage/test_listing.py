"""Names and filters of runs."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stored_runs import query_plan, run, tool_step

from kp_middleware.storage import STATES, Filters


@pytest.fixture
def shop(keep):
    """Five traces, the last one not scored."""
    keep("repair the shop", score=0.75, decision="forward", id="kp:trace:a", duration_ms=900)
    keep("count the orders", score=0.2, domain="code", success=False, duration_ms=10_000)
    keep("mend an order", score=0.74996, duration_ms=10_001)  # its margin is 0.0 when rounded
    keep("old news", score=0.8, instant="2024-01-01T00:00:00.000Z", decision="forward")
    keep("unscored", result_summary="the shop is closed")


def objectives(rows):
    return [row.objective for row in rows]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["unscored", "old news", "mend an order", "count the orders", "repair the shop"]),
        ({"above": True}, ["old news", "repair the shop"]),
        ({"above": False}, ["unscored", "mend an order", "count the orders"]),
        ({"domain": "code"}, ["count the orders"]),
        ({"domain": "nobody's"}, []),
        ({"failed": True}, ["count the orders"]),
        ({"slower_ms": 10_000}, ["mend an order", "count the orders"]),
        ({"slower_ms": 10_000.5}, ["mend an order"]),
        ({"since": "2024-01-01T00:00:00.001Z", "above": True}, ["repair the shop"]),
        ({"since": "2024-01-01T00:00:00.000Z", "above": True}, ["old news", "repair the shop"]),
        ({"after": "a", "above": True}, ["old news"]),
        ({"after": "@last"}, []),
        ({"text": "order"}, ["mend an order", "count the orders"]),
        ({"text": "shop"}, ["unscored", "repair the shop"]),
        ({"state": "recorded"}, ["unscored"]),
        ({"text": "order", "failed": True, "domain": "code", "slower_ms": 1}, ["count the orders"]),
        ({"text": "order", "failed": True, "domain": "general"}, []),
    ],
    ids=str,
)
def test_all_that_is_said_must_fit(history, filters, found):
    chosen = Filters(**filters)

    assert sorted(objectives(history.runs(chosen, limit=9))) == sorted(found)
    assert history.count_runs(chosen) == len(found)
    assert objectives(history.runs_at(history.seqs(chosen))) == found[::-1]


def test_of_the_equally_near_the_newest_comes_first(history, keep):
    [keep(str(number), score=0.5) for number in range(3)]
    [keep(str(number), score=1.0) for number in range(3, 5)]

    assert objectives(history.runs(Filters(), limit=4, near=True)) == ["4", "3", "2", "1"]


def test_a_tool_is_found_whatever_was_told_of_it(history, store):
    store.record(run("called", tool_step("tool_call", "search"), tool_step("tool_call", "search")))
    store.record(run("failed", tool_step("error_recovery", "search")))
    store.record(run("another", tool_step("tool_call", "search2")))

    assert objectives(history.runs(Filters(tool="search"), limit=9)) == ["failed", "called"]


def test_a_state_is_what_the_view_calls_it_and_there_is_no_other(history, queue, keep, connection):
    for state in ("pending", "sending", "sent", "rejected", "blocked", "cancelled"):
        queue(objective=state, state=state)
    for state in ("recorded", "paused", "incomplete", "failed"):
        connection.execute("UPDATE traces SET state = ? WHERE seq = ?", (state, keep(state)))
    keep("withheld", score=0.1)
    keep("not queued", score=0.9, decision="forward")

    for state in STATES:
        rows = history.runs(Filters(state=state), limit=99)
        assert [(row.objective, row.state) for row in rows] == [(state, state)]
    named = connection.execute("SELECT DISTINCT state FROM history ORDER BY state").fetchall()
    assert named == [(state,) for state in STATES]


def test_words_of_steps_are_found_after_those_of_objectives(history, store, keep):
    steps = tool_step(
        "observation", "book_seat", input={"cabin": "basic economy"}, output_summary="No aisle."
    )
    store.record(run("fly", steps))
    keep("an aisle seat")

    assert objectives(history.runs(Filters(text='"basic economy"'), limit=9)) == ["fly"]
    assert objectives(history.runs(Filters(text="book_seat"), limit=9)) == ["fly"]
    assert objectives(history.runs(Filters(text="aisle"), limit=9)) == ["an aisle seat", "fly"]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("order count", ["count the orders"]),
        ("ORDERS", ["count the orders", "mend an order"]),
        ("côunt", ["count the orders"]),
        ("order OR news", ["count the orders", "mend an order", "old news"]),
        ("order NOT count", ["mend an order"]),
        ("ord*", ["count the orders", "mend an order"]),
        ('"the orders"', ["count the orders"]),
        ('"orders the"', []),
        ("result_summary:shop", ["unscored"]),
        ("the-orders", ["count the orders"]),
        ('count "orders', ["count the orders"]),
        ("count: orders?", ["count the orders"]),
        ("(count the", ["count the orders"]),
        ("*", []),
        ("* count", ["count the orders"]),
        ("count *** orders", ["count the orders"]),
        ("", []),
        ("AND", []),
        ("\udcff count", ["count the orders"]),
        ("count\x00orders", ["count the orders"]),
    ],
    ids=ascii,
)
def test_a_text_is_taken_as_fts5_reads_it_or_word_by_word(history, text, found):
    rows = history.runs(Filters(text=text), limit=9)

    assert sorted(objectives(rows)) == found
    assert history.count_runs(Filters(text=text)) == len(found)


@given(text=st.text(st.sampled_from("ab\"'*:^-+(){}[],. \x00\ud800é😀\\") | st.characters()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(text="\ud800←")
def test_no_text_is_an_error(history, text):
    assert history.runs(Filters(text=text), limit=1) == []


def test_a_score_of_0_is_one_and_none_is_none(history, keep):
    keep("zero", score=0.0)
    keep("none")

    assert [row.score for row in history.runs(Filters(), limit=9)] == [None, 0.0]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    "filters",
    [
        *({"state": state} for state in STATES),
        *({}, {"above": True}, {"domain": "code"}, {"tool": "x"}, {"failed": True}, {"text": "x"}),
        {"domain": "code", "tool": "x", "text": "x", "since": "2024", "after": "a"},
    ],
    ids=str,
)
def test_steps_and_documents_are_never_read_from_end_to_end(connection, history, filters):
    def list_both_ways():
        for chosen in (Filters(**filters), Filters(**{"text": "x", **filters})):
            history.runs(chosen, limit=9)
            history.runs(chosen, limit=9, near=True)

    steps = query_plan(connection, list_both_ways)

    assert not {step for step in steps if step.startswith(("SCAN steps", "SCAN d", "SCAN o"))}


def test_the_outcome_of_a_run_that_waits_or_was_interrupted_is_not_known(history, keep, connection):
    runs = [
        ("waits", "paused", "assumed"),
        ("was interrupted", "incomplete", "assumed"),
        ("gave up", "incomplete", "said"),
        ("went wrong", "scored", "said"),
    ]
    for name, *ending in runs:
        connection.execute(
            "UPDATE traces SET success = 0, state = ?, success_source = ? WHERE seq = ?",
            (*ending, keep(name)),
        )

    failed = history.runs(Filters(failed=True), limit=9)
    unknown = history.runs(Filters(outcome="not known"), limit=9)

    assert objectives(failed) == ["went wrong", "gave up"]
    assert [(row.objective, row.known_success) for row in unknown] == [
        ("was interrupted", None),
        ("waits", None),
    ]
    assert history.run(history.find(unknown[0].id)).known_success is None
    assert history.count_runs(Filters(failed=True)) == 2
