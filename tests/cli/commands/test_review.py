"""A person judges runs at a terminal, one key each; scripts get the same list."""

import pytest
from terminal import typed_with_keys

from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

PROMPT = "q quit "


@pytest.fixture
def twelve(agent, kp, monkeypatch):
    """Six runs that would go, and six that would not; nobody has said how they ended."""
    monkeypatch.setenv("KP_THRESHOLD", "0.5")
    quiet = kp.capture(domain="code")(lambda question: f"{question} is done")
    for number in range(6):
        agent(f"loud {number}")
        quiet(f"quiet {number}")


@pytest.fixture
def review(db):
    """Types the command and these keys."""
    return lambda keys, *words: typed_with_keys(
        "--db", str(db), "review", *words, keys=keys, prompt=PROMPT
    )


@pytest.mark.usefixtures("twelve")
def test_ten_answers(review, as_json, kp):
    printed, code = review("yynnysyonny", "-n", "10")

    assert code == 0
    assert "9 answered: 5 yes, 4 no" in printed
    assert "10 of 10" in printed
    judged = [run for run in (kp.run(found.id) for found in kp.runs()) if run.feedback]
    assert len(judged) == 9
    assert sum(run.success for run in judged) == 5
    assert {run.success_source for run in judged} == {"feedback"}
    assert not {item["trace_id"] for item in as_json("review")} & {run.id for run in judged}
    assert len(as_json("review")) == 3


@pytest.mark.usefixtures("twelve")
def test_a_run_is_reported_in_few_lines_and_opened_in_full(review):
    printed, _ = review("oq", "-n", "1")

    short, full = printed.split(PROMPT)[:2]
    assert [
        line
        for line in short.splitlines()
        if line.startswith(("why ", "task ", "    I say", "    shout", "result"))
    ] == [
        "why     passed the gate (not queued)",
        "task    loud 5",
        "    I say it louder",
        "    shout() → LOUD 5",
        "result  LOUD 5",
    ]
    assert "outcome confidence" in full


@pytest.mark.usefixtures("twelve")
@pytest.mark.parametrize(("last", "ends"), [("q", 0), ("\x1b", 0), ("\x04", 0), ("\x03", 130)])
def test_an_answer_counts_at_once_and_stays_however_it_ends(review, kp, last, ends):
    printed, code = review(["n", "?", last])

    assert code == ends
    assert "1 answered: 0 yes, 1 no" in printed
    assert "→ kept here: score" in printed
    assert sum(bool(kp.run(run.id).feedback) for run in kp.runs()) == 1
    [failed] = kp.runs(failed=True)
    assert failed.state == "withheld"


@pytest.mark.usefixtures("twelve")
def test_those_that_would_go_come_first_and_have_half_of_a_full_list(as_json):
    whys = [item["why"] for item in as_json("review", "-n", "4")]
    assert whys == ["forwarded", "forwarded", "uncertain", "uncertain"]

    whys = [item["why"] for item in as_json("review", "-n", "8")]
    assert whys == ["forwarded"] * 6 + ["uncertain"] * 2


@pytest.mark.usefixtures("twelve")
def test_filters_are_those_of_list_and_a_pipe_is_told_what_to_do(as_json, type_command):
    piped = type_command("review")

    assert piped.exit_code == 2
    assert "use --json here, and answer with kp-middleware feedback ID" in piped.stderr
    assert {item["objective"] for item in as_json("review", "-q", "quiet")} == {
        f"quiet {number}" for number in range(6)
    }
    assert as_json("review", "-d", "finance") == []


@pytest.mark.usefixtures("twelve")
def test_what_somebody_has_said_is_not_asked(as_json, kp, type_command):
    said = kp.runs()[0].id
    type_command("feedback", said, "--success")
    type_command("feedback", kp.runs()[1].id, "--confidence", "0.4")

    asked = {item["trace_id"] for item in as_json("review", "-n", "50")}
    assert said not in asked
    assert len(asked) == 11  # a confidence says nothing about success


def test_with_nothing_to_ask_it_says_so(agent, review, type_command, as_json):
    agent("one")
    type_command("feedback", "@last", "--success")

    assert review("")[0].startswith("nothing to review")
    assert as_json("review") == []
    assert type_command("review").exit_code == 0


@pytest.mark.usefixtures("twelve")
def test_status_and_doctor_say_that_nobody_has_looked(type_command, as_json, kp, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    told = "6 runs passed the gate and are not reviewed yet: kp-middleware review"
    assert told in type_command("status").stdout
    assert told in type_command("doctor").stdout

    kp.feedback(kp.review_queue(1)[0].trace_id, success=True)
    told = "5 of the last 6 runs that passed the gate are not reviewed yet: kp-middleware review"
    assert as_json("status")["review"]["in_words"] == told

    for item in kp.review_queue(50):
        kp.feedback(item.trace_id, success=True)
    assert "not reviewed" not in type_command("status").stdout
    assert "not reviewed" not in type_command("doctor").stdout


def test_private_runs_do_not_go(db, as_json, type_command):
    with KnowledgePulse(
        db=db, embedder=StandInEmbedder(), sync=True, threshold=0, visibility="private"
    ) as kp:
        kp.capture(lambda question: question)("one")

    assert [item["why"] for item in as_json("review")] == ["uncertain"]
    assert "would go" not in type_command("status").stdout


@pytest.mark.usefixtures("twelve")
def test_programs_get_the_same_queue(as_json, kp, tmp_path):
    items = kp.review_queue(4)

    assert [item.trace_id for item in items] == [
        item["trace_id"] for item in as_json("review", "-n", "4")
    ]
    assert items[0].way == ("I say it louder", "shout() → LOUD 5")
    with pytest.raises(ValueError, match="at least 1"):
        kp.review_queue(0)
    with KnowledgePulse(db=tmp_path / "none.db", embedder=StandInEmbedder()) as without_file:
        assert without_file.review_queue() == ()
