"""Whatever is asked in SQL."""

import itertools
from contextlib import closing

import pytest

from kp_middleware.errors import DatabaseError
from kp_middleware.storage import FreeQuery

FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


@pytest.fixture
def free_query(db, keep):
    keep("one", score=0.5)
    with closing(FreeQuery(db)) as opened:
        yield opened


@pytest.fixture
def ask(free_query):
    return lambda sql: [*free_query.ask(sql).rows]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT objective, score FROM traces", [{"objective": "one", "score": 0.5}]),
        ("SELECT count(*) AS n FROM traces_fts WHERE traces_fts MATCH 'one'", [{"n": 1}]),
        ("SELECT value FROM json_each('[7]')", [{"value": 7}]),
        ("SELECT name FROM pragma_table_info('meta') LIMIT 1", [{"name": "key"}]),
        ("PRAGMA journal_mode", [{"journal_mode": "wal"}]),
        ("PRAGMA quick_check(1)", [{"quick_check": "ok"}]),
        ("SELECT 1 AS n, 2 AS n, 3 AS n", [{"n": 1, "n_2": 2, "n_3": 3}]),
        ("SELECT 1 AS n, 2 AS n_2, 3 AS n", [{"n": 1, "n_2": 2, "n_3": 3}]),
        ("SELECT CAST(x'41ff' AS TEXT) AS t", [{"t": "A\ufffd"}]),
        ("-- nothing", []),
    ],
)
def test_it_reads(ask, sql, rows):
    assert ask(sql) == rows


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM traces",
        "DROP TABLE traces",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "INSERT INTO traces_fts(traces_fts) VALUES ('rebuild')",
        "BEGIN IMMEDIATE",
        "VACUUM",
        "ATTACH 'file:{folder}/other.db' AS other",
        "ATTACH ':memory:' AS other",
        "VACUUM INTO '{folder}/other.db'",
    ],
)
def test_it_writes_nothing_and_opens_nothing_else(ask, db, tmp_path, sql):
    with pytest.raises(DatabaseError, match="only read-only queries are allowed"):
        ask(sql.format(folder=tmp_path))

    assert not (tmp_path / "other.db").exists()
    with closing(FreeQuery(db)) as again:
        assert [*again.ask("SELECT count(*) AS n FROM traces").rows] == [{"n": 1}]


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELEC", 'near "SELEC": syntax error; kp-middleware sql "select name, sql'),
        ("SELECT speed FROM traces", "no such column: speed; kp-middleware sql"),
        ("SELECT 1; SELECT 2", "one statement at a time; pass one statement"),
        ("SELECT :missing", r"1, and there are 0 supplied; .* without parameters"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(ask, sql, problem):
    with pytest.raises(DatabaseError, match=problem):
        ask(sql)


def test_a_query_that_takes_too_long_is_stopped_and_the_next_is_not(db, keep):
    keep("one")
    clock = itertools.count().__next__

    with closing(FreeQuery(db, limit_s=5, timer=clock)) as free_query:
        with pytest.raises(DatabaseError, match="the query takes longer than 5 s; query less"):
            list(free_query.ask(f"{FOR_EVER} WHERE i < 0").rows)
        with pytest.raises(DatabaseError, match="no such table"):
            free_query.ask("SELECT * FROM nowhere")


def test_time_that_rows_wait_to_be_taken_does_not_count(db, keep):
    keep("one")
    now = [0.0]

    with closing(FreeQuery(db, limit_s=5, timer=lambda: now[0])) as free_query:
        taken = 0
        for _ in free_query.ask(f"{FOR_EVER} LIMIT 10000").rows:
            now[0] += 1  # whoever reads it takes a second for each
            taken += 1

    assert taken == 10_000


@pytest.mark.filterwarnings(  # Datasette, once imported, has SQLite tell what it swallows
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_ctrl_c_is_not_swallowed_by_sqlite(db, keep):
    keep("one")
    clock = iter([0.0])  # the next time that SQLite asks, Ctrl-C is typed

    def timer():
        for now in clock:
            return now
        raise KeyboardInterrupt

    with closing(FreeQuery(db, timer=timer)) as free_query, pytest.raises(KeyboardInterrupt):
        list(free_query.ask(f"{FOR_EVER} WHERE i < 0").rows)
