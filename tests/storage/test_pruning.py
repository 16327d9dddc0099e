"""Old runs go with all that is theirs; what waits for something stays."""

from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.storage import OutboxTable, Pruning, SqliteStore

MONTH = "2026-10-22T00:00:00.000Z"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-11-20T00:00:00Z"


@pytest.fixture
def pruning(connection):
    return Pruning(connection)


@pytest.fixture
def keep_of(keep):
    """Keeps scored runs that started at these instants."""
    return lambda *instants, **facts: [
        keep(instant=instant, score=0.5, **facts) for instant in instants
    ]


@pytest.fixture
def seqs(connection):
    return lambda: [seq for (seq,) in connection.execute("SELECT seq FROM traces ORDER BY seq")]


def pruned(pruning, **rules):
    selection = pruning.select(**rules)
    counted = pruning.count(selection)
    assert sum(pruning.batches(selection)) == counted
    return counted


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ({"before": MONTH}, [2, 3, 4]),
        ({"before": "2026-11-21T00:00:00.000Z"}, []),
        ({"before": "1970-01-01T00:00:00.000Z"}, [1, 2, 3, 4]),
        ({"keep": 1}, [4]),
        ({"keep": 4}, [1, 2, 3, 4]),
        ({"keep": 9}, [1, 2, 3, 4]),
        ({"keep": 0}, []),
        ({"before": MONTH, "keep": 4}, [1, 2, 3, 4]),
        ({"before": "2026-11-21T00:00:00.000Z", "keep": 2}, [3, 4]),
    ],
)
def test_what_either_rule_keeps_stays(pruning, keep_of, seqs, rules, left):
    keep_of(OLD, NEW, NEW, NEW)

    pruned(pruning, **rules)

    assert seqs() == left


def test_what_scored_enough_stays_and_so_does_what_has_no_score(pruning, store, keep, seqs):
    for score in (0.29, 0.3, 0.9):
        keep(score=score)
    store.fail(keep(), "not_scored", "no")

    pruned(pruning, below=0.3)

    assert seqs() == [2, 3, 4]


def test_only_a_domain_s_runs_go_and_only_they_are_counted(pruning, keep_of, seqs):
    keep_of(OLD, OLD, domain="code")
    keep_of(OLD, OLD, domain="law")

    pruned(pruning, keep=1, domain="code")

    assert seqs() == [2, 3, 4]


@pytest.mark.parametrize("state", ["recorded", "paused"])
def test_what_waits_in_the_file_stays(pruning, keep, connection, seqs, state):
    connection.execute("UPDATE traces SET state = ? WHERE seq = ?", (state, keep(instant=OLD)))

    assert pruned(pruning, keep=0) == 0
    assert seqs() == [1]


@pytest.mark.parametrize(
    ("state", "keeps_sent", "left"),
    [
        *(("pending", False, [1]), ("sending", False, [1])),
        *((state, False, []) for state in ("sent", "rejected", "blocked", "cancelled")),
        *(("sent", True, [1]), ("rejected", True, [])),
    ],
)
def test_what_waits_to_be_sent_stays(pruning, queue, seqs, state, keeps_sent, left):
    queue(state=state)

    pruned(pruning, keep=0, keep_sent=keeps_sent)

    assert seqs() == left


def test_all_that_is_its_own_goes_with_a_run(pruning, queue, connection):
    first = queue(instant=OLD, id="kp:trace:old", state="sent")
    second = queue(instant=NEW, id="kp:trace:new", state="sent")
    connection.execute("UPDATE traces SET nearest_seq = ? WHERE seq = ?", (first, second))
    connection.executemany(
        "INSERT INTO vectors (trace_seq, embedder, added_at_ms, vector) VALUES (?, 'e', 1, x'00')",
        [(first,), (second,), (None,)],
    )
    connection.execute(
        "INSERT INTO feedback (trace_seq, given_at, success, success_before, confidence_before)"
        " SELECT seq, started_at, 0, 1, 0.8 FROM traces"
    )
    SqliteStore(connection).add_aliases(first, ["kp:trace:old-2", "kp:trace:old-3"])
    SqliteStore(connection).add_aliases(second, ["kp:trace:new-2"])

    pruned(pruning, before=MONTH)

    for name in ("steps", "documents", "outbox", "feedback", "aliases", "asked"):
        left = connection.execute(f"SELECT trace_seq FROM {name}").fetchall()
        assert left == [(second,)], name
    left = connection.execute("SELECT trace_seq FROM vectors ORDER BY seq").fetchall()
    assert left == [(second,), (None,)]
    assert connection.execute("SELECT nearest_seq FROM traces").fetchall() == [(None,)]
    for words in ("traces_fts", "asked_fts"):
        assert connection.execute(f"SELECT count(*) FROM {words}").fetchone() == (1,)
        connection.execute(f"INSERT INTO {words}({words}) VALUES ('integrity-check')")


def test_others_write_between_two_batches_and_what_begins_to_wait_then_stays(
    pruning, keep_of, db, seqs
):
    keep_of(*[OLD] * 20)
    batches = pruning.batches(pruning.select(keep=0))

    removed = next(batches)
    with closing(connect(db)) as other:
        other.execute("PRAGMA busy_timeout = 0")
        outbox = OutboxTable(other, registry="https://registry.example", agent_id=None)
        outbox.add(20, b"{}", redactor="r", redactions={})

    assert removed + sum(batches) == 19
    assert seqs() == [20]
