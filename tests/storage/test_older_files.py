"""A file of schema 6 is brought over once, and loses nothing."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.testing import StandInEmbedder

SCHEMA_6 = Path(__file__).with_name("schema_6.sql")
TABLES = (
    *("traces", "steps", "documents", "vectors", "outbox", "waiting", "feedback", "aliases"),
    "meta",
)
GONE = {"reason", "verdict"}
THEN = "; queued when there was an API key"


@pytest.fixture
def old(db):
    with closing(sqlite3.connect(db)) as connection:
        connection.executescript(SCHEMA_6.read_text("utf-8"))
    return db


@pytest.fixture(scope="module")
def updated(tmp_path_factory):
    """The same file after this version has opened it."""
    path = tmp_path_factory.mktemp("updated") / "kp.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA_6.read_text("utf-8"))
    connect(path).close()
    return path


def rows(path, table):
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
        names = [column[0] for column in found.description]
        listed = [dict(zip(names, row, strict=True)) for row in found]
    return [{name: row[name] for name in row if name not in GONE} for row in listed]


def read(path, sql):
    with closing(connect(path, read_only=True)) as connection:
        return connection.execute(sql).fetchall()


def schema(path):
    """Tables by their columns, and what belongs to them by its words."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql NOT NULL")
        return {
            name: connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
            if kind in {"table", "view"}
            else " ".join(re.sub("--.*", "", sql).split())
            for kind, name, sql in found.fetchall()
        }


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_there_as_it_was(old, updated, table):
    before = rows(old, table)

    after = rows(updated, table)

    assert before
    assert [
        {name: row[name] for name in was} for row, was in zip(after, before, strict=True)
    ] == before


def test_it_is_sound_like_a_new_file_and_its_words_are_found(updated, tmp_path):
    connect(tmp_path / "new.db").close()

    assert schema(updated) == schema(tmp_path / "new.db")
    assert read(updated, "PRAGMA integrity_check") == [("ok",)]
    assert read(updated, "PRAGMA foreign_key_check") == []
    assert read(updated, "SELECT rowid FROM traces_fts WHERE traces_fts MATCH 'soup'") == [(6,)]


def test_no_place_of_a_vector_is_given_again(old):
    with closing(connect(old)) as connection:
        ((last,),) = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'")
        cursor = connection.execute(
            "INSERT INTO vectors (embedder, added_at_ms, vector) VALUES ('e', 1, x'00')"
        )

    assert cursor.lastrowid == last + 1 > len(rows(old, "vectors"))


def test_sentences_are_codes_and_it_is_known_who_said_how_a_run_went(updated):
    assert [code for (code,) in read(updated, "SELECT reason_code FROM traces ORDER BY seq")] == [
        *("above_threshold", "above_threshold", "below_threshold", "below_threshold"),
        *("below_threshold", "warming_up", "above_threshold", "custom", "gate_failed"),
        *("above_threshold", "above_threshold", None, "above_threshold"),
    ]
    found = read(updated, "SELECT reason_args FROM traces WHERE reason_args NOT NULL ORDER BY seq")
    reasons = [json.loads(args) for (args,) in found]
    assert [args["delivery"] for args in reasons if args["delivery"]] == ["private", "no_key"]
    assert not [args for args in reasons if THEN in args["words"]]
    assert read(updated, "SELECT success_source, confidence_source FROM traces WHERE seq < 5") == [
        *(("assumed", "said"), ("assumed", "said"), ("said", "assumed")),
        ("feedback", "assumed"),
    ]


def test_a_run_that_waited_goes_on(old):
    with KnowledgePulse(db=old, embedder=StandInEmbedder(), sync=True) as kp:
        kp.end_thread("t1", success=True)
        kp.flush()

        run = kp.run("@last")
        waited = [one for one in kp.runs(limit=20) if one.objective == "Bake a cake"]

    assert run.state == "scored"
    assert [one.state for one in waited] == ["withheld"]
    assert rows(old, "waiting") == []


def test_a_registry_has_one_spelling(old):
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE outbox SET registry = 'https://registry.example/'")

    connect(old).close()

    assert {row["registry"] for row in rows(old, "outbox")} == {"https://registry.example"}


LOST = (
    "what became of it was lost in a damaged file: kp-middleware outbox retry ID sends it, perhaps"
    " once more"
)


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("cancelled", "by hand", "by hand"),
        ("blocked", LOST, "may_have_been_sent"),
        ("rejected", "by hand", "by hand"),
    ],
)
def test_an_item_that_only_its_user_may_queue_again_stays_so(old, state, reason, code):
    with closing(sqlite3.connect(old)) as connection, connection:
        ((seq,),) = connection.execute(
            "UPDATE outbox SET state = ?, reason = ? WHERE trace_seq ="
            " (SELECT max(trace_seq) FROM outbox) RETURNING trace_seq",
            (state, reason),
        )

    connect(old).close()

    assert read(old, f"SELECT state, reason FROM outbox WHERE trace_seq = {seq}") == [(state, code)]
