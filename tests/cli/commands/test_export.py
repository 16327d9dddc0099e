"""Taking traces out of the file."""

import json
import os
import stat
from contextlib import closing

import pytest
from hand_made import put, run, step, with_value
from terminal import typed

from kp_middleware import ReasoningTrace
from kp_middleware.database import connect

MAIL = "anna@example.org"


@pytest.fixture
def traces(db):
    """Three traces, of which the second tells an address."""
    told = step("thought", content=f"I write to {MAIL}")
    put(db, run("one", step("thought", content="hm"), id="a"), with_value(0.5))
    put(db, run(f"write to {MAIL}", told, domain="code", id="b"), with_value(0.8))
    put(db, run("three", step("thought", content="hm"), id="c"))


@pytest.mark.parametrize(
    "words",
    [["export"], ["export", "--as-recorded"], ["export", "--as", "atif"], ["backup"], ["report"]],
    ids=str,
)
@pytest.mark.usefixtures("traces")
def test_a_link_to_what_is_not_there_is_refused(type_command, tmp_path, words):
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)

    results = [type_command(*words, str(link), *force) for force in ([], ["--force"])]

    assert [result.exit_code for result in results] == [2, 2]
    assert "is a dangling link: remove it, or choose another" in results[0].stderr
    assert not target.exists()


@pytest.fixture
def exported(type_command):
    """The traces that come out."""

    def export(*words):
        result = type_command("export", *words)
        assert result.exit_code == 0, result.stderr
        return [ReasoningTrace.model_validate_json(line) for line in result.stdout.splitlines()]

    return export


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


def unredactable(db, trace_id):
    """Makes this trace one that cannot be redacted: it is too deep."""
    with closing(connect(db)) as connection:
        deep = "[" * 70 + "]" * 70
        connection.execute(
            "UPDATE documents SET body = json_set(body, '$.steps[0].input', json(?))"
            " WHERE trace_seq = (SELECT seq FROM traces WHERE id = ?)",
            (f'{{"a": {deep}}}', f"kp:trace:{trace_id}"),
        )


@pytest.mark.usefixtures("traces")
def test_traces_come_out_the_oldest_first_with_their_scores(exported):
    traces = exported()

    assert [trace.id[9:] for trace in traces] == ["a", "b", "c"]
    assert [trace.metadata.quality_score for trace in traces] == [0.5, 0.8, 0.0]


@pytest.mark.usefixtures("traces")
def test_they_are_redacted_at_their_own_level(exported):
    trace = exported("-d", "code")[0]

    assert trace.task.objective == "write to [REDACTED:email]"
    assert trace.steps[0].content == "I write to [REDACTED:email]"


@pytest.mark.usefixtures("traces")
def test_the_user_s_own_rules_are_applied(exported, monkeypatch):
    monkeypatch.setenv("KP_REDACT_DENY", '["three"]')

    assert exported("--after", "b")[0].task.objective == "[REDACTED:denied]"


@pytest.mark.usefixtures("traces")
def test_raw_ones_are_as_they_were_recorded(exported):
    assert exported("--as-recorded", "-d", "code")[0].task.objective == f"write to {MAIL}"


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--above"], ["b"]),
        (["--after", "a"], ["b", "c"]),
        (["-q", "write"], ["b"]),
        (["--state", "recorded"], ["c"]),
        (["-d", "law"], []),
    ],
    ids=" ".join,
)
def test_it_has_the_filters_of_the_list(exported, words, ids):
    assert [trace.id[9:] for trace in exported(*words)] == ids


@pytest.mark.usefixtures("traces")
def test_what_cannot_be_redacted_is_left_out_and_said_to_be(type_command, db, out):
    unredactable(db, "b")

    result = type_command("export", str(out))

    assert result.exit_code == 6
    assert "skipped, because they could not be redacted: 1 too_deep\n" in result.stderr
    assert [json.loads(line)["id"][9:] for line in out.read_text().splitlines()] == ["a", "c"]


@pytest.mark.usefixtures("traces")
def test_what_cannot_be_read_is_left_out_too(type_command, db):
    with closing(connect(db)) as connection:
        connection.execute("UPDATE documents SET body = '{}'")

    result = type_command("export")

    assert (result.exit_code, result.stdout) == (6, "")
    assert "3 unreadable" in result.stderr


@pytest.mark.usefixtures("traces")
def test_raw_ones_that_cannot_be_read_are_left_out_too(type_command, db):
    with closing(connect(db)) as connection:
        connection.execute("UPDATE documents SET body = '{}' WHERE trace_seq < 3")

    result = type_command("export", "--as-recorded")

    assert result.exit_code == 6
    assert [id for id in "abc" if f"kp:trace:{id}" in result.stdout] == ["c"]
    assert result.stderr == "skipped, because they could not be read: 2 unreadable\n"


@pytest.mark.usefixtures("traces")
def test_raw_ones_need_not_be_redactable(exported, db):
    unredactable(db, "b")

    assert len(exported("--as-recorded", "--after", "b")) == 1


@pytest.mark.usefixtures("traces")
def test_a_file_is_for_its_user_alone(type_command, out):
    result = type_command("export", str(out))

    assert (result.stdout, result.stderr) == (
        "",
        f"3 runs written to {out}, described in manifest.json\n",
    )
    assert len(out.read_text("utf-8").splitlines()) == 3
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.usefixtures("traces")
def test_nothing_is_overwritten_unless_it_is_wanted(type_command, out):
    out.write_text("mine")

    refused = type_command("export", str(out))

    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert "exists: choose another name, or replace it with --force" in refused.stderr
    assert type_command("export", str(out), "--force").exit_code == 0
    assert len(out.read_text().splitlines()) == 3


@pytest.mark.usefixtures("traces")
def test_the_file_of_traces_is_never_overwritten(type_command, db):
    before = db.read_bytes()

    result = type_command("export", str(db), "--force")

    assert (result.exit_code, db.read_bytes()) == (2, before)
    assert "is part of the trace database" in result.stderr


@pytest.mark.usefixtures("traces")
def test_what_is_no_ordinary_file_is_never_replaced(type_command, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    result = type_command("export", str(tmp_path / "pipe"), "--force")

    assert result.exit_code == 2
    assert "is not a regular file" in result.stderr


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("name", "words"), [("out.jsonl", ["--after", "zzz"]), ("missing/out.jsonl", [])]
)
def test_after_an_error_nothing_is_left_behind(type_command, tmp_path, name, words):
    folder = tmp_path / "folder"
    folder.mkdir()

    result = type_command("export", str(folder / name), *words)

    assert (result.exit_code, [*folder.iterdir()]) == (1, [])
    assert result.stderr.startswith("Error: ")


def test_more_than_are_read_at_once_all_come_out(db, exported):
    with closing(connect(db)):
        [put(db, run(str(number), step("thought", content="hm"))) for number in range(401)]

    assert [trace.task.objective for trace in exported("--as-recorded")] == [
        str(n) for n in range(401)
    ]


def test_what_an_agent_read_cannot_steer_the_terminal(db):
    put(db, run("look \x1b[2J\x9b2J", step("thought", content="hm")))

    shown = typed("--db", str(db), "export", "--as-recorded")

    assert r"look \u001b[2J\u009b2J" in shown
