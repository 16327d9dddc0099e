"""Real files."""

from contextlib import closing

import pytest
from stored_runs import kept

from kp_middleware.database import connect
from kp_middleware.storage import History, OutboxTable, TraceStore


@pytest.fixture
def db(tmp_path):
    return tmp_path / "kp.db"


@pytest.fixture
def connection(db):
    with closing(connect(db)) as opened:
        yield opened


@pytest.fixture
def store(connection):
    return TraceStore(connection, scorer="test 1")


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
