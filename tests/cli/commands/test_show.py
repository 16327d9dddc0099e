import json
import re
from contextlib import closing
from dataclasses import replace
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console
from sample_runs import put, run, scored, step
from terminal import typed

from kp_middleware import ReasoningTrace
from kp_middleware.cli.run_text import waterfall
from kp_middleware.database import connect
from kp_middleware.locations import prices_file
from kp_middleware.views.trace import ScoreLine

SUM = [
    ScoreLine("complexity", "0.800 × 0.25", 0.2),
    ScoreLine("novelty", "1.000 × 0.40  (0.000 like a1b2c3d4)", 0.4),
    ScoreLine("tool_diversity", "0.000 × 0.10", 0.0),
    ScoreLine("single_tool", "rule", -0.1),
    ScoreLine("score", "is below 0.75 by 0.250", 0.5),
]


@pytest.fixture
def long_run(db):
    """Thirty steps, with a nearest neighbor and a result."""
    put(db, run("The first", step("thought"), id="a1b2c3d4-first"))
    steps = [step("thought", content="thought 0"), step("thought", content="検索する" * 40)]
    steps += [step("thought", content=f"thought {at}") for at in range(2, 29)]
    steps.append(step("tool_call", "search", input={"q": "fare"}, latency_ms=1234.5))
    made = run("Find a fare", *steps, id="5555", result_summary="7 euro", duration_ms=1500)
    return put(db, made, scored(made, 0.25, "a1b2c3d4-first"))


def waterfall_lines(lines, threshold, width):
    """The rows of the waterfall."""
    console = Console(file=StringIO(), width=width)
    console.print(waterfall(lines, threshold, width))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_each_part_starts_where_the_one_before_it_ended():
    told = waterfall_lines(SUM, 0.75, 100)

    room = told[0].index("+0.200") - 27
    bars = [line[24 : 25 + room] for line in told]
    ends = [(len(bar) - len(bar.lstrip(" ┆")), len(bar.rstrip(" ┆"))) for bar in bars]
    assert room > 20
    assert ends[0] == (0, round(0.2 * room))
    assert ends[1] == (round(0.2 * room), round(0.6 * room))
    assert ends[3] == (round(0.5 * room), round(0.6 * room))
    assert ends[4] == (0, round(0.5 * room))
    for threshold in (0.0, 0.3, 1.0):  # it is marked in each row at the same place
        marks = {line.index("┆") for line in waterfall_lines(SUM, threshold, 100)}
        assert marks == {24 + round(threshold * room)}
    # what a rule takes away is hollow
    assert ["█" in line for line in told] == [True, True, False, False, True]
    assert ["░" in line for line in told] == [False, False, False, True, False]


def test_remarks_wrap_and_a_terminal_too_narrow_for_bars_gets_the_numbers():
    wide, narrow, narrowest = (waterfall_lines(SUM, 0.75, width) for width in (120, 80, 50))

    assert wide[1].endswith("0.400  1.000 × 0.40  (0.000 like a1b2c3d4)")
    assert narrow[1].endswith("1.000 × 0.40  (0.000 like")
    assert narrow[2].endswith("a1b2c3d4)")
    assert narrowest[0] == "  complexity            +0.200  0.800 × 0.25"
    assert not {"█", "┆"} & {*"".join(narrowest)}


@pytest.mark.parametrize("columns", [54, 80, 100, 200])
@pytest.mark.usefixtures("long_run")
def test_no_line_is_longer_than_the_terminal_is_wide(db, columns):
    told = typed("--db", str(db), "show", "5555", columns=columns)

    assert max(map(cell_len, told.splitlines())) <= columns
    assert "outcome: succeeded" in told  # facts break between two of them


def steps_shown(told):
    """The numbers of the steps."""
    return [int(number) for number in re.findall(r"(?m)^ +(\d+)  (?:Agent|Call)", told)]


@pytest.mark.usefixtures("long_run")
def test_the_first_and_the_last_steps_are_shown_and_the_others_counted(db):
    told = typed("--db", str(db), "show", "5555")

    assert steps_shown(told) == [*range(15), *range(25, 30)]
    assert "… 10 more steps: --steps all\n" in told
    assert re.search(r'  29  Call search  {"q": "fare"} +1\.2 s\n', told)
    assert "  1.5 s  " in told


@pytest.mark.parametrize(("steps", "count"), [("all", 30), ("100", 30), ("3", 3), ("0", 0)])
@pytest.mark.usefixtures("long_run")
def test_as_many_steps_are_shown_as_are_asked_for(db, steps, count):
    told = typed("--db", str(db), "show", "5555", "--steps", steps)

    assert len(steps_shown(told)) == count


@pytest.mark.parametrize("steps", ["many", "-1", ""])
@pytest.mark.usefixtures("long_run")
def test_a_number_of_steps_that_is_none_is_an_error(type_command, steps):
    result = type_command("show", "5555", "--steps", steps)

    assert result.exit_code == 2
    assert "is neither a number nor all" in result.stderr


def test_a_run_that_is_kept_in_part_says_how_long_it_was(db):
    made = run("Long", step("thought"))
    put(db, made.model_copy(update={"shape": replace(made.shape, steps=2000)}))

    told = typed("--db", str(db), "show", "@last")

    assert "the run had 2,000 steps, 1 were kept" in told


@pytest.mark.usefixtures("long_run")
def test_json_has_all_steps_the_nearest_and_the_state_of_the_list(as_json):
    (listed,) = as_json("list", "-n", "1")
    shown = as_json("show", "5555", "--steps", "1")

    assert shown["state"] == listed["state"] == "withheld"
    assert len(shown["steps"]) == 30
    assert (shown["nearest_id"], shown["nearest_objective"]) == (
        "kp:trace:a1b2c3d4-first",
        "The first",
    )


def test_the_payload_is_the_document_as_it_was_recorded(long_run, type_command, db):
    payload = type_command("show", "5555", "--payload").stdout

    with closing(connect(db, read_only=True)) as connection:
        (body,) = connection.execute(
            "SELECT body FROM documents WHERE trace_seq = ?", (long_run,)
        ).fetchone()
    assert payload == body + "\n"
    assert ReasoningTrace.model_validate_json(payload).task.objective == "Find a fare"


def test_the_payload_on_a_terminal_is_the_same_json_and_harmless(db, type_command):
    put(db, run("look \x1b[2J \x85 \x9b2J \u202e \U000e0041", step("thought", content="ü検")))

    told = typed("--db", str(db), "show", "@last", "--payload")

    assert json.loads(told) == json.loads(type_command("show", "@last", "--payload").stdout)
    assert "ü検" in told
    assert told.strip().isprintable()


@pytest.mark.usefixtures("long_run")
def test_a_document_that_is_lost_is_an_error_in_words(type_command, db):
    with closing(connect(db)) as connection:
        connection.execute("DELETE FROM documents")

    result = type_command("show", "5555", "--payload")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "the document of this run is missing from the file" in result.stderr


@pytest.mark.usefixtures("long_run")
def test_markdown_has_the_objective_the_score_and_the_steps(type_command):
    told = type_command("show", "5555", "--md", "--steps", "all").stdout
    short = type_command("show", "5555", "--md").stdout

    assert told.startswith("# `Find a fare`\n\n- run: `5555`\n")
    assert "| novelty | +0.262 | 0.750 × 0.35  (0.250 like a1b2c3d4) |\n" in told
    assert "### 0 thought\n\n```text\nthought 0\n```\n" in told
    assert '### 29 tool_call `search` 1.2\xa0s\n\n```json\n{\n  "q": "fare"\n}\n```\n' in told
    assert told.endswith("## Result\n\n```text\n7 euro\n```\n")
    assert short.count("\n### ") == 20
    assert "\n… 10 more steps: --steps all\n" in short


def test_the_title_of_markdown_is_what_was_asked_and_a_longer_question_follows_whole(
    db, type_command
):
    put(db, run("# ask\n" + "why " * 50, step("thought")))

    told = type_command("show", "@last", "--md").stdout

    title, _, rest = told.partition("\n\n")
    assert "## Score" not in told
    assert "- delivery: `kept here, not scored yet`\n" in told
    assert title.startswith("# `# ask why why")
    assert title.endswith(" …`")
    assert rest.startswith("```text\n# ask\nwhy why")


@pytest.mark.usefixtures("long_run")
def test_what_a_run_cost_stands_beside_the_facts_where_there_are_prices(db, type_command):
    with closing(connect(db)) as connection:
        connection.execute("UPDATE traces SET model = 'big', input_tokens = 3, output_tokens = 4")
    prices_file().parent.mkdir(parents=True)
    prices_file().write_text('currency = "EUR"\n[models.big]\ninput = 1000000\noutput = 2000000')

    assert "11.00 EUR" in type_command("show", "5555").stdout


@pytest.mark.parametrize(
    ("text", "fence"),
    [("plain", "```"), ("```sh\nrm -rf\n```", "````"), ("a `````` b", "```````")],
)
def test_nothing_in_a_text_ends_its_fence(db, type_command, text, fence):
    put(db, run("x", step("thought", content=text)))

    told = type_command("show", "@last", "--md").stdout

    assert f"{fence}text\n{text}\n{fence}\n" in told


def test_names_in_markdown_cannot_become_markup(db, type_command):
    made = run("x", step("tool_call", "`![a](http://b)` | \x1b[2J"), domain="a`b")
    put(db, made, scored(made))

    told = type_command("show", "@last", "--md").stdout

    assert "### 0 tool_call `` `![a](http://b)` | ?[2J ``\n" in told
    assert "- domain: `` a`b ``\n" in told


def test_what_was_taken_out_before_the_file_is_reported_of_a_trace_that_stays(kp, as_json):
    kp.capture(lambda text: text)("my password=" + "hunter2" + "zz, and nothing more")

    shown = as_json("show", "@last")

    assert shown["outbox"] is None
    assert shown["redactions"]["password"] >= 1


def test_ids_that_are_offered_cannot_steer_the_terminal(db, type_command):
    for number in (1, 2):
        put(db, run("one", step("thought"), id=f"a\x1b[2J-{number}"))

    told = type_command("show", "a").stderr

    assert "a is ambiguous: type more of the id. Matches: a?[2J-1, a?[2J-2" in told
