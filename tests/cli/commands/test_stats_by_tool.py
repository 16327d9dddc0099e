"""``stats --by tool``."""

from contextlib import closing

import pytest
from sample_runs import put, run, step
from terminal import typed

from kp_middleware.database import connect
from kp_middleware.storage import History


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


@pytest.mark.usefixtures("traces")
def test_calls_failures_traces_and_times_are_counted(as_json):
    assert as_json("stats", "--by", "tool") == [
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
    assert as_json("stats", "--by", "tool", "-d", "code") == [
        {"tool": "grep", "calls": 1, "failures": 0, "traces": 1, "mean_ms": 20, "max_ms": 20}
    ]
    assert [row["tool"] for row in as_json("stats", "--by", "tool", "-n", "1")] == ["grep"]


@pytest.mark.usefixtures("traces")
def test_it_reads_nothing_but_the_index(db):
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
def test_a_person_sees_whole_milliseconds_and_what_takes_less_takes_some_time(db, type_command):
    put(db, run("three", step("tool_call", "look"), step("observation", "look", latency_ms=0.3)))

    lines = typed("--db", str(db), "stats", "--by", "tool").splitlines()

    words = {line.split()[-1]: line.split()[:-1] for line in lines}
    assert words["grep"] == ["3", "1", "2", "20", "ms", "30", "ms"]
    assert words["look"] == ["1", "0", "1", "<1", "ms", "<1", "ms"]
    assert type_command("stats", "--by", "tool", "-d", "nope").stderr == "nothing matches\n"


def test_numbers_read_the_same_wherever_they_stand(db):
    calls = [step("tool_call", "crawl")] * 1200
    put(db, run("all of it", *calls, step("observation", "crawl", latency_ms=12_345.6)))

    printed = [
        typed("--db", str(db), *words.split(), columns=120)
        for words in ("stats", "stats --by tool", "show @last --steps 1201")
    ]

    assert all("12.3 s" in lines for lines in printed)
    assert all("12345" not in lines for lines in printed)
    assert all("1,200" in lines for lines in printed[:2])
    year = "SELECT 2026 AS year, 'x' AS x"
    assert "2026 " in typed("--db", str(db), "sql", year)
