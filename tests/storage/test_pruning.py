"""Old traces go with all that is theirs; what waits for something stays."""

import sqlite3
from contextlib import closing

import pytest
from stored_runs import run

from kp_middleware.database import connect
from kp_middleware.storage import Pruning, SqliteStore

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


def test_what_was_learned_of_a_trace_goes_with_it(pruning, keep_of, connection):
    keep_of(OLD, NEW)
    connection.execute(
        "INSERT INTO feedback (trace_seq, given_at, success, success_before, confidence_before)"
        " SELECT seq, started_at, 0, 1, 0.8 FROM traces"
    )

    pruned(pruning, before=MONTH)

    assert connection.execute("SELECT trace_seq FROM feedback").fetchall() == [(2,)]


def test_the_further_ids_of_a_trace_go_with_it(pruning, keep_of, connection):
    keep_of(OLD, NEW)
    aliases = SqliteStore(connection)
    aliases.add_aliases(1, ["kp:trace:old-2", "kp:trace:old-3"])
    aliases.add_aliases(2, ["kp:trace:new-2"])

    pruned(pruning, before=MONTH)

    assert connection.execute("SELECT id FROM aliases").fetchall() == [("kp:trace:new-2",)]


def test_what_scored_enough_stays_and_so_does_what_has_no_score(pruning, keep, connection, seqs):
    for score in (0.29, 0.3, 0.9):
        keep(score=score)
    unscored = keep()
    connection.execute("UPDATE traces SET state = 'failed' WHERE seq = ?", (unscored,))

    pruned(pruning, below=0.3)

    assert seqs() == [2, 3, 4]


def test_what_was_sent_stays_if_it_shall(pruning, keep_of, connection, outbox, seqs):
    for seq in keep_of(OLD, OLD, OLD)[:2]:
        outbox.add(seq, b"{}", redactor="r", redactions={})
    connection.execute("UPDATE outbox SET state = iif(trace_seq = 1, 'sent', 'rejected')")

    pruned(pruning, keep=0, keep_sent=True)

    assert seqs() == [1]


def test_only_a_domain_s_traces_go_and_only_they_are_counted(pruning, keep_of, seqs):
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
    ("state", "left"),
    [
        ("pending", [1]),
        ("sending", [1]),
        *((state, []) for state in ("sent", "rejected", "blocked", "cancelled")),
    ],
)
def test_what_waits_to_be_sent_stays(pruning, keep_of, connection, outbox, seqs, state, left):
    (seq,) = keep_of(OLD)
    outbox.add(seq, b"{}", redactor="r", redactions={})
    connection.execute("UPDATE outbox SET state = ?", (state,))

    pruned(pruning, keep=0)

    assert seqs() == left


def test_all_that_is_its_own_goes_with_a_trace(pruning, keep_of, connection, outbox):
    first, second = keep_of(OLD, NEW)
    outbox.add(first, b"{}", redactor="r", redactions={})
    connection.execute("UPDATE outbox SET state = 'sent'")
    connection.execute("UPDATE traces SET nearest_seq = ? WHERE seq = ?", (first, second))
    connection.executemany(
        "INSERT INTO vectors (trace_seq, embedder, added_at_ms, vector) VALUES (?, 'e', 1, x'00')",
        [(first,), (second,), (None,)],
    )

    pruned(pruning, keep=1)

    tables = ("steps", "documents", "vectors", "outbox")
    rows = [connection.execute(f"SELECT trace_seq FROM {name}").fetchall() for name in tables]
    assert rows == [[(second,)], [(second,)], [(second,), (None,)], []]
    assert connection.execute("SELECT nearest_seq FROM traces").fetchall() == [(None,)]
    connection.execute("INSERT INTO traces_fts (traces_fts) VALUES ('integrity-check')")


def test_what_begins_to_wait_meanwhile_stays(pruning, keep_of, outbox, seqs):
    keep_of(*[OLD] * 20)
    selection = pruning.select(keep=0)

    batches = pruning.batches(selection)
    removed = next(batches)
    outbox.add(20, b"{}", redactor="r", redactions={})

    assert removed + sum(batches) == 19
    assert seqs() == [20]


def test_others_may_write_between_two_batches(pruning, keep_of, db):
    keep_of(*[OLD] * 20)
    batches = pruning.batches(pruning.select(keep=0))
    next(batches)

    with closing(connect(db)) as other:
        other.execute("PRAGMA busy_timeout = 0")
        SqliteStore(other, scorer="another").record(run(instant=NEW))

    assert sum(batches) > 0


def test_a_file_that_is_locked_is_an_error_and_nothing_is_half_gone(
    pruning, connection, keep_of, db, seqs
):
    keep_of(OLD)
    with closing(connect(db)) as other:
        other.execute("BEGIN IMMEDIATE")
        connection.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            next(pruning.batches(pruning.select(keep=0)))

    assert seqs() == [1]
