"""What cleared before is queued as soon as it may leave, each once, and nothing that may not."""

import json
from contextlib import closing

import pytest
from unsent import UnsentStore

from kp_middleware import ReasoningTrace, Step
from kp_middleware.database import connect

HAVING_A_KEY = {"api_key": "kp_x", "registry_url": "https://registry.example"}
NO_QUEUEING = "CREATE TRIGGER t BEFORE INSERT ON outbox BEGIN SELECT raise(FAIL, 'x'); END"


@pytest.fixture
def pipeline(pulse, db):
    """Makes pipelines that queue what clears, and send nothing."""
    usual = {"store": UnsentStore.at(db), "embedder": None, "sync": True, "threshold": 0}
    return lambda **settings: pulse(**{**usual, **settings})


@pytest.fixture
def cleared(pipeline):
    """Six traces that could not be sent without a key."""
    kp = pipeline()
    [kp.submit(trace_of(f"asked {number}")) for number in range(6)]
    kp.close()


def trace_of(objective):
    return ReasoningTrace.of(objective, [Step(step_id=0, type="thought", content="said")])


def queued(connection):
    return [seq for (seq,) in connection.execute("SELECT trace_seq FROM outbox ORDER BY 1")]


@pytest.mark.usefixtures("cleared")
def test_with_a_key_all_that_cleared_before_is_queued(pipeline, connection):
    before = queued(connection)

    pipeline(**HAVING_A_KEY).flush()

    assert (before, queued(connection)) == ([], [1, 2, 3, 4, 5, 6])
    told = connection.execute("SELECT DISTINCT reason_args ->> 'delivery' FROM traces").fetchall()
    assert told == [(None,)]


@pytest.mark.usefixtures("cleared")
def test_two_that_catch_up_at_once_queue_each_once(pipeline, db, connection):
    both = [pipeline(store=UnsentStore.at(db), sync=False, **HAVING_A_KEY) for _ in range(2)]

    [kp.submit(trace_of("begin")) for kp in both]
    [kp.flush(30) for kp in both]

    assert queued(connection) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.usefixtures("cleared")
def test_a_trace_that_another_has_queued_keeps_its_row(pipeline, connection):
    pipeline(**HAVING_A_KEY, agent_id="theirs").flush()
    before = connection.execute("SELECT * FROM outbox").fetchall()

    pipeline(**HAVING_A_KEY, agent_id="ours").flush()

    assert connection.execute("SELECT * FROM outbox").fetchall() == before


@pytest.mark.usefixtures("cleared")
def test_a_trace_that_another_queues_meanwhile_keeps_its_row(pipeline, db, connection):
    theirs = pipeline(**HAVING_A_KEY, agent_id="theirs")

    class Meeting(UnsentStore):
        """Lets another queue what this one has found to queue."""

        def stored(self, seq):
            theirs.flush()
            return super().stored(seq)

    pipeline(store=Meeting.at(db), **HAVING_A_KEY, agent_id="ours").flush()

    bodies = connection.execute("SELECT body FROM outbox").fetchall()
    assert [json.loads(body)["metadata"]["agent_id"] for (body,) in bodies] == ["theirs"] * 6


@pytest.mark.usefixtures("cleared")
def test_what_a_lock_interrupts_goes_on_where_it_was(pipeline, connection, db):
    kp = pipeline(**HAVING_A_KEY)

    with closing(connect(db)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        kp.flush(timeout_s=0.2)
        before = queued(connection)
    kp.flush(timeout_s=30)

    assert (before, queued(connection)) == ([], [1, 2, 3, 4, 5, 6])


@pytest.mark.usefixtures("cleared")
def test_one_that_cannot_be_read_is_said_and_the_others_are_queued(pipeline, connection, caplog):
    connection.execute("UPDATE documents SET body = '{}' WHERE trace_seq = 2")

    pipeline(**HAVING_A_KEY).flush()

    assert queued(connection) == [1, 3, 4, 5, 6]
    assert [record.getMessage() for record in caplog.records] == [
        "trace 2 cleared, but cannot be queued"
    ]


@pytest.mark.usefixtures("cleared")
def test_one_that_has_lost_its_document_holds_up_no_other(pipeline, connection):
    connection.execute("DELETE FROM documents WHERE trace_seq = 2")

    pipeline(**HAVING_A_KEY).flush()

    assert queued(connection) == [1, 3, 4, 5, 6]


def test_what_cannot_be_queued_when_it_clears_is_queued_later(pipeline, connection):
    kp = pipeline(**HAVING_A_KEY)
    kp.flush()
    connection.execute(NO_QUEUEING)
    kp.submit(trace_of("asked"))
    before = queued(connection)
    connection.execute("DROP TRIGGER t")

    kp.flush()

    assert (before, queued(connection)) == ([], [1])


@pytest.mark.parametrize("settings", [{"api_key": ""}, {"visibility": "private"}])
@pytest.mark.usefixtures("cleared")
def test_without_a_key_or_where_all_is_private_nothing_is_queued(pipeline, connection, settings):
    pipeline(**{**HAVING_A_KEY, **settings}).flush()

    assert queued(connection) == []


def test_what_gets_into_the_body_after_redaction_blocks_the_row(pipeline, connection):
    pipeline(**HAVING_A_KEY, agent_id="anna@example.org").submit(trace_of("asked"))

    state, reason, body = connection.execute("SELECT state, reason, body FROM outbox").fetchone()
    assert (state, body) == ("blocked", None)
    assert "metadata.agent_id" in reason
    assert "email" in reason
    assert "anna" not in json.dumps(reason)
