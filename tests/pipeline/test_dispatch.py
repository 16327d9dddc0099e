"""What cleared before is queued step by step, each once, and nothing that may not leave."""

import json
import sqlite3
from contextlib import closing

import pytest

from kp_middleware import ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._steps import Stages
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.storage import SqliteStore

HAVING_A_KEY = {"api_key": "kp_x", "registry_url": "https://registry.example", "threshold": 0}


@pytest.fixture
def cleared(connection):
    """Six traces that could not be sent without a key."""
    evaluation = Stages(SqliteStore(connection), Settings(threshold=0), None)
    [evaluation.keep(trace_of(f"asked {number}")) for number in range(6)]
    while evaluation.score_next():
        pass


@pytest.fixture
def dispatch(connection):
    """Makes one as each process has it."""

    def make(**settings):
        settings = Settings(**{**HAVING_A_KEY, **settings})
        store = SqliteStore(connection, scorer="test")
        return Dispatch(store, settings, Policy.of(settings))

    return make


def trace_of(objective, **metadata):
    trace = ReasoningTrace.of(objective, [Step(step_id=0, type="thought", content="said")])
    return trace.model_copy(update={"metadata": trace.metadata.model_copy(update=metadata)})


def queued(connection):
    return [seq for (seq,) in connection.execute("SELECT trace_seq FROM outbox ORDER BY 1")]


@pytest.mark.usefixtures("cleared")
def test_each_step_queues_one(dispatch, connection):
    ours = dispatch()

    first = ours.queue_left(), queued(connection)
    more = sum(iter(ours.queue_left, False))

    assert (first, more, queued(connection)) == ((True, [1]), 5, [1, 2, 3, 4, 5, 6])
    told = connection.execute("SELECT DISTINCT reason_args ->> 'delivery' FROM traces").fetchall()
    assert told == [(None,)]


@pytest.mark.usefixtures("cleared")
def test_two_processes_that_catch_up_at_once_queue_each_once(dispatch, connection):
    ours, theirs = dispatch(), dispatch()

    while ours.queue_left() | theirs.queue_left():
        pass

    assert queued(connection) == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("cleared")
def test_a_trace_that_another_has_queued_meanwhile_keeps_its_row(dispatch, connection):
    store = SqliteStore(connection, scorer="test")
    trace = ReasoningTrace.model_validate_json(store.stored(1).document)
    dispatch(agent_id="theirs").queue(1, trace, 0.5)
    before = connection.execute("SELECT * FROM outbox").fetchall()

    dispatch(agent_id="ours").queue(1, trace, 0.5)

    assert connection.execute("SELECT * FROM outbox").fetchall() == before


@pytest.mark.usefixtures("cleared")
def test_what_a_lock_interrupts_goes_on_where_it_was(dispatch, connection):
    ours = dispatch()
    ours.queue_left()
    connection.execute("PRAGMA busy_timeout = 0")

    with closing(connect(path_of(connection))) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            ours.queue_left()
    more = sum(iter(ours.queue_left, False))

    assert (more, queued(connection)) == (5, [1, 2, 3, 4, 5, 6])


def path_of(connection):
    return connection.execute("PRAGMA database_list").fetchone()[2]


@pytest.mark.usefixtures("cleared")
def test_one_that_cannot_be_read_is_said_and_the_others_are_queued(dispatch, connection, caplog):
    connection.execute("UPDATE documents SET body = '{}' WHERE trace_seq = 2")
    ours = dispatch()

    steps = sum(iter(ours.queue_left, False))

    assert (steps, queued(connection)) == (6, [1, 3, 4, 5, 6])
    assert [record.getMessage() for record in caplog.records] == [
        "trace 2 cleared, but cannot be queued"
    ]


@pytest.mark.usefixtures("cleared")
def test_one_that_has_lost_its_document_holds_up_no_other(dispatch, connection):
    connection.execute("DELETE FROM documents WHERE trace_seq = 2")
    ours = dispatch()

    while ours.queue_left():
        pass

    assert queued(connection) == [1, 3, 4, 5, 6]


def test_what_cannot_be_queued_when_it_clears_is_queued_later(connection):
    evaluation = Stages(SqliteStore(connection), Settings(**HAVING_A_KEY), None)
    while evaluation.score_next():
        pass
    evaluation.keep(trace_of("asked"))
    connection.execute(
        "CREATE TRIGGER t BEFORE INSERT ON outbox BEGIN SELECT raise(FAIL, 'x'); END"
    )
    evaluation.score_next()
    before = queued(connection)
    connection.execute("DROP TRIGGER t")

    while evaluation.score_next():
        pass

    assert (before, queued(connection)) == ([], [1])


@pytest.mark.parametrize("settings", [{"api_key": ""}, {"visibility": "private"}])
@pytest.mark.usefixtures("cleared")
def test_without_a_key_or_where_all_is_private_nothing_is_queued(dispatch, connection, settings):
    assert not dispatch(**settings).queue_left()
    assert queued(connection) == []


def test_what_gets_into_the_body_after_redaction_blocks_the_row(connection):
    settings = Settings(**HAVING_A_KEY, agent_id="anna@example.org")
    evaluation = Stages(SqliteStore(connection), settings, None)

    evaluation.keep(trace_of("asked"))
    evaluation.score_next()

    state, reason, body = connection.execute("SELECT state, reason, body FROM outbox").fetchone()
    assert (state, body) == ("blocked", None)
    assert "metadata.agent_id" in reason
    assert "email" in reason
    assert "anna" not in json.dumps(reason)
