import gzip
import json
import os
import sqlite3
import subprocess
import sys
import time
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

from kp_middleware.imports import FORMATS, ImportContext, detect_format, find_files

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
def test_wrong_types_anywhere_are_no_traceback(read, format_, data):
    whole = [SAMPLES[format_]] if format_ == "swe-agent" else SAMPLES[format_].splitlines()
    values = [*map(json.loads, whole)]
    at = data.draw(st.integers(0, len(values) - 1))
    values[at] = mutated(values[at], data)

    runs, context = read(format_, lines(*values))

    assert all(run.shape.steps for run in runs)
    assert set(context.skipped) <= {"unknown_type", "not_json", "no_agent", "no_content"}


@pytest.mark.parametrize("format_", SAMPLES)
def test_a_file_cut_anywhere_gives_what_can_be_read(read, format_):
    assert_readable_wherever_cut(read, format_, SAMPLES[format_].encode(), every=97)


@pytest.mark.skipif(not THEIRS, reason="the samples of ../shared are not there")
@pytest.mark.parametrize(
    "every", [97 * 41, pytest.param(97, marks=pytest.mark.slow)], ids=["some", "all"]
)
@pytest.mark.parametrize("sample", THEIRS, ids=lambda path: path.name)
def test_the_shared_samples_cut_anywhere_give_what_can_be_read(read, sample, every):
    format_ = detect_format(sample)

    assert_readable_wherever_cut(read, format_, sample.read_bytes(), every=every)


def assert_readable_wherever_cut(read, format_, content, *, every):
    """All of a cut file is there that ends before the cut, and only the cut is counted."""
    steps = 0

    for end in range(0, len(content), every):
        runs, context = read(format_, content[:end])
        cuts = context.skipped["not_json"] + context.skipped["unreadable"]
        assert cuts <= 1 + content[:end].count(b"not JSON")
        assert "invalid" not in context.skipped
        now = sum(run.shape.steps for run in runs)
        assert now >= steps or format_ in {"claude-code", "messages"}
        steps = now


def test_a_line_that_is_too_long_is_skipped_and_counted(read):
    long = claude("assistant", "x" * (16 << 20), 2, id="a0", parent="u1")

    runs, context = read("claude-code", lines(long, *claude_session()))

    assert len(runs) == 2
    assert context.skipped["too_long"] == 1


@pytest.mark.parametrize("format_", READABLE)
def test_what_is_nested_too_deeply_is_skipped_and_counted(read, format_):
    deep = "[" * 100_000 + "\n" + '{"a":' * 100_000 + "\n"

    _, context = read(format_, deep + SAMPLES[format_])

    assert context.skipped["too_deep"] >= 1


@pytest.mark.parametrize("depth", [300, 900])
def test_what_is_just_readable_does_not_fail_later(read, depth):
    deep = json.loads("[" * depth + "]" * depth)

    runs, context = read("messages", lines({"messages": conversation(deep)}))

    assert len(runs) + context.skipped.total() == 1


def test_neither_links_nor_parts_of_sessions_are_sessions(tmp_path):
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "sessions"
    for folder in (elsewhere, root, root / "s1" / "subagents"):
        folder.mkdir(parents=True)
        (folder / "s1.jsonl").write_text(SAMPLES["claude-code"])
    (root / "folder").symlink_to(elsewhere)
    (root / "file.jsonl").symlink_to(elsewhere / "s1.jsonl")
    context = ImportContext("claude-code")

    found = [*find_files("claude-code", root, context)]

    assert found == [root / "s1.jsonl"]
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
def test_parents_in_a_circle_and_parents_a_thousand_deep_are_runs(read, format_):
    names = {"langsmith": "parent_run_id", "langfuse": "parent_observation_id"}
    at = names.get(format_, "parent_id")
    rows = phoenix_spans() if format_ == "otlp" else map(json.loads, SAMPLES[format_].splitlines())
    _, second, third, *_ = rows = [*rows]
    ids = [row.get("id") or row["context"]["span_id"] for row in (second, third)]
    circle = [*rows, {**second, at: ids[1]}, {**third, at: ids[0]}]
    deep = [{**second, **named(number, second), at: f"d{number - 1}"} for number in range(1000)]

    runs, context = read(format_, lines(*circle, *deep))

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
import json, resource
from collections import deque
from itertools import chain
from pathlib import Path
from kp_middleware.pipeline import Import, ImportRequest
from kp_middleware import Settings
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
db = Path({str(tmp_path / "kp.db")!r})
wanted = ImportRequest.from_paths("claude-code", [{str(path)!r}])
with Import(SqliteStore.at(db), Settings(db=db), StandInEmbedder(), wanted) as importing:
    before = peak()
    deque(chain(importing.read(), importing.write()), maxlen=0)
    found = importing.result
    json.dump([peak() - before, found.new, found.skipped], open({str(done)!r}, "w"))
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    grown_kb, new, skipped = json.loads(done.read_text())
    assert path.stat().st_size > 200_000_000
    assert (new, skipped) == (20, {"too_long": 1})
    assert grown_kb < 200_000


def test_nothing_is_written_beside_a_session_of_the_agents_sdk(read, tmp_path):
    path = tmp_path / "session.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("CREATE TABLE agent_messages (id, session_id, message_data, created_at)")
        for at, message in enumerate(conversation()):
            row = (at, "s1", json.dumps(message), "2026-11-01 09:00:00")
            file.execute("INSERT INTO agent_messages VALUES (?, ?, ?, ?)", row)
        file.commit()

    runs, _ = read("messages", path)

    assert [run.shape.steps for run in runs] == [7]
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_is_no_text_is_counted(read):
    _, context = read("messages", b"SQLite format 3\0" + bytes(range(256)) * 8)

    assert context.skipped == {"unreadable": 1}


def test_a_file_of_gzip_is_read_as_what_is_in_it(read):
    whole = lines(*(conversation(f"{number} EUR") for number in range(200)))
    packed = gzip.compress(whole.encode(), 0)

    kept, _ = read("messages", packed)
    some, context = read("messages", packed[:-2000])

    assert len(kept) == 200
    assert 0 < len(some) < 200
    assert context.skipped["unreadable"] == 1


def test_an_array_that_is_cut_gives_the_elements_before(read):
    whole = json.dumps([{"messages": conversation(f"{number} EUR")} for number in range(200)])

    runs, context = read("messages", whole[: len(whole) // 2])

    assert 90 < len(runs) < 110
    assert context.skipped["not_json"] == 1


def test_an_error_full_of_quotes_is_read_at_once(read):
    root, *_, last = langsmith_runs()

    (run,), _ = read("langsmith", lines(root, {**last, "error": "E(" + '"' * 20_000 + "no"}))

    assert run.trace.steps[-1].output_summary.startswith("Error: E(")


def test_an_answer_with_many_results_of_the_providers_tools_is_read_at_once(read):
    calls = [{"type": "tool_use", "id": f"{n}", "name": "search"} for n in range(9000)]
    results = [{"type": "tool_result", "tool_use_id": f"{n}"} for n in reversed(range(9000))]
    answer, began_s = {"role": "assistant", "content": [*calls, *results]}, time.process_time()

    (run,), _ = read("messages", lines({"messages": [*conversation("12 EUR")[:1], answer]}))

    assert run.shape.steps == 18_000
    assert time.process_time() - began_s < 3
