"""The recipes of CONTRIBUTING.md: facts in several places agree."""

import re
import sqlite3
from contextlib import closing
from typing import get_args

import pages

from kp_middleware.core.formula import DEFAULT_PROFILE, PROFILES, STEP_TYPES
from kp_middleware.database import connect
from kp_middleware.storage import SqliteStore
from kp_middleware.traces import StepType
from kp_middleware.views.trace import STEP_NAMES
from kp_middleware.web.marks import COLOURS
from kp_middleware.web.marks import DOMAINS as COLOURED

KINDS = {*get_args(StepType)}
DOMAINS = PROFILES.keys() - {DEFAULT_PROFILE}


def test_the_table_of_weights_is_that_of_the_code():
    page = (pages.ROOT / "docs" / "scoring.md").read_text("utf-8")

    rows = re.findall(r"(?m)^\| ([\w ]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page)

    told = {DEFAULT_PROFILE if domain == "any other" else domain: row for domain, *row in rows}
    assert {domain: tuple(map(float, row)) for domain, row in told.items()} == {
        domain: tuple(weights) for domain, weights in PROFILES.items()
    }


def test_each_domain_that_has_weights_is_in_the_readme_and_has_a_colour_of_its_own():
    (row,) = re.findall(r"(?m)^\| `domain` \|.*$", (pages.ROOT / "README.md").read_text("utf-8"))

    assert [domain for domain in DOMAINS if f"`{domain}`" not in row] == []
    assert {*COLOURED} == DOMAINS | {"general"}
    assert len(COLOURED) <= len(COLOURS)


def test_every_kind_of_step_has_a_place_in_the_file_a_name_a_reason_and_a_part_in_the_score(
    connection,
):
    (table,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'steps'").fetchone()
    (checked,) = re.findall(r"type IN \(([^)]*)\)", table)

    assert {*re.findall(r"\w+", checked)} == {*STEP_TYPES} == KINDS
    assert STEP_NAMES.keys() >= KINDS


def test_every_table_that_hangs_on_a_trace_is_saved_from_a_damaged_file(kp, agent, db):
    agent("one")
    kp.close()
    with closing(connect(db)) as connection:
        for table in [*tables_of_traces(connection)]:
            fill(connection, table)
        connection.execute("UPDATE traces SET state = 'paused'")  # or it would not be waiting
        connection.execute("UPDATE traces_fts_data SET block = x'00' WHERE id > 10")

        saved = SqliteStore(connection, db).repair(destination="", redactor="")

        left = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in tables_of_traces(connection)
        }
    assert saved.traces == 1
    assert len(left) > 8
    assert 0 not in left.values()


def fill(connection, table):
    """Put a row into a table, for the only trace, unless it has one."""
    allowed = {"type": "thought", "state": "sent", "body": "{}", "run": "{}"}
    kinds = {"INTEGER": 1, "TEXT": "x", "BLOB": b"x", "REAL": 0.5}
    columns = connection.execute(f"SELECT name, type FROM pragma_table_info('{table}')").fetchall()
    row = {
        name: allowed.get(name, kinds[kind])
        for name, kind in columns
        if name not in {"input", "redactions", "reasons"}
    }
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    connection.execute(
        f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", (*row.values(),)
    )


def tables_of_traces(connection: sqlite3.Connection):
    """Those that have a column which leads to one."""
    tables = connection.execute("SELECT name FROM pragma_table_list WHERE type = 'table'")
    for (name,) in tables.fetchall():
        leads = connection.execute(f"SELECT \"table\" FROM pragma_foreign_key_list('{name}')")
        if ("traces",) in leads.fetchall():
            yield name
