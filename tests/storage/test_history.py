"""The questions people ask of the file."""

from contextlib import closing

import pytest
from stored_runs import kept, run, tool_step

from kp_middleware import Step
from kp_middleware.database import connect
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.storage import History, SqliteStore, ToolUse


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A file of runs whose ids are alike, some with further ids of their parts."""
    with closing(connect(tmp_path_factory.mktemp("named") / "kp.db")) as connection:
        store = SqliteStore(connection)
        scores = {"abc-1": 0.9, "abc-2": 0.4, "abd-3": 0.9}  # of the best the newest counts
        many = [f"many-{number}" for number in range(7)]
        more = ("whole", "whole-and-more", "case", "CASE", "parts-1", "both-1", "xyz-1", "éa")
        seqs = {
            name: kept(store, id=f"kp:trace:{name}", score=scores.get(name))
            for name in (*scores, *many, *more)
        }
        store.add_aliases(seqs["parts-1"], ["kp:trace:parts-2x", "kp:trace:parts-3"])
        store.add_aliases(seqs["both-1"], [f"kp:trace:both-{number}" for number in range(2, 9)])
        store.add_aliases(seqs["xyz-1"], ["kp:trace:both-9"])
        yield History(connection)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *(("abc-1", "abc-1"), ("kp:trace:abc-1", "abc-1"), ("ABC-1", "abc-1"), ("abd", "abd-3")),
        *(("é", "éa"), ("@last", "éa"), ("@best", "abd-3")),
        *(("whole", "whole"), ("case", "case"), ("CASE", "CASE")),
        *((name, "parts-1") for name in ("parts-2", "PARTS-2", "kp:trace:parts-2x")),
        *((name, "parts-1") for name in ("parts", "kp:trace:parts")),
    ],
    ids=str,
)
def test_a_run_is_found_by_the_beginning_of_its_id_or_of_a_part_s(named, name, found):
    assert named.run(named.find(name)).id == f"kp:trace:{found}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, " is ambiguous: type more") for name in ("abc", "kp:trace:abc", "kp:trace:")),
        ("many", r"Matches: many-0, many-1, many-2, many-3, many-4 …$"),
        ("both", r"Matches: both-1, both-9$"),
        *((name, f"no run matches {name}") for name in ("zzz", "%", "_", "@worst", "abc-1x")),
        ("", "use an id prefix, @last or @best"),
        ("@lst", r"matches @lst; .* @last, @best"),
    ],
)
def test_an_id_that_means_none_or_several_is_reported_with_what_to_do(named, name, words):
    with pytest.raises(TraceNotFoundError, match=words):
        named.find(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, f"there is no run yet for {name}: record a run") for name in ("@last", "@best")),
        ("a", r"no run matches a$"),
    ],
)
def test_an_empty_history_has_none(history, name, words):
    with pytest.raises(TraceNotFoundError, match=words):
        history.find(name)


def test_a_row_of_the_list_says_where_the_run_is_and_why(history, queue, keep):
    keep("recorded")
    keep("withheld", score=0.2)
    keep("waiting", score=0.9, decision="forward")
    queue(objective="queued")
    queue(None, objective="unclean")

    rows = [(row.objective, row.state, row.reason) for row in history.runs(limit=9)]

    assert rows == [
        ("unclean", "blocked", "too_deep at steps[0]"),
        ("queued", "pending", "below the threshold"),
        ("waiting", "not queued", "below the threshold"),
        ("withheld", "withheld", "below the threshold"),
        ("recorded", "recorded", None),
    ]


def test_a_tool_s_calls_are_counted_once_whatever_else_is_reported_of_it(history, store):
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
