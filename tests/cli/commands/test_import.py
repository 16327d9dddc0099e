"""``kp-middleware import``: what it says, where it looks, and the hook."""

import json

import pytest
from click.testing import CliRunner

from kp_middleware.cli import main

HOUR = "2026-11-01T{:02d}:00:00.000Z"


def line(kind, content, hour, id, parent=None):
    return json.dumps(
        {
            "type": kind,
            "uuid": id,
            "parentUuid": parent,
            "sessionId": "s1",
            "timestamp": HOUR.format(hour),
            "message": {"role": kind, "content": content},
        }
    )


def answer(words, hour, id, parent):
    return line("assistant", [{"type": "text", "text": words}], hour, id, parent)


SESSION = "\n".join(
    [
        line("user", "Find out why the tests fail.", 9, "u1"),
        answer("The clock is wrong.", 10, "a1", "u1"),
        line("user", "Mend it.", 11, "u2", "a1"),
        answer("It is mended.", 12, "a2", "u2"),
        '{"cut off',
    ]
)


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")


@pytest.fixture
def transcript(home):
    folder = home / ".claude" / "projects" / "-work-shop"
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").write_text(SESSION)
    return folder / "s1.jsonl"


@pytest.mark.model
@pytest.mark.usefixtures("transcript")
def test_with_a_model_the_most_unusual_are_named(type_command, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "minilm")

    assert "\n  most unusual\n" in type_command("import", "claude-code").stdout


@pytest.mark.usefixtures("transcript")
def test_it_looks_where_the_tool_keeps_its_sessions_and_ranks(type_command):
    result = type_command("import", "claude-code")

    assert result.exit_code == 0, result.output
    first, promise, *table, following = result.stdout.splitlines()
    assert first.startswith("  2 runs of 1 session, 1 Nov 2026")
    assert promise == "  private: never sent"
    assert "  richest" in table
    assert "  most unusual" not in table  # nobody measured it
    assert "Find out why" in "".join(table)
    assert following.startswith("  kp-middleware list --sort novelty · show ID --why · ui")
    assert result.stderr == ("  skipped: 1 not JSON (perhaps the session is still being written)\n")


@pytest.mark.usefixtures("transcript")
def test_a_dry_run_counts_and_makes_no_file(type_command, db):
    result = type_command("import", "claude-code", "--dry-run", "--json")

    assert json.loads(result.stdout) | {"took_s": 0} == {
        "dry_run": True,
        "runs": 2,
        "sessions": 1,
        "first_at": HOUR.format(9),
        "last_at": HOUR.format(11),
        "imported": 0,
        "new": 2,
        "known": 0,
        "files": {"claude-code": 1},
        "skipped": {"not_json": 1},
        "took_s": 0,
    }
    assert not db.exists()


@pytest.mark.parametrize("format_", ["claude-code", "auto"])
@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-16", "in UTF-16: convert with iconv -f UTF-16 -t UTF-8"),
        ("utf-16-be", "in UTF-16: convert with iconv -f UTF-16 -t UTF-8"),
        ("latin-1", "not UTF-8, probably Latin-1: convert with iconv"),
    ],
)
def test_another_encoding_is_named_with_the_remedy(
    type_command, transcript, format_, encoding, said
):
    line = SESSION.split("\n")[0].replace("Find out", "Trouvez l\xe0")
    transcript.write_bytes(line.encode(encoding))

    result = type_command("import", format_, str(transcript))

    assert f"  skipped: 1 {said}" in result.stderr
    assert "not JSON" not in result.stderr


@pytest.mark.usefixtures("transcript")
def test_without_a_run_nothing_of_earlier_imports_is_shown(type_command, tmp_path):
    type_command("import", "claude-code")
    other = tmp_path / "other.jsonl"
    other.write_text('{"messages": []}\n')

    result = type_command("import", "claude-code", str(other))

    assert "Find out why" not in result.stdout
    assert "no runs found: kp-middleware import auto PATH detects the format" in result.stderr


def test_a_folder_of_the_tools_own_is_honoured(type_command, transcript, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere" / "projects" / "p"
    elsewhere.mkdir(parents=True)
    transcript.rename(elsewhere / "s1.jsonl")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))

    dry = type_command("import", "auto", "--dry-run")
    result = type_command("import", "claude-code", "--json")

    assert dry.stdout.splitlines()[0] == "  1 file of claude-code"
    assert json.loads(result.stdout)["imported"] == 2


@pytest.fixture
def hook(db):
    """Runs the hook with this on its standard input."""
    return lambda told: CliRunner().invoke(main, ["--db", str(db), "import", "--hook"], input=told)


def test_the_hook_imports_the_session_that_it_names(hook, as_json, transcript):
    session = {"session_id": "s1", "transcript_path": str(transcript), "x": 1}

    result = hook(json.dumps(session))

    assert (result.exit_code, result.stdout) == (0, "")
    assert len(as_json("list")) == 2


@pytest.mark.parametrize("told", ["", "[]", "{}", '{"transcript_path": "/no/such"}', "[" * 10**5])
def test_a_hook_that_names_nothing_is_told_so(hook, told):
    result = hook(told)

    assert result.exit_code == 1  # 2 would keep Claude Code from stopping
    assert "--hook needs the JSON of Claude Code's Stop hook" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "missing FORMAT"),
        (["chatgpt"], "use claude-code, codex"),
        (["messages"], "name the files or folders"),
        (["codex"], "name a file or a folder"),
        (["messages", "/no/such/file"], "/no/such/file not found: name"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(type_command, words, told):
    result = type_command("import", *words)

    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.usefixtures("transcript")
def test_private_runs_have_a_column_of_their_own(type_command, as_json, monkeypatch):
    monkeypatch.setenv("KP_THRESHOLD", "0.1")
    type_command("import", "claude-code")

    calibrated = as_json("calibrate")
    counted = as_json("stats")

    by_setting = {one["setting"]: one for one in calibrated["settings"]}
    assert (calibrated["runs"], calibrated["private"]) == (0, 2)
    assert (by_setting[0.1]["let_through"], by_setting[0.1]["if_not_private"]) == (0, 2)
    assert by_setting[0.75]["if_not_private"] == 0
    assert (counted["private"], counted["if_not_private"]) == (2, 2)
    lines = type_command("stats").stdout.splitlines()
    assert "cleared          2" in lines
    assert "private          2  scored, never sent; 2 of them cleared" in lines


@pytest.mark.usefixtures("transcript")
def test_what_a_stopped_import_left_unscored_is_scored_by_the_next(type_command, connection):
    type_command("import", "claude-code")
    connection.execute("UPDATE traces SET state = 'recorded', score = NULL")

    result = type_command("import", "claude-code", "--json")

    assert json.loads(result.stdout)["known"] == 2
    states = connection.execute("SELECT DISTINCT state FROM traces").fetchall()
    assert states == [("scored",)]
