"""The runs that each threshold would have let through, and ``--set``."""

from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value
from terminal import typed

from kp_middleware.database import connect


@pytest.fixture
def fill(db):
    """Puts runs of these scores into the file, one an hour; every second one failed."""

    def put_all(values, domain="code"):
        for number, value in enumerate(values):
            began = f"2026-11-{1 + number // 24:02}T{number % 24:02}:00:00Z"
            made = run(
                "one", step("thought"), domain=domain, instant=began, success=number % 2 == 0
            )
            put(db, made, with_value(value))

    return put_all


def row_of(found, setting):
    return next(row for row in found["settings"] if row["setting"] == setting)


def test_each_setting_is_answered(fill, as_json):
    fill([place / 200 for place in range(96)])

    found = as_json("calibrate")

    assert (found["runs"], found["days"], found["now"]) == (96, 4.0, 0.75)
    assert row_of(found, 0.4) == {
        "setting": 0.4,
        "let_through": 16,
        "share": 0.1667,
        "a_day": 4.04,
        "succeeded": 8,
        "known": 16,
        "if_not_private": 0,
        "domains": {"code": 16},
    }
    assert [row["setting"] for row in found["settings"]][-3:] == ["top 5%", "top 10%", "top 20%"]
    assert row_of(found, "top 10%")["let_through"] == 15  # each was the best, and 10 were asked for


def test_the_scores_of_each_domain_are_told(fill, as_json):
    fill([0.25] * 9 + [0.5])
    fill([1.0], domain="law")

    code, _ = as_json("calibrate")["domains"]

    assert [code[key] for key in ("domain", "runs", "median", "top_tenth", "best")] == [
        "code", 10, 0.25, 0.5, 0.5
    ]  # fmt: skip


def test_a_person_sees_what_each_domain_would_send_if_there_are_several(db, fill):
    fill([0.25] * 9 + [0.5])
    one = typed("--db", str(db), "calibrate", columns=120)
    fill([1.0], domain="law")
    two = typed("--db", str(db), "calibrate", columns=120)

    assert "in code" not in one
    assert "in code  in law" in two
    assert ["0.4", "2", "18.2%", "1", "of", "2", "known", "(50.0%)", "1", "1"] in [
        line.split()[:10] for line in two.splitlines()
    ]


def test_another_setting_of_today_is_tried_too_with_its_daily_limit(fill, as_json, monkeypatch):
    fill([0.9] * 48)
    monkeypatch.setenv("KP_THRESHOLD", "0.85")
    monkeypatch.setenv("KP_MAX_PER_DAY", "3")

    found = as_json("calibrate")

    assert found["settings"][0]["setting"] == 0.85
    assert found["max_per_day"] == 3
    assert row_of(found, 0.85)["let_through"] == 3


def test_a_setting_is_written_on_demand(fill, as_json):
    fill([0.5])

    assert as_json("calibrate", "--set", "Top 10 %")["now"] == "top 10%"
    assert as_json("calibrate")["now"] == "top 10%"


def test_other_thresholds_and_shares_are_tried_too(fill, as_json):
    fill([0.5] * 24 + [0.625])

    found = as_json(
        "calibrate", "--threshold", "0.625", "--threshold", "Top 40 %", "--threshold", "0.7"
    )

    assert [row["setting"] for row in found["settings"][:4]] == [0.625, "top 40%", 0.7, 0.75]
    assert row_of(found, 0.625)["let_through"] == 1
    assert row_of(found, "top 40%")["let_through"] > 1


@pytest.mark.parametrize(
    "words",
    [
        *(["--threshold", one] for one in ("nan", "-inf", "1.1", "much", "top 0%")),
        *(["--since", one] for one in ("tomorrow", "7", "9" * 400 + "d", "2026-13-01", "2026-13")),
    ],
    ids=lambda words: words[1][:20],
)
def test_a_threshold_or_a_moment_that_is_none_is_refused(fill, type_command, words):
    fill([0.5])

    result = type_command("calibrate", *words)

    assert result.exit_code == 2
    is_date = "is not a date (2026-11-01) or an age (30s, 5m, 36h" in result.stderr
    assert is_date == ("--since" in words)


@pytest.mark.parametrize(
    ("since", "count"),
    [
        ("2026-11-02T12:00", 1),
        ("2026-11-02T11:59:59", 2),
        ("2026-11-02", 2),
        ("2026-11-02T13:00+01:00", 1),
        ("2026-11-01", 3),
        ("1h", 0),
    ],
)
def test_since_is_to_the_second(db, as_json, since, count):
    for instant in ("2026-11-01T23:00:00.000Z", "2026-11-02T11:59:59.500Z", "2026-11-02T12:00:00Z"):
        put(db, run("one", step("thought"), instant=instant), with_value(0.5))

    assert as_json("calibrate", "--since", since)["runs"] == count
    assert as_json("calibrate", "-d", "no such", "--since", since)["domains"] == []


@pytest.mark.parametrize(
    ("values", "best"),
    [([0.5] * 60, "top 10%"), ([0.5] * 30 + [0.8] * 30, "top 10%"), ([0.8] * 9, None)],
    ids=["none reaches the protocol's", "half do", "too few to tell"],
)
def test_the_best_tenth_is_recommended_however_many_reach_the_protocol_s_threshold(
    fill, as_json, values, best
):
    fill(values)

    assert as_json("calibrate")["recommended"] == best


def test_what_is_private_is_left_out_and_that_is_said(fill, as_json, db):
    fill([0.9, 0.6])
    private = run("one", step("thought"))
    metadata = private.trace.metadata.model_copy(update={"visibility": "private"})
    trace = private.trace.model_copy(update={"metadata": metadata})
    put(db, private.model_copy(update={"trace": trace}), with_value(0.9))

    found = as_json("calibrate")

    assert (found["runs"], found["private"], row_of(found, 0.4)["let_through"]) == (2, 1, 2)
    assert sum(domain["runs"] for domain in found["domains"]) == 2
    told = typed("--db", str(db), "calibrate")
    assert "Not counted: 1 scored private run, never sent." in told
    assert "Too few runs that may be sent to recommend a threshold" in told


def test_a_share_is_rounded_once(fill, db):
    fill([0.9] * 8 + [0.1] * 157)

    told = typed("--db", str(db), "calibrate")

    assert " 4.8%" in told
    assert " 4.9%" not in told


def test_a_program_that_sets_another_gate_than_the_settings_is_reported(db, fill, type_command):
    fill([0.9])
    same = type_command("calibrate")
    put(db, run("two", step("thought")), with_value(0.9), threshold=0.5)
    other = type_command("calibrate")

    assert not same.stderr
    assert "the last run used threshold 0.5" in other.stderr


@pytest.mark.parametrize("columns", [64, 100])
def test_a_person_sees_it_with_the_command_to_type(fill, db, columns):
    fill([place / 200 for place in range(60)], domain="a\x1b[2Jb")

    told = typed("--db", str(db), "calibrate", columns=columns)

    (tenth,) = [line for line in told.splitlines() if line.strip().startswith("top 10% ")]
    assert tenth.split()[:6] == ["top", "10%", "11", "18.3%", "4.5", "4"]
    assert "0.75 (now) " in told
    assert 'Recommended: "top 10%", which lets through 11 of 60 runs' in told
    assert '\n  kp-middleware calibrate --set "top 10%"\n' in told
    assert max(map(len, told.splitlines())) <= columns
    assert "\x1b[2J" not in told


def test_too_few_runs_are_told_with_how_many_are_needed(fill, db):
    fill([0.8] * 7)

    told = typed("--db", str(db), "calibrate")

    assert (
        "Too few runs to recommend a threshold: the largest domain has 7, and a share needs 10"
        in told
    )
    assert "--set" not in told


def test_rows_come_in_any_format_and_without_any_it_can_fail(fill, db, type_command):
    connect(db).close()
    empty = type_command("calibrate", "--fail-empty")
    fill([0.7])

    told = type_command("calibrate", "--csv", "-c", "setting", "-c", "let_through").stdout

    assert empty.exit_code == 4
    assert told.splitlines()[:3] == ["setting,let_through", "0.75,0", "0.7,1"]


def test_what_is_stored_stays(fill, db, as_json):
    fill([0.5] * 60)
    with closing(connect(db)) as connection:
        before = [*connection.iterdump()]

        as_json("calibrate")

        assert [*connection.iterdump()] == before
