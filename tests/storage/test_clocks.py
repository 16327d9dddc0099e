"""A clock that jumps changes no order."""

import pytest

from kp_middleware.database import VectorTable
from kp_middleware.embedding import VectorCache
from kp_middleware.testing import FakeClock


@pytest.mark.parametrize("second", ["1996-01-01T00:00:00Z", "2096-01-01T00:00:00Z"])
def test_what_came_last_is_listed_first_whatever_the_clock_said(keep, history, store, second):
    keep("first", instant="2026-01-01T00:00:00Z")
    keep("second", instant=second)

    assert [row.objective for row in history.runs(limit=9)] == ["second", "first"]
    assert store.next_recorded() == 1


@pytest.mark.parametrize("jump_s", [-10 * 365 * 86_400, 10 * 365 * 86_400], ids=["back", "on"])
def test_stamps_of_vectors_never_decrease_whichever_process_adds_them(connection, jump_s):
    clock, jumped = FakeClock(), FakeClock()
    ours, theirs = (
        VectorCache(9, clock=each.ms, table=VectorTable(connection)) for each in (clock, jumped)
    )

    ours.add([1] * 384, embedder="e")
    jumped.advance(jump_s)
    theirs.add([1] * 384, embedder="e")
    clock.advance(1)
    ours.add([1] * 384, embedder="e")

    stamps = [row[0] for row in connection.execute("SELECT added_at_ms FROM vectors ORDER BY seq")]
    assert stamps == sorted(stamps)
