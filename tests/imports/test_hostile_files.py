import gzip
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from import_samples import (
    SAMPLES,
    claude,
    claude_answer,
    claude_session,
    conversation,
    langsmith_runs,
    lines,
    phoenix_spans,
)

from kp_middleware.imports import (
    FORMATS,
    ImportContext,
    RunDefaults,
    detect_format,
    find_files,
    read_runs,
)

SHARED = Path(__file__).parents[3] / "shared" / "adapters" / "imports"
THEIRS = sorted([*SHARED.glob("*.jsonl"), *SHARED.glob("*.sqlite")]) if SHARED.is_dir() else []

READABLE = [name for name in FORMATS if name != "traces"]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = [
    *("type", "role", "content", "message", "messages", "payload", "id", "uuid", "timestamp"),
    *("trace_id", "inputs", "outputs", "tool_calls", "function", "run_type", "steps", "source"),
    *("trajectory", "info", "extra", "usage", "name", "tool_use_id", "parentUuid", "observation"),
]
ODD = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=12,
)


def read_all(path, format_):
    context = ImportContext(format_)
    runs = [run.to_recorded(RunDefaults()) for run in read_runs(path, context)]
    return [run for run in runs if run is not None], context


def mutated(value, data):
    """The value with one part of it replaced by something odd."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: mutated(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], mutated(value[at], data), *value[at + 1 :]]
    return data.draw(ODD)


@pytest.mark.parametrize("format_", SAMPLES)
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wrong_types_anywhere_are_no_traceback(tmp_path, format_, data):
    path = tmp_path / "sample"
    values = [json.loads(line) for line in SAMPLES[format_].splitlines()] \
        if format_ != "swe_agent" else [json.loads(SAMPLES[format_])]  # fmt: skip
    at = data.draw(st.integers(0, len(values) - 1))
    values[at] = mutated(values[at], data)
    path.write_text(lines(*values))

    runs, context = read_all(path, format_)

    assert all(run.shape.steps for run in runs)
    assert set(context.skipped) <= {"unknown_type", "not_json", "no_agent", "no_content"}


@pytest.mark.parametrize("format_", SAMPLES)
def test_a_file_cut_anywhere_gives_what_can_be_read(tmp_path, format_):
    path = tmp_path / "sample"
    path.write_text(SAMPLES[format_])

    assert_readable_wherever_cut(path, format_, every=97)


@pytest.mark.skipif(not THEIRS, reason="the samples of ../shared are not there")
@pytest.mark.parametrize(
    "every", [97 * 41, pytest.param(97, marks=pytest.mark.slow)], ids=["some", "all"]
)
@pytest.mark.parametrize("sample", THEIRS, ids=lambda path: path.name)
def test_the_shared_samples_cut_anywhere_give_what_can_be_read(tmp_path, sample, every):
    path = tmp_path / "sample"
    path.write_bytes(sample.read_bytes())

    assert_readable_wherever_cut(path, detect_format(sample), every=every)


def assert_readable_wherever_cut(path, format_, *, every):
    """All of a cut file is there that ends before the cut, and only the cut is counted."""
    content, steps = path.read_bytes(), 0

    for end in range(0, len(content), every):
        path.write_bytes(content[:end])
        runs, context = read_all(path, format_)
        cuts = context.skipped["not_json"] + context.skipped["unreadable"]
        assert cuts <= 1 + content[:end].count(b"not JSON")
        assert "invalid" not in context.skipped
        now = sum(run.shape.steps for run in runs)
        assert now >= steps or format_ in {"claude-code", "messages"}
        steps = now


def test_a_line_that_is_too_long_is_skipped_and_counted(tmp_path):
    long = claude("assistant", "x" * (16 << 20), 2, id="a0", parent="u1")
    path = tmp_path / "sample"
    path.write_text(lines(long, *claude_session()))

    runs, context = read_all(path, "claude-code")

    assert len(runs) == 2
    assert context.skipped["too_long"] == 1


@pytest.mark.parametrize("format_", READABLE)
def test_what_is_nested_too_deeply_is_skipped_and_counted(tmp_path, format_):
    path = tmp_path / "sample"
    path.write_text("[" * 100_000 + "\n" + '{"a":' * 100_000 + "\n" + SAMPLES[format_])

    _, context = read_all(path, format_)

    assert context.skipped["too_deep"] >= 1


@pytest.mark.parametrize("depth", [300, 900])
def test_what_is_just_readable_does_not_fail_later(tmp_path, depth):
    deep = json.loads("[" * depth + "]" * depth)
    path = tmp_path / "sample"
    path.write_text(lines({"messages": conversation(deep)}))

    runs, context = read_all(path, "messages")

    assert len(runs) + context.skipped.total() == 1


def test_links_are_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.jsonl").write_text(SAMPLES["codex"])
    root = tmp_path / "sessions"
    root.mkdir()
    (root / "folder").symlink_to(tmp_path / "elsewhere")
    (root / "file.jsonl").symlink_to(tmp_path / "elsewhere" / "a.jsonl")
    (root / "own.jsonl").write_text(SAMPLES["codex"])
    context = ImportContext("codex")

    found = [*find_files("codex", root, context)]

    assert found == [root / "own.jsonl"]
    assert context.skipped == {"link": 2}


def test_files_of_another_user_are_not_read(tmp_path):
    path = Path("/etc/passwd")  # of root
    if os.geteuid() == 0:
        path = tmp_path / "theirs.jsonl"
        path.write_text(SAMPLES["codex"])
        os.chown(path, 12_345, -1)
    context = ImportContext("codex")

    found = [*find_files("codex", path, context)]

    assert found == []
    assert context.skipped == {"not_yours": 1}


@pytest.mark.parametrize("format_", ["langsmith", "langfuse", "otlp"])
def test_parents_in_a_circle_and_parents_a_thousand_deep_are_runs(tmp_path, format_):
    names = {"langsmith": "parent_run_id", "langfuse": "parent_observation_id"}
    at, path = names.get(format_, "parent_id"), tmp_path / "sample"
    rows = phoenix_spans() if format_ == "otlp" else map(json.loads, SAMPLES[format_].splitlines())
    _, second, third, *_ = rows = [*rows]
    ids = [row.get("id") or row["context"]["span_id"] for row in (second, third)]
    circle = [*rows, {**second, at: ids[1]}, {**third, at: ids[0]}]
    deep = [{**second, **named(number, second), at: f"d{number - 1}"} for number in range(1000)]

    path.write_text(lines(*circle, *deep))
    runs, context = read_all(path, format_)

    assert runs
    assert set(context.skipped) <= {"no_agent"}


def named(number, row):
    return (
        {"context": {**row["context"], "span_id": f"d{number}"}}
        if "context" in row
        else {"id": f"d{number}"}
    )


@pytest.mark.slow
def test_a_big_file_takes_little_memory_while_it_is_written(tmp_path):
    """With a line of 50 MB in it; 200 MB are allowed for a file of any size."""
    path, done = tmp_path / "s1.jsonl", tmp_path / "done.json"
    words = "the quick brown fox " * 5_000
    with path.open("w") as file:
        file.write(lines(claude("user", "x" * 50_000_000, 0, id="u0")))
        for at in range(20):
            file.write(lines(claude("user", f"Do {at}.", at, id=f"u{at}")))
            for step in range(80):
                said = claude_answer(words, at, id=f"a{at}-{step}", parent=f"u{at}")
                file.write(lines(said))
    program = f"""
import json, resource, sys
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with KnowledgePulse(db={str(tmp_path / "kp.db")!r}, embedder=StandInEmbedder()) as kp:
    before = peak()
    found = kp.import_runs("claude-code", {str(path)!r})
    json.dump([peak() - before, found.new, found.skipped], open({str(done)!r}, "w"))
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    grown_kb, new, skipped = json.loads(done.read_text())
    assert path.stat().st_size > 200_000_000
    assert (new, skipped) == (20, {"too_long": 1})
    assert grown_kb < 200_000


def test_parts_of_sessions_are_no_sessions(tmp_path):
    (tmp_path / "s1" / "subagents").mkdir(parents=True)
    (tmp_path / "s1" / "subagents" / "a.jsonl").write_text(SAMPLES["claude-code"])
    (tmp_path / "s1.jsonl").write_text(SAMPLES["claude-code"])

    found = [*find_files("claude-code", tmp_path, ImportContext("claude-code"))]

    assert found == [tmp_path / "s1.jsonl"]


def test_nothing_is_written_beside_a_session_of_the_agents_sdk(tmp_path):
    path = tmp_path / "session.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("CREATE TABLE agent_messages (id, session_id, message_data, created_at)")
        for at, message in enumerate(conversation()):
            row = (at, "s1", json.dumps(message), "2026-11-01 09:00:00")
            file.execute("INSERT INTO agent_messages VALUES (?, ?, ?, ?)", row)
        file.commit()

    runs, _ = read_all(path, "messages")

    assert [run.shape.steps for run in runs] == [7]
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_is_no_text_is_counted(tmp_path):
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 8)

    _, context = read_all(path, "messages")

    assert context.skipped == {"unreadable": 1}


def test_a_file_of_gzip_is_read_as_what_is_in_it(tmp_path):
    plain, packed, cut = (tmp_path / name for name in ("plain.jsonl", "packed.jsonl.gz", "cut.gz"))
    plain.write_text(lines(*(conversation() for _ in range(200))))
    packed.write_bytes(gzip.compress(plain.read_bytes(), 0))
    cut.write_bytes(packed.read_bytes()[:-2000])

    kept, _ = read_all(packed, "messages")
    some, context = read_all(cut, "messages")

    assert len(kept) == len(read_all(plain, "messages")[0]) == 200
    assert 0 < len(some) < 200
    assert context.skipped["unreadable"] == 1


def test_an_array_that_is_cut_gives_the_elements_before(tmp_path):
    path = tmp_path / "sample.json"
    whole = json.dumps([{"messages": conversation()} for _ in range(200)])
    path.write_text(whole[: len(whole) // 2])

    runs, context = read_all(path, "messages")

    assert 90 < len(runs) < 110
    assert context.skipped["not_json"] == 1


def test_an_error_full_of_quotes_is_read_at_once(tmp_path):
    path = tmp_path / "sample.jsonl"
    root, *_, last = langsmith_runs()
    path.write_text(lines(root, {**last, "error": "E(" + '"' * 20_000 + "no"}))

    (run,), _ = read_all(path, "langsmith")

    assert run.trace.steps[-1].output_summary.startswith("Error: E(")
