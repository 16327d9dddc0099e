import json
from contextlib import closing

import pytest
from sample_runs import put, run, scored, step
from terminal import typed

from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.explanation import explain_score

LEAK = (
    step("thought", content="where does it leak?"),
    *[step("tool_call", "search")] * 3,
    *[step("observation", "search")] * 3,
    step("error_recovery", "search"),
)


@pytest.fixture
def account(db):
    """The account of a trace in the file."""

    def read(seq, **asked):
        with closing(connect(db, read_only=True)) as connection:
            return explain_score(History(connection).run(seq), **asked)

    return read


@pytest.fixture
def leak(db):
    """A failure of one tool, below the threshold."""
    put(db, run("Find the memory leak in worker 46", *LEAK, id="a1b2c3d4-first", domain="code"))
    made = run(
        "Find the memory leak in worker 47",
        *LEAK,
        id="1339c01f-second",
        domain="code",
        success=False,
        confidence=0.8,
    )
    return put(db, made, scored(made, 0.7, "a1b2c3d4-first"))


@pytest.fixture
def fare(db):
    """A success that just missed, with nothing before it."""
    steps = [step("thought"), step("tool_call", "search"), step("tool_call", "book")]
    made = run("Book a flight", *steps, id="77aa-fare", domain="finance", confidence=0.9)
    return put(db, made, scored(made))


@pytest.fixture
def repair(db):
    """A success after many recoveries, above the threshold."""
    steps = [step("thought"), step("tool_call", "edit"), step("tool_call", "test")]
    steps += [step("observation", "test"), *[step("error_recovery", "test")] * 3]
    made = run("Repair the build", *steps, id="88bb-repair", domain="medical", confidence=0.8)
    return put(db, made, scored(made, 0.2, "elsewhere"))


EXPLAINED = {
    "leak": """\
Find the memory leak in worker 47
kp:trace:1339c01f-second

Score 0.327, 0.423 below the threshold 0.75.
Gate: threshold 0.75.

Why
  complexity          0.880 × 0.20 = 0.176   4 of 4 kinds of step give 0.500, error recovery 0.300,
                                             8 steps 0.080
  novelty             0.300 × 0.30 = 0.090   0.700 similar to a1b2c3d4, the nearest earlier run:
                                             Find the memory leak in worker 46
  tool diversity      0.375 × 0.30 = 0.112   1 distinct tool / 8 steps × 3
  outcome confidence  0.240 × 0.20 = 0.048   the run failed: 0.3 × confidence 0.800 (from the agent)
  single tool                        -0.100  the run used only one tool

To reach 0.75 with one change:
  complexity          not enough by itself: at most 0.351
  novelty             not enough by itself: at most 0.537
  tool diversity      not enough by itself: at most 0.514
  outcome confidence  not enough by itself: at most 0.479
  single tool         without this adjustment: score 0.427
""",
    "fare": """\
Book a flight
kp:trace:77aa-fare

Score 0.686, 0.064 below the threshold 0.75.
Gate: threshold 0.75.

Why
  complexity          0.280 × 0.20 = 0.056   2 of 4 kinds of step give 0.250, 3 steps 0.030
  novelty             0.500 × 0.25 = 0.125   no earlier run to compare with: 0.5 is assumed
  tool diversity      1.000 × 0.10 = 0.100   2 distinct tools / 3 steps × 3, capped at 1
  outcome confidence  0.900 × 0.45 = 0.405   confidence 0.900 (from the agent); outcome: succeeded

To reach 0.75 with one change:
  complexity          0.600 instead of 0.280
  novelty             0.756 instead of 0.500
  tool diversity      not enough by itself: at most 0.686
  outcome confidence  not enough by itself: at most 0.731
""",
    "repair": """\
Repair the build
kp:trace:88bb-repair

Score 0.916, 0.166 above the threshold 0.75.
Gate: threshold 0.75.

Why
  complexity          0.870 × 0.15 = 0.131   4 of 4 kinds of step give 0.500, error recovery 0.300,
                                             7 steps 0.070
  novelty             0.800 × 0.20 = 0.160   0.200 similar to elsewher, the nearest earlier run:
                                             another host's
  tool diversity      0.857 × 0.10 = 0.086   2 distinct tools / 7 steps × 3
  outcome confidence  0.800 × 0.55 = 0.440   confidence 0.800 (from the agent); outcome: succeeded
  many recoveries                    +0.100  the run succeeded after 3 recoveries, more than 2

To fall below 0.75 with one change:
  complexity          not enough by itself: at least 0.786
  novelty             not enough by itself: at least 0.756
  tool diversity      not enough by itself: at least 0.831
  outcome confidence  at most 0.497 instead of 0.800
  many recoveries     without this adjustment: score 0.816
""",
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_trace_far_below_or_just_below_or_above_is_explained(type_command, request, name):
    request.getfixturevalue(name)

    assert type_command("show", "--why", "@last").stdout == EXPLAINED[name]


@pytest.mark.usefixtures("leak")
def test_other_weights_score_it_anew_and_say_how_it_was_scored(type_command):
    told = type_command("show", "--why", "1339", "--weights", "medical").stdout

    assert "Score 0.262, 0.488 below the threshold 0.75." in told
    assert "The stored score is still 0.327, threshold 0.75." in told
    assert "0.880 × 0.15 = 0.132" in told


@pytest.mark.usefixtures("leak")
@pytest.mark.parametrize("name", ["KP_PROFILES", "kp_profiles"])
def test_weights_of_the_user_s_own_win_over_those_of_the_protocol(type_command, monkeypatch, name):
    weights = {"complexity": 1, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 0}
    monkeypatch.setenv(name, json.dumps({"finance": weights}))

    printed = type_command("show", "@last", "--why", "--weights", "finance", "--json").stdout

    assert [one["weight"] for one in json.loads(printed)["signals"]] == [1, 0, 0, 0]


@pytest.mark.usefixtures("leak")
def test_an_unknown_profile_is_an_error_that_lists_the_known(type_command, home):
    settings = home / ".config" / "kp-middleware" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        "[profiles.law]\ncomplexity = 0.25\nnovelty = 0.25\ntool_diversity = 0.25\n"
        "outcome_confidence = 0.25\n"
    )

    result = type_command("show", "--why", "@last", "--weights", "magic")

    assert result.exit_code == 2
    assert "no such profile: magic (choose from default, finance, code" in result.stderr
    assert "law" in result.stderr


@pytest.mark.usefixtures("fare")
def test_json_has_exact_numbers_and_the_words(as_json):
    told = as_json("show", "--why", "@last")

    novelty = told["signals"][1]
    assert (novelty["signal"], novelty["value"], novelty["weight"]) == ("novelty", 0.5, 0.25)
    assert novelty["least"] == pytest.approx(0.756)
    assert told["signals"][3]["least"] is None
    assert told["known"] == {
        "steps": 3,
        "kinds": ["thought", "tool_call"],
        "tools": 2,
        "recoveries": 0,
        "confidence": 0.9,
        "success": True,
        "confidence_source": "said",
        "success_source": "said",
    }


def test_novelty_without_a_model_is_said_to_be_assumed(db, account):
    made = run("Book a flight", step("thought"), step("tool_call", "search"))

    told = account(put(db, made, scored(made, embedder=None)), threshold=0.5).signals[1]

    assert told.reason == "not measured without an embedding model: 0.5 is assumed"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "No score: kept here, not scored yet."),
        ({"complete": False, "error_type": "CancelledError"}, "the run did not finish"),
    ],
    ids=["recorded", "incomplete"],
)
def test_of_a_trace_without_a_score_it_is_said_why(db, type_command, facts, words):
    put(db, run("Book", step("thought"), step("tool_call", "search"), **facts))

    assert words in type_command("show", "--why", "@last").stdout


@pytest.mark.parametrize("columns", [40, 60, 200])
@pytest.mark.usefixtures("leak")
def test_no_line_is_longer_than_the_terminal_is_wide(db, columns):
    told = typed("--db", str(db), "show", "--why", "@last", columns=columns)

    assert max(map(len, told.splitlines())) <= max(columns, 65)


def test_one_kind_of_step_gives(db, account):
    made = run("Think", step("thought"), step("thought"))

    complexity = account(put(db, made, scored(made))).signals[0]

    assert complexity.reason == "1 of 4 kinds of step gives 0.125, 2 steps 0.020"
