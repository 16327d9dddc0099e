"""What the worker knows of trouble with its file: told once, waited for, mended now and then."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kp_middleware.pipeline._queue import RunQueue
from kp_middleware.pipeline._worker import FileTrouble

LOCKED = sqlite3.OperationalError("database is locked")


@pytest.fixture
def damage(tmp_path):
    """What SQLite raises where a file is damaged."""
    path = tmp_path / "kp.db"
    path.write_bytes(b"no database" * 100)
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.DatabaseError) as raised,
    ):
        connection.execute("SELECT * FROM traces")
    return raised.value


@pytest.fixture
def trouble_with():
    """Makes what is asked for; it mends a file as it is told."""

    def make(mend=lambda: None, **options):
        return FileTrouble(RunQueue(1000), Path("kp.db"), mend, **options)

    return make


def test_where_the_file_can_be_used_again_nothing_is_wrong(trouble_with):
    trouble = trouble_with()
    trouble.meet(LOCKED)
    words = trouble.words

    trouble.end()

    assert "kp.db" in words
    assert (trouble.is_there, trouble.words) == (False, None)


def test_a_damaged_file_is_not_rescued_at_each_try(trouble_with, damage):
    tried = []
    trouble = trouble_with(lambda: tried.append(1))

    mended = [trouble.meet(damage) for _ in range(3)]

    assert (mended, tried) == ([False] * 3, [1])


def test_trouble_is_told_once_until_it_ends_and_never_where_somebody_else_tells_it(
    trouble_with, caplog
):
    ours, theirs = trouble_with(), trouble_with(is_silent=True)

    for trouble in (ours, theirs):
        [trouble.meet(LOCKED) for _ in range(2)]
    ours.end()
    ours.meet(LOCKED)

    assert len(caplog.records) == 2
