"""The questions people ask of the file."""

import pytest
from stored_runs import run, scored, tool_step, verdict

from kp_middleware import Step
from kp_middleware.core.evaluation import Evaluation
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.storage import SqliteStore, ToolUse


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("abc-1", "kp:trace:abc-1"),
        ("kp:trace:abc-1", "kp:trace:abc-1"),
        ("abd", "kp:trace:abd-3"),
        ("é", "kp:trace:éa"),
        ("@last", "kp:trace:éa"),
        ("@best", "kp:trace:abd-3"),
    ],
)
def test_a_trace_is_found_by_the_beginning_of_its_id(history, keep, name, found):
    keep(id="kp:trace:abc-1", score=0.4)
    keep(id="kp:trace:abc-2", score=0.4)
    keep(id="kp:trace:abd-3", score=0.9)
    keep(id="kp:trace:éa")

    assert history.run(history.find(name)).id == found


def test_of_equal_scores_the_newest_is_the_best(history, keep):
    seqs = [keep(score=0.5), keep(score=0.5), keep()]

    assert history.find("@best") == seqs[1]


def test_a_whole_id_is_found_though_another_begins_with_it(history, keep):
    keep(id="kp:trace:abc")
    keep(id="kp:trace:abcd")

    assert history.run(history.find("abc")).id == "kp:trace:abc"


@pytest.mark.parametrize("name", ["abc-2", "ABC-2", "kp:trace:abc-2x", "abc", "kp:trace:abc"])
def test_a_trace_is_found_by_the_id_of_a_part_of_it(history, keep, connection, name):
    keep(id="kp:trace:abd-1")
    seq = keep(id="kp:trace:abc-1")
    SqliteStore(connection).add_aliases(seq, ["kp:trace:abc-2x", "kp:trace:abc-3"])

    assert history.find(name) == seq


def test_a_beginning_that_parts_of_several_traces_have_is_said_to_mean_several(
    history, keep, connection
):
    first, second = keep(id="kp:trace:abc-1"), keep(id="kp:trace:xyz-1")
    aliases = SqliteStore(connection)
    aliases.add_aliases(first, [f"kp:trace:abc-{number}" for number in range(2, 9)])
    aliases.add_aliases(second, ["kp:trace:abc-9"])

    with pytest.raises(TraceNotFoundError, match=r"there are abc-1, abc-9$"):
        history.find("abc")


@pytest.mark.parametrize("name", ["abc", "kp:trace:abc", "kp:trace:"])
def test_an_id_that_means_several_is_said_to(history, keep, name):
    keep(id="kp:trace:abc-1")
    keep(id="kp:trace:abc-2")

    with pytest.raises(TraceNotFoundError, match=r" is ambiguous: give more"):
        history.find(name)


@pytest.mark.parametrize("name", ["zzz", "%", "_", "@worst", "abc-1x"])
def test_an_id_that_means_none_is_said_to(history, keep, name):
    keep(id="kp:trace:abc-1")

    with pytest.raises(TraceNotFoundError, match=f"no run matches {name}"):
        history.find(name)


def test_no_name_at_all_is_told_what_to_type(history, keep):
    keep()

    with pytest.raises(TraceNotFoundError, match="type the beginning of an id, @last or @best"):
        history.find("")


def test_several_that_are_meant_are_named(history, keep):
    for number in range(7):
        keep(id=f"kp:trace:abc-{number}")

    with pytest.raises(TraceNotFoundError, match=r"there are abc-0, abc-1, abc-2, abc-3, abc-4 …$"):
        history.find("ab")


def test_an_id_in_capitals_is_found(history, keep):
    keep(id="kp:trace:abc-1")

    assert history.run(history.find("ABC")).id == "kp:trace:abc-1"


def test_an_id_that_has_capitals_is_not_taken_for_another(history, keep):
    keep(id="kp:trace:abc")
    keep(id="kp:trace:ABC")

    assert history.run(history.find("ABC")).id == "kp:trace:ABC"


def test_a_name_that_is_none_is_told_with_those_that_there_are(history):
    with pytest.raises(TraceNotFoundError, match=r"matches @lst; .* @last, @best"):
        history.find("@lst")


@pytest.mark.parametrize("name", ["@last", "@best"])
def test_an_empty_history_has_no_last_and_no_best(history, name):
    with pytest.raises(TraceNotFoundError, match=f"there is no run yet for {name}: record a run"):
        history.find(name)


def test_an_empty_history_has_none(history):
    with pytest.raises(TraceNotFoundError, match=r"no run matches a$"):
        history.find("a")


def objectives(rows):
    return [row.objective for row in rows]


def test_the_newest_come_first_and_no_more_than_asked_for(history, keep):
    [keep(name) for name in "abc"]

    assert objectives(history.runs(limit=2)) == ["c", "b"]
    assert history.counts().recorded == 3


def test_a_row_of_the_list_says_where_the_trace_is_and_why(history, outbox, keep):
    keep("recorded")
    keep("withheld", score=0.2)
    keep("waiting", score=0.9, decision="forward")
    outbox.add(keep("queued", score=0.9, decision="forward"), b"{}", redactor="r", redactions={})
    unclean = keep("unclean", score=0.9, decision="forward")
    outbox.add(unclean, None, redactor="r", redactions={}, reason="secret")

    rows = [(row.objective, row.state, row.reason) for row in history.runs(limit=9)]

    assert rows == [
        ("unclean", "blocked", "secret"),
        ("queued", "pending", "below the threshold"),
        ("waiting", "not queued", "below the threshold"),
        ("withheld", "withheld", "below the threshold"),
        ("recorded", "recorded", None),
    ]


def test_a_trace_is_shown_with_its_outbox_row(history, outbox, keep):
    seq = keep(score=0.9, decision="forward")
    outbox.add(seq, b"{}", redactor="rules 1", redactions={"email": 2})

    item = history.run(seq).outbox

    assert (item.state, item.redactor, item.redactions) == ("pending", "rules 1", {"email": 2})


def test_statistics_count_what_was_recorded_scored_and_sent(history, store, outbox, keep):
    store.save_evaluation(
        keep("a", domain="code"), Evaluation(scored(1.0), verdict("forward")), took_ms=1
    )
    store.save_evaluation(keep("b", domain="code"), Evaluation(scored(0.2), verdict()), took_ms=1)
    outbox.add(keep("c", score=0.9, decision="forward"), b"{}", redactor="r", redactions={})

    funnel = history.funnel()
    assert (funnel.recorded, funnel.cleared, funnel.queued, funnel.sent, funnel.blocked) == (
        *(3, 2, 1),
        *(0, 0),
    )
    assert history.groups("domain")[0] == ("code", 2, 1, 0.6, 1.0, 0.2)
    assert [history.scores().reaching(at) for at in (0, 30, 90)] == [3, 2, 2]
    assert [*history.states()] == ["not queued", "pending", "withheld"]


def test_a_tool_s_calls_are_counted_once_whatever_else_is_told_of_it(history, store):
    store.record(
        run(
            "x",
            tool_step("tool_call", "search"),
            tool_step("observation", "search", latency_ms=10),
            tool_step("tool_call", "search"),
            tool_step("error_recovery", "search", latency_ms=20),
            tool_step("tool_call", "fetch"),
            Step(step_id=0, type="thought", content="search"),
        )
    )

    assert history.tools(counts_runs=False) == [
        ToolUse("search", 2, 1, 15.0, 20.0),
        ToolUse("fetch", 1, 0, None, None),
    ]


def test_an_empty_history_has_statistics_too(history):
    assert (history.funnel().recorded, history.groups("domain"), history.tools()) == (0, [], [])
