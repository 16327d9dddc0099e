"""The rules for all imports, at the door of the pipeline, and what is in the file then."""

import gzip
import json
import os
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime

import pytest
from import_samples import (
    SAMPLES,
    claude,
    claude_answer,
    claude_session,
    conversation,
    langfuse_observations,
    langsmith_runs,
    lines,
)

from kp_middleware import KnowledgePulse, Settings
from kp_middleware.database import connect
from kp_middleware.pipeline import Import, ImportRequest
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder

SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "sources"
    made.mkdir()
    return made


@pytest.fixture
def import_all(db, folder, import_runs):
    """Import what is in the folder, and this as a file of it; returns what was found."""

    def of(format_, content=None, **how):
        if content is not None:
            (folder / "s1.jsonl").write_text(content)
        return import_runs(db, format_, folder, **how)

    return of


@pytest.fixture
def rows(db):
    def of(columns, order="seq"):
        with closing(connect(db, read_only=True)) as connection:
            return connection.execute(f"SELECT {columns} FROM traces ORDER BY {order}").fetchall()

    return of


def test_imported_runs_are_private_and_never_exported_and_their_outcome_is_assumed(
    import_all, db, rows, monkeypatch
):
    monkeypatch.setenv("KP_THRESHOLD", "0")
    exported = []

    with KnowledgePulse(
        db=db, embedder=StandInEmbedder(), exporter=exported.append, sync=True
    ) as kp:
        import_all("claude-code", SAMPLES["claude-code"], domain="code")
        kp.flush()

    assert exported == []
    columns = "domain, visibility, state, framework, success_source, confidence_source"
    expected = ("code", "private", "scored", "claude-code", "assumed", "assumed")
    assert rows(columns) == [expected] * 2


@pytest.mark.parametrize(
    ("how", "columns", "expected"),
    [
        ({"shareable": True}, "visibility", [("network",), ("network",)]),
        ({"whole_sessions": True}, "step_count, thread_id", [(7, "s1")]),
        (
            {"since_s": datetime(2026, 11, 1, 9, 0, 5, tzinfo=UTC).timestamp()},
            "objective",
            [("Then tomorrow.",)],
        ),
    ],
    ids=["shareable", "whole sessions", "since"],
)
def test_options_change_what_is_imported(import_all, rows, how, columns, expected):
    import_all("claude-code", SAMPLES["claude-code"], **how)

    assert rows(columns) == expected


@pytest.mark.parametrize("format_", SAMPLES)
def test_what_is_imported_again_is_the_same_run(import_all, folder, rows, format_):
    suffix = {"swe-agent": ".traj", "atif": ".json"}.get(format_, ".jsonl")
    (folder / f"sample{suffix}").write_text(SAMPLES[format_])

    first = import_all(format_)
    before = rows("seq, id, score, started_at")
    second = import_all(format_.replace("-", "_"))

    assert (first.known, second.new, second.known) == (0, 0, len(before))
    assert rows("seq, id, score, started_at") == before != []


def test_a_session_that_went_on_is_brought_up_to_date(import_all, rows):
    session = claude_session()
    import_all("claude-code", lines(*session[:6]))
    before = rows("id, state, step_count")

    importing = import_all("claude-code", lines(*session))

    after = rows("id, state, step_count")
    assert [state for _, state, _ in before] == ["incomplete"]
    assert [state for _, state, _ in after] == ["scored", "scored"]
    assert (after[0][0], after[0][2]) == (before[0][0], before[0][2] + 1)
    assert importing.new == 2


def test_each_run_is_either_new_or_known(import_all, folder):
    session = claude_session()
    import_all("claude-code", lines(*session[:6]))
    (folder / "an older copy.jsonl").write_text(lines(*session[:6]))
    left = [
        claude("user", "Rather today.", 20, id="u9", parent="a3"),
        claude_answer("Today.", 21, id="a9", parent="u9"),
    ]

    grown = import_all("claude-code", lines(*session))
    rewound = import_all("claude-code", lines(*session, *left))

    assert (grown.runs, grown.new, grown.known) == (2, 2, 0)
    assert (rewound.runs, rewound.new, rewound.known) == (2, 1, 1)


def test_feedback_on_an_imported_run_outlives_the_next_import(import_all, rows, db):
    session = claude_session()
    import_all("claude-code", lines(*session[:7]))
    ((id,),) = rows("id")
    with KnowledgePulse(db=db, embedder=None, sync=True) as kp:
        kp.feedback(id, success=False)

    more = claude_answer("And more.", 7, id="a9", parent="a3")
    import_all("claude-code", lines(*session[:7], more))

    assert rows("success, success_source") == [(0, "feedback")]


def test_times_are_those_of_the_source_and_decide_the_order(import_all, folder, rows):
    (folder / "a.jsonl").write_text(lines(*langsmith_runs("late", 30)))
    (folder / "b.jsonl").write_text(lines(*langsmith_runs("early", 1)))

    import_all("langsmith")

    assert rows("started_at, duration_ms") == [
        ("2026-11-01T09:01:00.000Z", 9000),
        ("2026-11-01T09:30:00.000Z", 9000),
    ]
    novelty = [value for (value,) in rows("novelty")]
    assert novelty[0] > novelty[1]


def test_without_times_the_order_is_that_of_the_lines(import_all, folder, rows):
    asked = [conversation(f"result {number}") for number in range(12)]
    (folder / "chat.jsonl").write_text(lines(*({"messages": one} for one in asked)))
    os.utime(folder / "chat.jsonl", (1_780_000_000, 1_780_000_000))

    import_all("messages")

    found = rows(
        "(SELECT output_summary FROM steps WHERE trace_seq = seq AND output_summary LIKE 'r%')"
    )
    assert found == [(f"result {number}",) for number in range(12)]
    assert rows("DISTINCT started_at, duration_ms", "1") == [("2026-05-28T20:26:40.000Z", None)]


def test_secrets_are_removed_before_anything_is_written(import_all, db):
    session = claude_session()
    session.insert(3, claude("user", f"My key is {SECRET}.", 0, id="u5"))
    session.insert(4, claude_answer(f"I use {SECRET}.", 1, id="a5", parent="u5"))

    import_all("claude-code", lines(*session))

    written = b"".join(file.read_bytes() for file in db.parent.glob("kp.db*"))
    assert b"My key is" in written
    assert SECRET.encode() not in written


def test_what_is_kept_of_a_run_is_bounded(import_all, rows):
    session = [claude("user", "Begin.", 0, id="u1")]
    session += [claude_answer("x" * 70_000, 1 + n, id=f"a{n}", parent="u1") for n in range(20)]

    import_all("claude-code", lines(*session))

    ((steps, size),) = rows(
        "step_count, (SELECT length(body) FROM documents WHERE trace_seq = seq)"
    )
    assert steps == 21
    assert size < 1_200_000


def test_what_was_interrupted_stays_and_the_next_import_goes_on(import_all, folder, rows, db):
    asked = [conversation(f"result {number}") for number in range(20)]
    (folder / "chat.jsonl").write_text(lines(*({"messages": one} for one in asked)))
    wanted = ImportRequest("messages", (folder,))
    with (
        closing(connect(db)) as connection,
        Import(SqliteStore(connection), Settings(db=db), StandInEmbedder(), wanted) as stopped,
    ):
        assert len([*stopped.read()]) == 20
        next(done for done in stopped.write() if done == 5)

    kept = len(rows("id"))
    found = import_all("messages")

    assert 5 <= kept < 20
    assert (found.known, found.new) == (kept, 20 - kept)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["chatgpt"], "use claude-code"),
        (["messages"], "name the files"),
        (["atif", "/no"], "/no"),
    ],
)
def test_what_cannot_be_meant_is_a_value_error(words, remedy):
    with pytest.raises(ValueError, match=remedy):
        ImportRequest.from_paths(words[0], words[1:])


def test_counts_tell_runs_sessions_dates_and_what_was_skipped(import_all, folder):
    (folder / "s2.jsonl").write_text(lines(*claude_session("s2")))

    importing = import_all("claude-code", SAMPLES["claude-code"] + '{"cut')

    assert importing[:4] == (4, 2, "2026-11-01T09:00:01.000Z", "2026-11-01T09:00:10.000Z")
    assert importing.skipped == {"not_json": 1, "unknown_type": 2}
    assert importing.files == {"claude-code": 2}


def test_auto_detects_the_format_of_each_file(import_all, folder):
    suffixes = {"swe-agent": ".traj", "atif": ".json"}
    for name, content in SAMPLES.items():
        packed = gzip.compress(content.encode())
        (folder / f"{name}{suffixes.get(name, '.jsonl')}.gz").write_bytes(packed)
    (folder / "other.json").write_text('{"a": 1}')
    codex = [{"id": "s0", "timestamp": "2025-05-07T17:24:21.123Z"}, {"record_type": "state"}]
    (folder / "a-first-codex.jsonl").write_text(lines(*codex))
    pages = {"data": langfuse_observations()}, {"runs": langsmith_runs("t3", 2)}
    for name, page in zip(("langfuse", "langsmith"), pages, strict=True):
        (folder / f"a-page-of-{name}.json").write_text(json.dumps({**page, "meta": {}}))

    importing = import_all("auto")

    assert importing.files == Counter([*SAMPLES, "codex", "langfuse", "langsmith"])
    assert importing.skipped["unknown_format"] == 1


@pytest.mark.parametrize(
    ("format_", "rows", "key"),
    [("langsmith", langsmith_runs(), "runs"), ("langfuse", langfuse_observations(), "data")],
)
def test_an_answer_of_an_api_is_what_its_rows_are(read, format_, rows, key):
    (run,), _ = read(format_, lines(*rows))
    (same,), context = read(format_, json.dumps({key: rows, "next_cursor": None}))

    assert (same.trace, same.input_tokens) == (run.trace, run.input_tokens)
    assert context.skipped == {}


def test_an_export_of_ours_keeps_its_ids(import_all, folder, db, rows, kp):
    kp.capture(lambda question: question.upper())("hello")
    ((id, document),) = rows("id, (SELECT body FROM documents WHERE trace_seq = seq)")
    (folder / "export.jsonl").write_text(f'{document}\n{{"@type": "ReasoningTrace"}}\n{{"a": 1}}\n')

    again = import_all("traces")
    kp.close()
    [file.unlink() for file in db.parent.glob("kp.db*")]
    fresh = import_all("traces")

    assert (again.known, again.new, fresh.new) == (1, 0, 1)
    assert fresh.skipped == {"invalid": 1, "unknown_type": 1}
    assert rows("id, visibility, domain") == [(id, "private", "general")]


def test_the_reward_of_a_trial_of_harbor_is_beside_its_trajectory(import_all, folder, rows):
    (folder / "agent").mkdir()
    trajectory = json.loads(SAMPLES["atif"]) | {"extra": None}
    (folder / "agent" / "trajectory.json").write_text(json.dumps(trajectory))
    result = {"verifier_result": {"rewards": {"reward": 0.0}}}
    (folder / "result.json").write_text(json.dumps(result))

    importing = import_all("auto")

    assert rows("success, success_source") == [(0, "verdict")]
    assert importing.skipped == {"unknown_format": 1}
