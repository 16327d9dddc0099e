"""Scoring anew from the command line: what it says, and that all commands agree with it."""

import json
import os
import subprocess
import sys
from contextlib import closing

import pytest

from kp_middleware.database import connect

SURE = {"complexity": 0, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 1}


@pytest.fixture
def ten(agent, monkeypatch):
    """Ten traces, and settings by which their confidence is all that counts."""
    [agent(f"word {number}") for number in range(10)]
    monkeypatch.setenv("KP_EMBEDDER", "none")
    monkeypatch.setenv("KP_PROFILES", json.dumps({"code": SURE}))
    monkeypatch.setenv("KP_THRESHOLD", "0.7")


@pytest.mark.usefixtures("ten")
def test_it_says_what_would_become_of_them_and_what_became_of_them(type_command, as_json):
    before = type_command("list", "--json").stdout

    dry = type_command("rescore", "--dry-run")
    counts = as_json("rescore", "--dry-run", "--domain", "code")
    after = type_command("list", "--json").stdout
    result = type_command("rescore")

    assert dry.stdout.startswith("10 would be rescored in ")
    assert counts.pop("took_s") >= 0
    assert counts == {
        **dict.fromkeys(("unchanged", "cleared", "queued", "withdrawn", "cancelled"), 0),
        **dict.fromkeys(("left", "overtaken", "unscored", "embedded"), 0),
        "dry_run": True,
        "scored": 10,
        "changed": 10,
    }
    assert after == before
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("10 rescored in ")
    assert result.stdout.endswith(" a second: 10 changed\n")


@pytest.mark.usefixtures("ten")
def test_all_commands_agree_with_it(type_command, as_json):
    type_command("rescore")

    (row,) = as_json("list", "-n", "1")
    shown = as_json("show", "@last")
    explained = as_json("show", "@last", "--why")
    assert row["score"] == shown["score"] == pytest.approx(0.8)
    assert explained["score"] == explained["recorded_score"] == pytest.approx(0.8)
    assert (shown["novelty"], shown["gate"], row["state"]) == (0.5, "threshold 0.7", "not queued")


@pytest.mark.usefixtures("ten")
@pytest.mark.parametrize("words", [["--domain", "law"], ["--since", "2999-01-01"]])
def test_where_nothing_is_meant_it_says_so(type_command, words):
    result = type_command("rescore", *words)

    assert (result.exit_code, result.stdout) == (0, "nothing to rescore\n")


@pytest.mark.usefixtures("ten")
def test_without_the_model_nothing_is_changed(type_command, db, tmp_path):
    before = type_command("list", "--json").stdout
    there_is_none = {"KP_EMBEDDER": "minilm", "KP_MODEL_PATH": str(tmp_path)}

    done = subprocess.run(  # this process may have a model
        [sys.executable, "-m", "kp_middleware", "--db", str(db), "rescore"],
        env={**os.environ, **there_is_none},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing was changed" in done.stderr
    assert "KP_MODEL_PATH" in done.stderr
    assert type_command("list", "--json").stdout == before


@pytest.mark.usefixtures("ten")
def test_what_cannot_be_read_is_reported_in_one_line_with_an_id_to_look_at(
    type_command, as_json, db
):
    with closing(connect(db)) as connection:
        connection.execute("DELETE FROM documents WHERE trace_seq > 2")
        third = as_json("list")[-3]["id"]

    result = type_command("rescore")

    said = [line for line in result.stderr.splitlines() if "cannot be read" in line]
    assert len(said) == 1
    assert said[0].startswith("8 runs cannot be read and were skipped; the first is ")
    name = said[0].split()[-1]
    assert as_json("show", name)["id"] == third
    assert result.stdout.endswith("2 changed, 8 cannot be scored\n")
