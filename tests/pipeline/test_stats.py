"""What a pipeline says of itself."""

from contextlib import closing

import pytest
from unsent import UnsentStore

from kp_middleware import ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.errors import EmbedderNotReadyError
from kp_middleware.recording import shield
from kp_middleware.storage import History
from kp_middleware.testing import LocalRegistry, StandInEmbedder


class NoModelYet(StandInEmbedder):
    def embed(self, text, /):  # noqa: ARG002
        raise EmbedderNotReadyError("downloading")


def numbers(stats):
    return {name: value for name, value in stats._asdict().items() if value and name != "swallowed"}


def test_before_the_first_run_all_is_zero_and_nothing_is_wrong(pulse):
    assert numbers(pulse().stats()) == {}


def test_what_is_kept_scored_and_sent_is_counted(pulse):
    with LocalRegistry() as registry:
        kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)
        [kp.capture(lambda text: text)(word) for word in ("one", "two")]
        kp.flush()

    assert numbers(kp.stats()) == {"recorded": 2, "scored": 2, "sent": 2}


def test_what_waits_for_the_model_is_unscored(pulse):
    kp = pulse(embedder=NoModelYet(), sync=True)

    kp.capture(lambda text: text)("one")

    assert numbers(kp.stats()) == {"recorded": 1, "unscored": 1}


@pytest.mark.parametrize(
    ("state", "score"), [("paused", None), ("incomplete", None), ("failed", None), ("scored", 0.5)]
)
def test_each_state_of_the_file_is_counted(pulse, db, state, score):
    kp = pulse(sync=True)
    kp.capture(lambda text: text)("one")

    connection = connect(db)
    connection.execute("UPDATE traces SET state = ?, score = ?", (state, score))
    connection.close()

    assert numbers(kp.stats()) == {"recorded": 1, state: 1}


def test_failures_that_were_kept_from_the_agent_are_told_by_kind(pulse):
    before = pulse().stats().swallowed.get("stats test: KeyError", 0)

    shield.swallow("stats test", KeyError("x"))

    assert pulse().stats().swallowed["stats test: KeyError"] == before + 1


def test_a_file_that_cannot_be_used_is_told_in_words_with_what_waits_in_memory(pulse, db):
    db.write_text("a letter to my aunt, " * 100)
    kp = pulse(sync=True)

    kp.capture(lambda text: text)("one")
    stats = kp.stats()

    assert (stats.in_memory, stats.recorded) == (1, 0)
    assert stats.trouble == f"{db}: is not an SQLite file; name another file with KP_DB or --db"


def test_what_was_dropped_the_file_knows(pulse, db):
    kp = pulse(max_queue_bytes=5000)
    kp.capture(lambda text: text * 20_000)("too large, ")
    kp.capture(lambda text: text)("one")
    kp.flush()

    with closing(connect(db, read_only=True)) as connection:
        assert History(connection).file_status(db).dropped == 1


def test_the_file_goes_from_its_earliest_run_to_its_latest(pulse, connection, db):
    kp = pulse(sync=True)
    days = ["2026-11-02", "2026-11-01", "2026-11-03", "2026-11-02"]
    for day in days:
        step = Step(step_id=0, type="thought", content=day)
        trace = ReasoningTrace.of("x", [step])
        metadata = trace.metadata.model_copy(update={"created_at": f"{day}T00:00:00Z"})
        kp.submit(trace.model_copy(update={"metadata": metadata}))

    found = History(connection).file_status(db)

    assert (found.oldest[:10], found.newest[:10]) == ("2026-11-01", "2026-11-03")


def test_trouble_is_told_where_the_file_can_be_read_but_not_written(pulse):
    kp = pulse(sync=True)
    kp.capture(lambda text: text)("one")
    connection = kp._scorer._store._connection
    connection.execute("PRAGMA max_page_count = 1")  # a full disk
    kp.capture(lambda text: text * 10_000)("two")
    told = kp.stats()
    connection.execute("PRAGMA max_page_count = 100000")
    kp.flush()

    assert (told.in_memory, told.recorded) == (1, 1)
    assert "free disk space" in told.trouble
    assert numbers(kp.stats()) == {"recorded": 2, "scored": 2}


def test_trouble_of_sending_is_told(pulse, registry, connection, db):
    goes = {"registry_url": registry.url, "api_key": registry.api_key, "threshold": 0}
    pulse(store=UnsentStore.at(db), sync=True, **goes).capture(lambda text: text)("one")
    connection.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON outbox BEGIN SELECT raise(FAIL, 'full'); END"
    )

    kp = pulse(**goes)
    kp.flush(timeout_s=30)  # no longer than until it is known
    told = kp.stats().trouble
    connection.execute("DROP TRIGGER full")

    assert str(db) in told
    assert registry.requests == ()
