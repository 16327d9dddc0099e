"""What cleared before is queued as soon as it may leave, each once, and nothing that may not."""

import json
from contextlib import closing

import pytest
from pipeline_helpers import column_of, trace_of, warnings_in
from unsent import UnsentStore

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


@pytest.fixture
def queued(db):
    return lambda: column_of(db, "trace_seq", "outbox")


@pytest.mark.usefixtures("cleared")
def test_with_a_key_all_that_cleared_before_is_queued(pipeline, queued, db):
    before = queued()

    pipeline(**HAVING_A_KEY).flush()

    assert (before, queued()) == ([], [1, 2, 3, 4, 5, 6])
    assert column_of(db, "reason_args ->> 'delivery'") == [None] * 6


@pytest.mark.usefixtures("cleared")
def test_a_trace_that_another_queues_meanwhile_keeps_its_row(pipeline, db):
    theirs = pipeline(**HAVING_A_KEY, agent_id="theirs")

    class Meeting(UnsentStore):
        """Lets another queue what this one has found to queue."""

        def stored(self, seq):
            theirs.flush()
            return super().stored(seq)

    pipeline(store=Meeting.at(db), **HAVING_A_KEY, agent_id="ours").flush()

    assert column_of(db, "body ->> '$.metadata.agent_id'", "outbox") == ["theirs"] * 6


@pytest.mark.usefixtures("cleared")
def test_what_a_lock_interrupts_goes_on_where_it_was(pipeline, queued, db):
    kp = pipeline(**HAVING_A_KEY)

    with closing(connect(db)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        kp.flush(timeout_s=0.2)
        before = queued()
    kp.flush(timeout_s=30)

    assert (before, queued()) == ([], [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (
            "UPDATE documents SET body = '{}' WHERE trace_seq = 2",
            ["trace 2 cleared, but cannot be queued"],
        ),
        ("DELETE FROM documents WHERE trace_seq = 2", []),
    ],
    ids=["cannot be read", "is not there"],
)
@pytest.mark.usefixtures("cleared")
def test_one_whose_document_is_of_no_use_holds_up_no_other(
    pipeline, queued, connection, caplog, harm, told
):
    connection.execute(harm)

    pipeline(**HAVING_A_KEY).flush()

    assert queued() == [1, 3, 4, 5, 6]
    assert warnings_in(caplog) == told


def test_what_cannot_be_queued_when_it_clears_is_queued_later(pipeline, queued, connection):
    kp = pipeline(**HAVING_A_KEY)
    kp.flush()
    connection.execute(NO_QUEUEING)
    kp.submit(trace_of())
    before = queued()
    connection.execute("DROP TRIGGER t")

    kp.flush()

    assert (before, queued()) == ([], [1])


@pytest.mark.parametrize("settings", [{"api_key": ""}, {"visibility": "private"}])
@pytest.mark.usefixtures("cleared")
def test_without_a_key_or_where_all_is_private_nothing_is_queued(pipeline, queued, settings):
    pipeline(**{**HAVING_A_KEY, **settings}).flush()

    assert queued() == []


def test_what_gets_into_the_body_after_redaction_blocks_the_row(pipeline, connection):
    pipeline(**HAVING_A_KEY, agent_id="anna@example.org").submit(trace_of())

    state, reason, body = connection.execute("SELECT state, reason, body FROM outbox").fetchone()
    assert (state, body) == ("blocked", None)
    assert "metadata.agent_id" in reason
    assert "email" in reason
    assert "anna" not in json.dumps(reason)
