import json

import pytest

from kp_middleware import KnowledgePulse, ReasoningTrace, Step

TASK = "Refund the broken lamp of order A1, please."
OTHERS = ("Bake a cake with plums.", "Translate the letter into Danish.", "Count all open tickets.")


@pytest.fixture(autouse=True)
def kp(db, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    with KnowledgePulse(db=db, sync=True) as kp:
        for objective in (*OTHERS, TASK):
            kp.submit(ReasoningTrace.of(objective, [Step(step_id=0, type="thought", content="x")]))
        yield kp


def test_what_worked_is_shown(as_json):
    (told,) = as_json("recall", "refund a broken lamp")

    assert told["objective"] == TASK
    assert "order A1" in told["digest"]
    assert (told["success_source"], told["age_days"]) == ("said", 0)


def test_what_nobody_confirmed_is_reported_if_asked_for(type_command, kp):
    kp.capture(lambda question: question)("Paint the fence of the old garden green.")
    task = ("recall", "paint the garden fence green", "--json")

    assert json.loads(type_command(*task).stdout) == []
    (told,) = json.loads(type_command(*task, "--unconfirmed").stdout)
    assert told["success_source"] == "assumed"
    assert "not confirmed" in told["digest"]


def test_it_explains_what_is_near_and_does_not_fit(type_command):
    result = type_command("recall", "count the plums of the garden", "--explain", "--json")
    rows = json.loads(result.stdout)

    assert [row["recalled"] for row in rows] == [False] * len(rows)
    assert all(row["fit"] < row["bar"] for row in rows)
    assert "count" in {row["shared"] for row in rows}
    assert "no match" in result.stderr


def test_where_nothing_is_known_to_have_succeeded_it_says_so(type_command, tmp_path):
    file = tmp_path / "unjudged.db"
    with KnowledgePulse(db=file, sync=True) as kp:
        kp.capture(lambda question: question)(TASK)

    for words in ([], ["--explain"]):
        result = type_command("--db", str(file), "recall", TASK, *words)
        assert result.stdout == ""
        assert "no run is known to have succeeded" in result.stderr
        assert "kp-middleware review" in result.stderr
    unconfirmed = type_command("--db", str(file), "recall", TASK, "--unconfirmed", "--explain")
    assert TASK in unconfirmed.stdout


def test_switched_off_it_says_so(type_command, monkeypatch):
    monkeypatch.setenv("KP_RECALL", "false")

    result = type_command("recall", TASK)

    assert (result.stdout, result.exit_code) == ("", 0)
    assert "recall is disabled" in result.stderr


def test_where_nothing_was_recalled_only_that_is_said(type_command):
    result = type_command("stats", "--by", "recalled")

    assert result.stdout == ""
    assert result.stderr.startswith("too few to compare")


def test_runs_with_a_recall_are_compared_with_the_others(type_command, kp):
    @kp.capture
    def answer(question):
        return str(len(kp.recall(question)))

    answer(TASK)
    answer("Sing a song.")
    result = type_command("stats", "--by", "recalled", "--json")
    rows = json.loads(result.stdout)

    assert [(row["recalled"], row["traces"], row["known"]) for row in rows] == [
        (True, 1, 0),
        (False, 1, 0),
    ]
    assert "too few to compare" in result.stderr
