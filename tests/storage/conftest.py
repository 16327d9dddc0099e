"""Real files."""

import sqlite3
from contextlib import closing, contextmanager

import pytest
from paced_processes import Machine
from stored_runs import kept

from kp_middleware.storage import History, OutboxTable, SqliteStore


@pytest.fixture
def store(connection):
    return SqliteStore(connection, scorer="test 1")


@pytest.fixture
def history(connection):
    return History(connection)


@pytest.fixture
def outbox(connection):
    return OutboxTable(connection, registry="https://registry.example", agent_id="agent-1")


@pytest.fixture
def keep(store):
    """Records runs; with a score, they are scored too."""
    return lambda *args, **kwargs: kept(store, *args, **kwargs)


@pytest.fixture
def queue(outbox, keep, connection):
    """Puts a run that cleared into the outbox: with these bytes, or blocked; in any state."""

    def queued(body=b'{"a": 1}', *, state=None, **facts):
        seq = keep(**{"score": 0.9, "decision": "forward", **facts})
        reason = "too_deep at steps[0]" if body is None else None
        outbox.add(seq, body, redactor="rules 1", redactions={"email": 2}, reason=reason)
        if state is not None:
            connection.execute("UPDATE outbox SET state = ? WHERE trace_seq = ?", (state, seq))
        return seq

    return queued


@pytest.fixture
def row(connection):
    """Reads the row of a run in the outbox."""

    def read(seq):
        cursor = connection.execute("SELECT * FROM outbox WHERE trace_seq = ?", (seq,))
        names = [column[0] for column in cursor.description]
        return dict(zip(names, cursor.fetchone(), strict=True))

    return read


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def locked(machine):
    """Another program that has locked the usual file."""

    @contextmanager
    def hold():
        with closing(sqlite3.connect(machine.path)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            yield

    return hold
