"""What tools were used."""

import json

import pytest
from hand_made import put, run, step
from terminal import typed


@pytest.fixture
def traces(db):
    call, back = "tool_call", "observation"
    put(
        db,
        run(
            "one",
            *(step(call, "grep"), step(back, "grep", latency_ms=10)),
            *(step(call, "grep"), step("error_recovery", "grep", latency_ms=30.25)),
            *(step(call, "fetch"), step("thought", content="grep")),
        ),
    )
    put(db, run("two", step(call, "grep"), step(back, "grep", latency_ms=20), domain="code"))


@pytest.fixture
def used(type_command):
    return lambda *words: json.loads(type_command("stats", "--by", "tool", "--json", *words).stdout)


@pytest.mark.usefixtures("traces")
def test_calls_failures_traces_and_times_are_counted(used):
    assert used() == [
        {
            "tool": "grep",
            "calls": 3,
            "failures": 1,
            "traces": 2,
            "mean_ms": pytest.approx(20.083333),
            "max_ms": 30.25,
        },
        {"tool": "fetch", "calls": 1, "failures": 0, "traces": 1, "mean_ms": None, "max_ms": None},
    ]


@pytest.mark.usefixtures("traces")
def test_a_domain_has_its_own_numbers(used):
    assert used("-d", "code") == [
        {"tool": "grep", "calls": 1, "failures": 0, "traces": 1, "mean_ms": 20, "max_ms": 20}
    ]
    assert used("-d", "law") == []


@pytest.mark.usefixtures("traces")
def test_the_most_used_come_first_and_no_more_than_are_wanted(used):
    assert [row["tool"] for row in used("-n", "1")] == ["grep"]


@pytest.mark.usefixtures("traces")
def test_it_reads_nothing_but_the_index(db):
    from contextlib import closing

    from kp_middleware.database import connect
    from kp_middleware.storage import History

    with closing(connect(db, read_only=True)) as connection:
        asked = []
        connection.set_trace_callback(asked.append)
        History(connection).tools(domain="code")
        connection.set_trace_callback(None)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall()

    told = [line[3] for line in plan]
    assert any("steps USING COVERING INDEX steps_tool" in line for line in told)
    assert any("traces USING COVERING INDEX traces_domain" in line for line in told)


@pytest.mark.usefixtures("traces")
def test_a_person_sees_whole_milliseconds(db):
    assert typed("--db", str(db), "stats", "--by", "tool").splitlines()[1].split() == [
        *("3", "1", "2", "20", "ms", "30", "ms", "grep")
    ]


@pytest.mark.usefixtures("traces")
def test_what_takes_less_than_a_millisecond_takes_some_time(db):
    put(db, run("three", step("tool_call", "look"), step("observation", "look", latency_ms=0.3)))

    (told,) = (
        line
        for line in typed("--db", str(db), "stats", "--by", "tool").splitlines()
        if "look" in line
    )

    assert told.split() == ["1", "0", "1", "<1", "ms", "<1", "ms", "look"]


@pytest.mark.usefixtures("traces")
def test_that_no_tool_was_used_is_said(type_command):
    assert type_command("stats", "--by", "tool", "-d", "nope").stderr == "nothing matches\n"


@pytest.fixture
def slow(db):
    """A tool that was called often and took its time."""
    calls = [step("tool_call", "crawl")] * 1200
    put(db, run("all of it", *calls, step("observation", "crawl", latency_ms=12_345.6)))
    return db


@pytest.mark.parametrize(
    "words",
    [("stats",), ("stats", "--by", "tool"), ("show", "@last", "--steps", "1201")],
    ids=" ".join,
)
def test_numbers_read_the_same_wherever_they_stand(slow, words):
    lines = typed("--db", str(slow), *words, columns=120)

    assert "12.3 s" in lines
    assert "12345" not in lines
    assert "1,200" in lines or "show" in words


def test_what_sql_finds_may_be_a_year(slow):
    assert "2026 " in typed("--db", str(slow), "sql", "SELECT 2026 AS year, 'x' AS x")
