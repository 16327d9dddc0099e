import os
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from kp_middleware.database import connect, transaction
from kp_middleware.storage import Database

ADD = "INSERT INTO vectors (embedder, added_at_ms, vector) VALUES ('e', 1, x'00')"
COUNT = "SELECT count(*) FROM vectors"

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Pythons


@pytest.fixture
def resting(db):
    with closing(Database(db)) as connection:
        yield connection


def exit_status_of_a_child_that(work):
    child = os.fork()
    if child == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count(db):
    with closing(connect(db, read_only=True)) as connection:
        return connection.execute(COUNT).fetchone()[0]


def test_the_file_is_opened_by_the_first_use_and_again_after_it_was_closed(resting, db):
    before = db.exists()

    resting.execute(ADD)
    resting.close()

    assert (before, count(db)) == (False, 1)
    assert resting.execute(COUNT) == [(1,)]


def test_what_was_returned_can_be_read_when_it_is_closed(resting):
    first = resting.execute(ADD).lastrowid
    resting.executemany("INSERT INTO vectors VALUES (?, NULL, NULL, 'e', 1, x'00')", [(8,), (9,)])

    rows = resting.execute("SELECT seq FROM vectors ORDER BY seq")
    resting.close()

    assert (first, rows.fetchall()) == (1, [(1,), (8,), (9,)])


def test_closing_waits_for_the_transaction_of_another_thread(resting, db):
    with transaction(resting):
        closer = threading.Thread(target=resting.close)
        closer.start()
        resting.execute(ADD)
    closer.join()

    assert count(db) == 1


def test_a_fork_closes_it_a_child_has_a_file_of_its_own_and_it_is_opened_again(resting, db):
    def record_one_more():
        with closing(Database(db)) as own:
            own.execute(ADD)
        return count(db)

    resting.execute(ADD)

    status = exit_status_of_a_child_that(record_one_more)
    resting.execute(ADD)

    assert (status, resting.execute(COUNT)) == (2, [(3,)])


def test_a_fork_in_the_midst_of_a_transaction_leaves_it_to_the_parent(resting, db):
    def go_on():
        with pytest.raises(sqlite3.OperationalError, match="was forked"):
            resting.execute(ADD)
        with pytest.raises(sqlite3.OperationalError, match="was forked"):
            resting.execute("COMMIT")
        return 7

    with transaction(resting):
        resting.execute(ADD)
        status = exit_status_of_a_child_that(go_on)
        resting.execute(ADD)

    assert (status, count(db)) == (7, 2)


@pytest.fixture
def moved(resting, db):
    """Moves the file away, and puts another in its place."""

    def move():
        db.rename(db.with_name("moved.db"))
        connect(db).close()

    resting.execute(ADD)
    return move


def test_where_the_file_was_removed_a_new_one_is_begun_and_that_is_said(resting, db, caplog):
    resting.execute(ADD)
    [file.unlink() for file in db.parent.glob("kp.db*")]

    resting.execute(ADD)

    assert count(db) == 1
    (record,) = caplog.records
    assert (
        record.getMessage() == f"{db} was replaced: from now on, runs are written to the new file"
    )


def test_a_transaction_after_the_file_was_moved_goes_to_the_one_in_its_place(resting, db, moved):
    moved()

    add_in_a_transaction(resting)

    assert count(db) == 1


def test_moving_a_file_away_costs_the_next_one_of_its_name_no_wal(resting, db):
    resting.execute(ADD)
    db.rename(db.with_name("moved.db"))
    [file.unlink() for file in db.parent.glob("kp.db-*")]

    with closing(connect(db)) as other:
        other.execute(ADD)
        resting.execute(ADD)
        other.execute(ADD)

        assert db.with_name("kp.db-wal").exists()
    assert count(db) == 3


def test_a_transaction_that_waits_for_its_turn_goes_to_the_file_that_is_there_then(
    resting, db, moved
):
    holder = connect(db)
    holder.execute("BEGIN IMMEDIATE")
    waiting = threading.Thread(target=add_in_a_transaction, args=(resting,))
    waiting.start()
    time.sleep(0.3)  # it waits for its turn

    moved()
    holder.rollback()
    waiting.join(30)
    holder.close()

    assert count(db) == 1


def add_in_a_transaction(connection):
    with transaction(connection):
        connection.execute(ADD)


def test_in_the_midst_of_a_transaction_no_other_file_is_opened(resting, db, moved):
    with transaction(resting):
        resting.execute(ADD)
        moved()
        resting.execute(ADD)

    with closing(connect(db.with_name("moved.db"))) as other:
        assert other.execute(COUNT).fetchone() == (0,)  # its WAL has kept the old name
    assert count(db) == 0
