"""Taking traces out of the file."""

import json
from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value

from kp_middleware import ReasoningTrace
from kp_middleware.database import connect
from kp_middleware.storage import SqliteStore

MAIL = "anna@example.org"


@pytest.fixture
def traces(db):
    """Three traces, of which the second tells an address."""
    told = step("thought", content=f"I write to {MAIL}")
    put(db, run("one", step("thought", content="hm"), id="a"), with_value(0.5))
    put(db, run(f"write to {MAIL}", told, domain="code", id="b"), with_value(0.8))
    put(db, run("three", step("thought", content="hm"), id="c"))


@pytest.fixture
def exported(type_command):
    """The traces that come out."""

    def export(*words):
        result = type_command("export", *words)
        traces = [ReasoningTrace.model_validate_json(line) for line in result.stdout.splitlines()]
        assert result.exit_code == (0 if traces else 4), result.stderr
        return traces

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
def test_they_are_redacted_at_their_own_level_and_by_the_user_s_own_rules(exported, monkeypatch):
    (trace,) = exported("-d", "code")
    (raw,) = exported("--as-recorded", "-d", "code")

    assert trace.task.objective == "write to [REDACTED:email]"
    assert trace.steps[0].content == "I write to [REDACTED:email]"
    assert raw.task.objective == f"write to {MAIL}"
    monkeypatch.setenv("KP_REDACT_DENY", '["three"]')
    assert exported("--after", "b")[0].task.objective == "[REDACTED:denied]"


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--above"], ["b"]),
        (["--after", "a"], ["b", "c"]),
        (["-q", "write"], ["b"]),
        (["--state", "recorded"], ["c"]),
        (["-d", "code"], ["b"]),
    ],
    ids=" ".join,
)
def test_it_has_the_filters_of_the_list(exported, words, ids):
    assert [trace.id[9:] for trace in exported(*words)] == ids


@pytest.mark.usefixtures("traces")
def test_what_cannot_be_redacted_is_left_out_and_said_to_be_unless_it_is_as_recorded(
    type_command, exported, db, out
):
    unredactable(db, "b")

    result = type_command("export", str(out))

    assert result.exit_code == 6
    assert "skipped, because they could not be redacted: 1 too_deep\n" in result.stderr
    assert [json.loads(line)["id"][9:] for line in out.read_text().splitlines()] == ["a", "c"]
    assert len(exported("--as-recorded")) == 3


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("words", [[], ["--raw"]], ids=str)
def test_what_cannot_be_read_is_left_out_too(type_command, db, words):
    with closing(connect(db)) as connection:
        connection.execute("UPDATE documents SET body = '{}' WHERE trace_seq < 3")

    result = type_command("export", *words)

    assert result.exit_code == 6
    assert [id for id in "abc" if f"kp:trace:{id}" in result.stdout] == ["c"]
    assert "2 unreadable\n" in result.stderr


@pytest.mark.usefixtures("traces")
def test_a_file_is_said_to_be_written(type_command, out):
    result = type_command("export", str(out))

    assert (result.stdout, result.stderr) == (
        "",
        f"3 runs written to {out}, described in manifest.json\n",
    )
    assert len(out.read_text("utf-8").splitlines()) == 3


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
    with closing(connect(db)) as connection:
        store = SqliteStore(connection, scorer="by hand")
        [store.record(run(str(number), step("thought"))) for number in range(401)]

    assert [trace.task.objective for trace in exported("--as-recorded")] == [
        str(n) for n in range(401)
    ]
