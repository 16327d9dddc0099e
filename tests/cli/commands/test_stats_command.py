from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value
from terminal import typed

from kp_middleware.database import connect


@pytest.fixture
def history(db):
    """Traces of two models, two domains and two weeks; one is not scored."""
    for value, domain, model, instant in (
        (0.9, "code", "gpt-9", "2026-11-01T10:00:00Z"),  # a Sunday
        (0.3, "code", "gpt-9", "2026-11-02T10:00:00Z"),
        (0.5, "law", "claude", "2026-11-08T10:00:00Z"),
    ):
        steps = [step("tool_call", "search", latency_ms=2), step("error_recovery", "search")]
        made = run("one", *steps, domain=domain, instant=instant, model=model)
        put(db, made, with_value(value))
    put(db, run("waits", step("thought"), domain="law", instant="2026-11-09T10:00:00Z"))


@pytest.mark.usefixtures("history")
def test_keys_stay_what_they_are(as_json):
    numbers = as_json("stats")

    assert [*numbers] == [
        "recorded", "cleared", "queued", "sent", "blocked", "rejected", "private",
        "if_not_private", "domains", "scores", "states", "gates", "tools",
    ]  # fmt: skip
    assert numbers["domains"][0] == {
        "domain": "code",
        "traces": 2,
        "cleared": 1,
        "mean_score": 0.6,
        "best_score": 0.9,
        "mean_novelty": 0.6,
    }
    assert numbers["states"] == [
        {"state": "withheld", "traces": 2},
        {"state": "not queued", "traces": 1},
        {"state": "recorded", "traces": 1},
    ]
    assert numbers["scores"] == [
        {"at_least": 0.3, "traces": 1},
        {"at_least": 0.5, "traces": 1},
        {"at_least": 0.9, "traces": 1},
    ]


@pytest.mark.parametrize(
    ("by", "values", "traces"),
    [
        ("domain", ["code", "law"], [2, 2]),
        ("model", ["gpt-9", None, "claude"], [2, 1, 1]),
        ("day", ["2026-11-01", "2026-11-02", "2026-11-08", "2026-11-09"], [1, 1, 1, 1]),
        ("week", ["2026-10-26", "2026-11-02", "2026-11-09"], [1, 2, 1]),
        ("state", ["withheld", "not queued", "recorded"], [2, 1, 1]),
    ],
)
@pytest.mark.usefixtures("history")
def test_they_are_counted_by_what_they_have_in_common(as_json, by, values, traces):
    rows = as_json("stats", "--by", by)

    assert [row[by] for row in rows] == values
    assert [row["traces"] for row in rows] == traces


@pytest.mark.usefixtures("history")
def test_a_person_sees_how_scores_are_spread_and_where_the_threshold_is(db):
    told = typed("--db", str(db), "stats", columns=90).splitlines()

    assert "0.70          0" in told
    assert "0.75          0  ← threshold 0.75" in told
    assert f"0.90          1  {'█' * 50}" in told
    assert max(map(len, told)) <= 90


@pytest.mark.parametrize(
    ("columns", "shown", "left_out"),
    [
        (50, ["domain", "runs", "cleared", "mean_score", "best_score"], "mean_novelty"),
        (30, ["domain", "runs", "cleared"], "mean_score, best_score, mean_novelty"),
        (100, ["domain", "runs", "cleared", "mean_score", "best_score", "mean_novelty"], ""),
    ],
)
def test_a_narrow_terminal_keeps_the_counts_and_says_what_has_no_room(db, columns, shown, left_out):
    put(db, run("one", step("tool_call", "sum")), with_value(0.9))

    told = typed("--db", str(db), "stats", "--by", "domain", columns=columns)

    said, _, table = told.rpartition("them\n")
    heading, row = table.splitlines()
    assert heading.split() == shown
    assert row.split()[:3] == ["general", "1", "1"]
    assert (f"no room for {left_out}:" in " ".join(said.split())) == bool(left_out)


def test_more_tools_than_are_listed_are_told(db, type_command):
    put(db, run("one", *(step("tool_call", f"t{n}") for n in range(12))), with_value(0.9))

    assert "the 10 most used of 12 tools: --by tool" in type_command("stats").stderr


@pytest.mark.parametrize("columns", [60, 80])
def test_gates_are_told_apart_and_have_no_column_of_noughts(db, columns):
    for threshold in (0.655, 0.656, 0.75):
        put(db, run("one", step("thought")), with_value(0.9), threshold=threshold)

    heading, *rows = typed("--db", str(db), "stats", "--by", "gate", columns=columns).splitlines()

    assert heading.split() == ["gate", "runs", "cleared"]
    assert [row.split()[1] for row in rows] == ["0.75", "0.656", "0.655"]


@pytest.mark.parametrize(
    ("threshold", "told_at"), [(0.72, "0.70"), (0.0, "0.00"), (1.0, "0.95")], ids=str
)
def test_a_threshold_is_reported_at_the_bin_that_holds_it(db, threshold, told_at):
    put(db, run("one", step("thought")), with_value(0.9), threshold=threshold)

    told = typed("--db", str(db), "stats").splitlines()

    assert [line.split()[0] for line in told if "← threshold" in line] == [told_at]


def test_a_bar_is_as_long_as_its_share_and_seen_if_there_is_a_run(db):
    for value in (0.1, *[0.5] * 7, *[0.9] * 12):
        put(db, run("one", step("thought")), with_value(value))

    told = typed("--db", str(db), "stats", columns=41).splitlines()

    bars = {line[:4]: line.count("█") for line in told if line[:2] == "0."}
    assert (bars["0.00"], bars["0.10"], bars["0.50"], bars["0.90"]) == (0, 1, 3, 5)


@pytest.mark.usefixtures("history")
def test_the_numbers_agree_with_the_views(db, as_json):
    with closing(connect(db)) as connection:
        connection.execute(
            "INSERT INTO outbox (trace_seq, state, idempotency_key, registry, redactor)"
            " VALUES (1, 'sent', 'k', 'https://r', 'x'), (2, 'blocked', 'k', 'https://r', 'x')"
        )
        states = connection.execute("SELECT state, count(*) FROM history GROUP BY 1").fetchall()
        tools = connection.execute("SELECT * FROM tool_usage ORDER BY tool").fetchall()

    numbers = as_json("stats")

    assert {row["state"]: row["traces"] for row in numbers["states"]} == dict(states)
    assert [tuple(row.values()) for row in numbers["tools"]] == tools


@pytest.mark.parametrize("words", ["--json -c recorded", "--table -c recorded", "--csv"])
def test_what_has_no_rows_says_what_is_missing(agent, type_command, words):
    agent("one")

    result = type_command("stats", *words.split())

    assert (result.exit_code, result.stdout) == (2, "")
    assert "columns need --by: domain, tool, day, week, model, state" in result.stderr


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_a_file_without_a_run_can_fail(db, type_command, form):
    connect(db).close()

    assert type_command("stats", form).exit_code == 0
    assert type_command("stats", form, "--fail-empty").exit_code == 4
