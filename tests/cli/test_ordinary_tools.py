"""The file is of use with tools that know nothing of us, while a program records into it."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing

import pytest

from kp_middleware.database import connect


@pytest.fixture
def recorded(agent, db):
    """A file with two traces, which is open for writing: what they are is partly in its WAL."""
    agent("How high is Mont Blanc?")
    agent("Who climbed it first?")
    with closing(connect(db)):
        yield db


def printed(*words):
    """Return the output of a program without our package on its path."""
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, check=True, cwd=os.sep, timeout=50
    )
    return done.stdout


def test_sqlite_utils_reads_views_and_finds_full_text(recorded):
    tool = (sys.executable, "-m", "sqlite_utils")

    rows = json.loads(printed(*tool, recorded, "SELECT tool, calls FROM tool_usage"))
    search = printed(*tool, "search", recorded, "traces", "climbing", "-c", "objective")

    assert rows == [{"tool": "shout", "calls": 2}]
    assert json.loads(search) == [{"objective": "Who climbed it first?"}]


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="the sqlite3 shell is not installed")
def test_the_shell_of_sqlite_reads_views_and_full_text(recorded):
    listed = printed(
        "sqlite3", "-readonly", recorded, "SELECT state, success, objective FROM history"
    )
    found = printed("sqlite3", "-readonly", recorded, "SELECT rowid FROM traces_fts('mont')")
    sound = printed("sqlite3", "-readonly", recorded, "PRAGMA integrity_check")

    assert listed == "not queued||How high is Mont Blanc?\nnot queued||Who climbed it first?\n"
    assert (found, sound) == ("1\n", "ok\n")


def test_pandas_has_numbers_as_numbers_and_instants_as_instants(recorded):
    pytest.importorskip("pandas", reason="pandas is not installed")
    code = (
        "import sqlite3, sys, pandas\n"
        "connection = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True)\n"
        "traces = pandas.read_sql('SELECT * FROM traces', connection, parse_dates=['started_at'])\n"
        "print(traces.score.dtype, traces.started_at.dt.tz, len(traces), traces.above.sum())\n"
    )

    assert printed(sys.executable, "-c", code, recorded) == "float64 UTC 2 2\n"


PAGES = {
    "history.json?": ("state", ["not queued", "not queued"]),
    "traces.json?": ("objective", ["How high is Mont Blanc?", "Who climbed it first?"]),
    "tool_usage.json?": ("calls", [2]),
    "traces.json?_search=climbing&": ("objective", ["Who climbed it first?"]),
}
WITHOUT_PLUGINS = "sys._called_from_test = True"
"""Datasette then loads no plugin that is installed, and so not ours."""
ANSWERS = """
from datasette.app import Datasette
async def answers(file, *pages):
    client = Datasette([file]).client
    return [(await client.get(f"/kp/{page}_shape=array")).json() for page in pages]
print(json.dumps(asyncio.run(answers(*sys.argv[1:]))))
"""


@pytest.mark.parametrize("start", [WITHOUT_PLUGINS, ""], ids=["no plugin", "as installed"])
def test_datasette_serves_tables_views_and_full_text(recorded, start):
    pytest.importorskip("datasette", reason="datasette is not installed: it is the extra ui")
    code = f"import asyncio, json, sys\n{start}{ANSWERS}"

    answers = json.loads(printed(sys.executable, "-c", code, recorded, *PAGES))

    for rows, (column, values) in zip(answers, PAGES.values(), strict=True):
        assert [row[column] for row in rows] == values
