"""Outputs for the same runs are unchanged; `make golden` rewrites them for review."""

import asyncio
import hashlib
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from datasette.app import Datasette
from recorded_conversations import read_recordings
from scene import (
    Masks,
    delivery_to,
    page_text,
    posted,
    record_conversation,
    record_demo,
    rows_of,
    settings_of,
)

from kp_middleware import KnowledgePulse
from kp_middleware.cli import main
from kp_middleware.testing import LocalRegistry

EXPECTED = Path(__file__).parent / "expected"
IS_WRITING = "WRITE_GOLDEN" in os.environ

COMMANDS = {
    "list": ["list", "--json"],
    "list-near": ["list", "--near", "--json"],
    "list-tool": ["list", "--tool", "convert", "--json"],
    "search": ["list", "-q", "mortgage", "--json"],
    "show-best": ["show", "@best", "--json"],
    "show-best-markdown": ["show", "@best", "--md"],
    "show-last": ["show", "@last", "--json"],
    "explain-best": ["show", "@best", "--why", "--json"],
    "explain-last": ["show", "@last", "--why", "--json"],
    "similar": ["similar", "@best", "--json"],
    "diff": ["diff", "@best", "@last", "--json"],
    "stats": ["stats", "--json"],
    "stats-by-domain": ["stats", "--by", "domain", "--json"],
    "calibrate": ["calibrate", "--json"],
    "tools": ["stats", "--by", "tool", "--json"],
    "sql": ["sql", "select state, count(*) from traces group by state", "--json"],
    "status": ["status", "--json"],
    "outbox": ["outbox", "list", "--json"],
    "export": ["export", "-"],
    "rescore": ["rescore", "--dry-run", "--json"],
    "feedback": ["feedback", "@last", "--failure", "--json"],
}
PAGES = {
    "overview": "/-/kp/kp",
    "what-if-page": "/-/kp/kp/what-if",
    "found": "/-/kp/kp/runs?q=mortgage",
    "run-page": "/-/kp/kp/traces/@best",
}


@pytest.fixture(scope="module")
def recorded_scene(tmp_path_factory):
    """The demo's runs and our own conversations, in a file, and what a registry got of them."""
    db = tmp_path_factory.mktemp("golden") / "kp.db"
    ours = read_recordings(Path(__file__).parents[1] / "adapters/kp_langchain/conversations.jsonl")
    with LocalRegistry() as registry:
        with KnowledgePulse(**settings_of(db), **delivery_to(registry)) as kp:
            record_demo(kp)
            for recording in ours:
                record_conversation(kp, recording)
            assert not kp.flush(timeout_s=30)
        yield db, registry


@pytest.fixture(scope="module")
def file(recorded_scene):
    return recorded_scene[0]


@pytest.fixture
def copy(file, tmp_path):
    """For commands that change it."""
    path = tmp_path / "kp.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("VACUUM INTO ?", (str(path),))
    return path


@pytest.fixture
def assert_as_before(file):
    """Holds a text against what was written down of it, or writes it down."""

    def check(name, text, kind="txt"):
        text = Masks(file).mask(text).rstrip() + "\n"
        path = EXPECTED / f"{name}.{kind}"
        if IS_WRITING:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text()

    return check


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_it_printed(name, file, copy, assert_as_before, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("KP_THRESHOLD", "0.7")

    printed = CliRunner().invoke(main, ["--db", str(copy), *COMMANDS[name]])

    assert_as_before(
        name,
        printed.stdout.replace(str(copy), str(file)),
        "json" if "--json" in COMMANDS[name] else "txt",
    )


def test_the_file_has_the_rows_that_it_had(file, assert_as_before):
    assert_as_before("rows", rows_of(file))


def test_the_registry_got_the_bodies_that_it_got(recorded_scene, assert_as_before):
    assert_as_before("bodies", posted(recorded_scene[1]))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_it_said(name, file, assert_as_before):
    assert_as_before(name, page_text(page_of(file, PAGES[name])))


def test_recorded_conversations_make_the_rows_that_they_made(shared, tmp_path):
    """Twenty of them; what they say is not ours to copy, so a digest stands for each."""
    path = shared / "data" / "tau_airline_gpt4o_open.jsonl.gz"
    recordings = read_recordings(path)[:20] if path.exists() else pytest.skip("they are not here")
    expected = EXPECTED / "airline.json"

    EXPECTED.mkdir(exist_ok=True)
    digests = {f"{r['task_id']}-{r['trial']}": digest(r, tmp_path) for r in recordings}

    if IS_WRITING:
        expected.write_text(json.dumps(digests, indent=1) + "\n")
    assert digests == json.loads(expected.read_text())


def digest(recording, folder):
    db = folder / f"{recording['task_id']}-{recording['trial']}.db"
    with KnowledgePulse(**settings_of(db)) as kp:
        record_conversation(kp, recording)
    return hashlib.sha256(Masks(db).mask(rows_of(db)).encode()).hexdigest()[:16]


def page_of(file, path):
    async def get():
        datasette = Datasette([str(file)])
        await datasette.invoke_startup()
        return await datasette.client.get(path)

    with asyncio.Runner() as runner:
        return runner.run(get()).text
