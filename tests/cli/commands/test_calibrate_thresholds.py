import json
import math
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hand_made import put, run, step, with_value
from hypothesis import example, given, settings
from hypothesis import strategies as st
from terminal import typed

from kp_middleware.core.formula import PROFILES, Adjustment, Parts, Score, Signals
from kp_middleware.storage import History
from kp_middleware.views.thresholds import Scores

ALL = [number / 100 for number in range(101)]
JUST_BELOW = [math.nextafter(one, 0) for one in ALL[1:]]
SCORES = st.floats(0, 1) | st.sampled_from([*ALL, *JUST_BELOW, 0.7500000000000001])
RULES = st.sampled_from(
    [
        (),
        ("single_thought",),
        ("many_recoveries",),
        ("single_tool",),
        ("single_thought", "single_tool"),
        ("many_recoveries", "single_tool"),
    ]
)
SIGNAL_SETS = st.lists(st.tuples(st.tuples(*[st.floats(0, 1)] * 4), RULES), min_size=1, max_size=12)


@pytest.fixture
def spread(db):
    """Six traces of two domains, of which two cleared 0.75."""
    for value, domain in (
        (0.9, "code"), (0.75, "code"), (0.7, "code"), (0.29, "code"), (0.72, "law"), (0.1, "law"),
    ):  # fmt: skip
        made = run(f"{domain} {value}", step("thought"), domain=domain)
        put(db, made, with_value(value))
    put(db, run("not scored", step("thought"), domain="law"))


@pytest.mark.usefixtures("spread")
def test_every_threshold_is_answered_at_once(type_command):
    rows = json.loads(type_command("calibrate", "--step", "0.01", "--json").stdout)

    assert [row["threshold"] for row in rows] == ALL
    assert [rows[at]["would_go"] for at in (0, 10, 11, 29, 30, 70, 75, 76, 100)] == (
        [6, 6, 5, 5, 4, 4, 2, 1, 0]
    )
    assert rows[75] == {
        "threshold": 0.75,
        "would_go": 2,
        "traces": 6,
        "share": 0.3333,
        "domains": {
            "code": {"would_go": 2, "traces": 4, "share": 0.5},
            "law": {"would_go": 0, "traces": 2, "share": 0.0},
        },
        "private": 0,
    }


@settings(max_examples=20, deadline=None)
@given(st.lists(SCORES, min_size=1, max_size=20))
def test_each_count_is_exact_to_the_last_bit(scores):
    with TemporaryDirectory() as folder:
        db = Path(folder, "kp.db")
        [put(db, run("one", step("thought")), with_value(score)) for score in scores]
        with History.open(db) as history:
            curve = Scores(history.decided_runs()).curve(1, None)

    assert [one.all.would_go for one in curve] == [
        sum(score >= threshold for score in scores) for threshold in ALL
    ]


def test_what_is_just_below_a_threshold_does_not_reach_it(db):
    [put(db, run("one", step("thought")), with_value(score)) for score in JUST_BELOW]

    with History.open(db) as history:
        found = history.scores().slices

    assert [one.hundredth for one in found] == [*range(100)]


@settings(max_examples=20, deadline=None)
@example([((1.0, 1.0, 1.0, 1.0), ("many_recoveries", "single_tool"))], PROFILES["code"])
@given(SIGNAL_SETS, st.sampled_from([*PROFILES.values()]))
def test_other_weights_give_the_scorers_own_arithmetic(made, profile):
    with TemporaryDirectory() as folder:
        db = Path(folder, "kp.db")
        for values, rules in made:
            score = Score(
                value=0.5,
                signals=Signals(*values),
                weights=PROFILES["default"],
                adjustments=tuple(Adjustment(rule, 0.1) for rule in rules),
            )
            put(db, run("one", step("thought")), score)
        with History.open(db) as history:
            found = [run.score for run in history.decided_runs(weights=profile)]

    expected = [Parts(Signals(*values), profile, rules).score for values, rules in made]
    assert found == expected


@pytest.mark.parametrize("weights", [[], ["--weights", "code"]], ids=["as scored", "anew"])
@pytest.mark.parametrize(("since", "traces"), [("2d", 1), ("2024-01-01", 2)])
def test_only_what_started_since_then_is_counted(db, type_command, weights, since, traces):
    put(db, run("old", step("thought"), instant="2024-03-01T12:00:00Z"), with_value(0.9))
    put(db, run("new", step("thought")), with_value(0.9))

    told = type_command("calibrate", "--since", since, "--threshold", "0", "--json", *weights)

    assert json.loads(told.stdout)["traces"] == traces


@pytest.mark.parametrize(
    ("words", "traces", "would_go"),
    [(["-d", "law"], 2, 0), (["-d", "none"], 0, 0), (["--since", "2999-01-01"], 0, 0)],
    ids=["a domain", "no such domain", "the future"],
)
@pytest.mark.usefixtures("spread")
def test_it_can_be_asked_of_some_traces(type_command, words, traces, would_go):
    told = json.loads(type_command("calibrate", "--threshold", "0.75", "--json", *words).stdout)

    assert (told["traces"], told["would_go"]) == (traces, would_go)


@pytest.mark.parametrize(
    ("since", "traces"),
    [
        ("2026-11-02T12:00", 1),
        ("2026-11-02T11:59:59", 2),
        ("2026-11-02", 2),
        ("2026-11-02T13:00+01:00", 1),
        ("2026-11-01", 3),
        ("1h", 0),
    ],
)
def test_since_is_to_the_second(db, type_command, since, traces):
    for instant in ("2026-11-01T23:00:00.000Z", "2026-11-02T11:59:59.500Z", "2026-11-02T12:00:00Z"):
        put(db, run("one", step("thought"), instant=instant), with_value(0.5))

    told = type_command("calibrate", "--threshold", "0", "--json", "--since", since).stdout

    assert json.loads(told)["traces"] == traces


@pytest.mark.parametrize("since", ["tomorrow", "7", "9" * 400 + "d", "2026-13-01", "2026-13"])
@pytest.mark.usefixtures("spread")
def test_a_moment_that_is_none_is_an_error_with_examples(type_command, since):
    result = type_command("calibrate", "--since", since)

    assert result.exit_code == 2
    assert "is not a date (2026-11-01, 2026-11, yesterday) or an age (30s, 5m, 36h" in result.stderr


@pytest.mark.usefixtures("spread")
def test_one_threshold_names_the_traces_that_would_newly_go(type_command):
    told = json.loads(type_command("calibrate", "--threshold", "0.7", "--json").stdout)

    assert (told["would_go"], told["went"], told["share"]) == (4, 2, 0.6667)
    assert told["newly_go"]["count"] == 2
    assert [row["objective"] for row in told["newly_go"]["nearest"]] == ["code 0.7", "law 0.72"]
    assert told["newly_stay"] == {"count": 0, "nearest": []}
    assert told["domains"]["law"] == {
        "would_go": 1,
        "traces": 2,
        "share": 0.5,
        "went": 0,
        "newly_go": 1,
        "newly_stay": 0,
    }


@pytest.mark.usefixtures("spread")
def test_one_threshold_names_the_traces_that_would_newly_stay(type_command):
    told = json.loads(type_command("calibrate", "--threshold", "0.95", "--json").stdout)

    assert [row["objective"] for row in told["newly_stay"]["nearest"]] == ["code 0.9", "code 0.75"]
    assert told["newly_go"]["count"] == 0


@pytest.mark.usefixtures("spread")
def test_the_traces_that_change_are_rows_in_a_pipe(type_command):
    lines = type_command("calibrate", "--threshold", "0.7", "-n", "1", "--tsv").stdout.splitlines()

    assert lines[0] == "change\tid\tdomain\tscore\tthreshold\tobjective"
    assert [line.split("\t")[-1] for line in lines[1:]] == ["code 0.7"]


@pytest.mark.usefixtures("spread")
def test_steps_may_be_coarser(type_command):
    lines = type_command("calibrate", "--step", "0.1", "--csv").stdout.splitlines()

    assert len(lines) == 1 + 3 * 12
    assert lines[:4] == [
        "threshold,domain,would_go,traces,share",
        *("0.0,all,6,6,1.0", "0.0,code,4,4,1.0", "0.0,law,2,2,1.0"),
    ]
    assert lines[22:28] == [
        *("0.7,all,4,6,0.6667", "0.7,code,3,4,0.75", "0.7,law,1,2,0.5"),
        *("0.75,all,2,6,0.3333", "0.75,code,2,4,0.5", "0.75,law,0,2,0.0"),
    ]


@pytest.mark.usefixtures("spread")
def test_columns_of_the_long_form_are_chosen_by_name(type_command):
    told = type_command("calibrate", "--step", "0.1", "--tsv", "-c", "domain,would_go").stdout

    assert told.splitlines()[:3] == ["domain\twould_go", "all\t6", "code\t4"]


@pytest.mark.parametrize("threshold", [0.75, 0.755, math.nextafter(0.75, 1)], ids=str)
@pytest.mark.parametrize("size", ["0.1", "0.01"])
def test_the_threshold_in_force_has_a_row_whatever_it_is(db, type_command, size, threshold):
    for value in (0.7551, 0.75, 0.9):
        put(db, run("one", step("thought")), with_value(value), threshold=threshold)

    rows = json.loads(type_command("calibrate", "--json", "--step", size).stdout)

    (row,) = [row for row in rows if row["threshold"] == threshold]
    assert row["would_go"] == 2 + (threshold == 0.75)
    assert row["domains"]["general"]["would_go"] == row["would_go"]
    assert [row["threshold"] for row in rows] == sorted({row["threshold"] for row in rows})


@pytest.fixture
def private(db):
    """One trace that may leave, and in another domain two that may not."""
    put(db, run("public", step("thought"), domain="code"), with_value(0.9))
    for value in (0.95, 0.7):
        made = run("private", step("thought"), domain="law")
        metadata = made.trace.metadata.model_copy(update={"visibility": "private"})
        trace = made.trace.model_copy(update={"metadata": metadata})
        put(db, made.model_copy(update={"trace": trace}), with_value(value))


@pytest.mark.parametrize("weights", [[], ["--weights", "code"]], ids=["as scored", "anew"])
@pytest.mark.usefixtures("private")
def test_what_is_private_would_never_go(type_command, weights):
    rows = json.loads(type_command("calibrate", "--step", "0.01", "--json", *weights).stdout)
    told = json.loads(type_command("calibrate", "--threshold", "0.6", "--json", *weights).stdout)

    assert {(row["traces"], row["private"], *row["domains"]) for row in rows} == {(1, 2, "code")}
    assert (told["traces"], told["would_go"], told["went"], told["private"]) == (1, 1, 1, 2)
    assert (told["newly_go"]["count"], [*told["domains"]]) == (0, ["code"])


@pytest.mark.usefixtures("private")
def test_a_person_is_told_how_many_are_private(db):
    for words in (["--step", "0.1"], ["--threshold", "0.6"]):
        told = typed("--db", str(db), "calibrate", *words).replace("\n", " ")
        assert "Not counted: 2 with a score, but private, which never leave." in told


@pytest.mark.usefixtures("private")
def test_where_all_is_private_that_is_why_nothing_matches(type_command):
    result = type_command("calibrate", "--step", "0.1", "--tsv", "-d", "law", "--fail-empty")

    assert (result.exit_code, result.stdout) == (4, "threshold\tdomain\twould_go\ttraces\tshare\n")
    assert result.stderr.startswith("nothing matches Not counted: 2 with a score, but private")


def test_other_weights_are_asked_for_by_name(db, type_command):
    signals = Signals(complexity=1, novelty=0, tool_diversity=0, outcome_confidence=0)
    put(db, run("one", step("thought")), Score(value=1, signals=signals, weights=PROFILES["code"]))

    rows = json.loads(
        type_command("calibrate", "--step", "0.01", "--json", "--weights", "medical").stdout
    )

    assert [row["would_go"] for row in rows] == [1] * 16 + [0] * 85


@pytest.mark.usefixtures("spread")
def test_a_person_sees_twelve_thresholds_with_bars_and_domains(db):
    told = typed("--db", str(db), "calibrate", "--step", "0.1", columns=110).splitlines()

    (row,) = [line for line in told if line.startswith("     0.70")]
    assert row.split() == ["0.70", "4", "66.7%", "75.0%", "50.0%", "█" * 13]
    (current,) = [line for line in told if line.startswith("   → 0.75")]
    assert current.split()[2:] == ["2", "33.3%", "50.0%", "0%", "█" * 7]
    assert sum(line.startswith("     ") for line in told) == 11
    assert "→ Applied to the last run: 0.75." in told[-1]


@pytest.mark.usefixtures("spread")
def test_a_narrow_terminal_leaves_domains_out_and_says_so(db):
    told = typed("--db", str(db), "calibrate", "--step", "0.1", columns=36)

    assert "no room for law" in told
    assert max(map(len, told.splitlines())) <= 36


@pytest.mark.parametrize("words", [["--step", "0.1"], ["--threshold", "0.7"]], ids=["all", "one"])
@pytest.mark.usefixtures("spread")
def test_it_fits_a_terminal_of_40_columns(db, words):
    told = typed("--db", str(db), "calibrate", *words, columns=40).splitlines()

    assert max(map(len, told)) <= 40
    assert any("66.7%" in line for line in told)


@pytest.mark.usefixtures("spread")
def test_80_columns_are_room_for_five_domains(db):
    for domain in ("support", "travel", "research"):
        put(db, run(domain, step("thought"), domain=domain), with_value(0.5))

    told = typed("--db", str(db), "calibrate", "--step", "0.1", columns=80)

    assert "no room" not in told
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.usefixtures("spread")
def test_a_narrow_terminal_names_each_trace_that_would_change(db):
    lines = typed("--db", str(db), "calibrate", "--threshold", "0.5", columns=60).splitlines()

    named = [line for line in lines if re.match(r"\w{8}  0\.\d{3}       0\.75  ", line)]
    assert len(named) == 2


def test_a_bar_of_many_digits_pushes_nothing_aside(db):
    for value, bar in ((0.72, 0.778798), (0.71, 0.75)):
        put(db, run("one", step("thought"), domain="law"), with_value(value), threshold=bar)

    *_, stays, goes, _, _ = typed("--db", str(db), "calibrate", "--threshold", "0.7").splitlines()

    assert " 0.75 " in stays
    assert " 0.779 " in goes
    assert stays.index("law") == goes.index("law")


@pytest.mark.usefixtures("spread")
def test_a_person_reads_what_one_threshold_would_change(db):
    told = typed("--db", str(db), "calibrate", "--threshold", "0.7", "-n", "1")

    assert "At 0.7, 4 of 6 runs would have gone (66.7%); 2 did." in told
    assert "2 would newly go, the nearest 1\n" in told
    assert "0.700       0.75  code    code 0.7\n" in told
    assert "0 would newly stay" in told


def test_where_nothing_is_scored_it_is_said(db):
    put(db, run("not scored", step("thought")))

    told = typed("--db", str(db), "calibrate", "--step", "0.1")

    assert told == "nothing matches\n"


@pytest.mark.parametrize(("form", "printed"), [("--json", "[]\n"), ("--nl", "")])
@pytest.mark.usefixtures("spread")
def test_a_domain_that_is_none_gets_no_noughts_for_an_answer(type_command, form, printed):
    result = type_command("calibrate", "--step", "0.1", "-d", "nope", form)

    assert (result.stdout, result.stderr) == (
        printed,
        "nothing matches\n",
    )


@pytest.mark.usefixtures("spread")
def test_one_threshold_for_a_domain_that_is_none_is_told_too(type_command):
    result = type_command("calibrate", "-d", "nope", "--threshold", "0.5", "--fail-empty")

    assert "nothing matches" in result.stderr


@pytest.mark.parametrize("words", [["--step", "0.1"], ["--threshold", "0.7"]], ids=["all", "one"])
@pytest.mark.parametrize("form", ["--json", "--csv", "--table"])
@pytest.mark.parametrize(("domain", "exit_code"), [("law", 0), ("nope", 4)])
@pytest.mark.usefixtures("spread")
def test_where_nothing_is_scored_it_fails_if_asked_to(type_command, words, form, domain, exit_code):
    result = type_command("calibrate", *words, form, "-d", domain, "--fail-empty")

    assert result.exit_code == exit_code


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1.1", "much"])
@pytest.mark.parametrize("words", [["calibrate"], ["show", "@last", "--why"]], ids=" ".join)
@pytest.mark.usefixtures("spread")
def test_a_threshold_that_is_no_number_is_refused(type_command, words, number):
    result = type_command(*words, "--threshold", number)

    assert result.exit_code == 2
    assert "Invalid value for '--threshold'" in result.stderr


@pytest.mark.usefixtures("spread")
def test_a_table_names_what_would_go_as_csv_does(db):
    told = typed("--db", str(db), "calibrate", "--step", "0.1", columns=110)

    assert told.splitlines()[2].split()[:4] == ["threshold", "would", "go", "share"]
