"""Pull what other hosts have appended."""

from collections.abc import Sequence
from typing import Any, Final

from kp_middleware.sharing._link import Connection, Link, bounded
from kp_middleware.sharing._records import (
    LogChangedError,
    LoggedRun,
    LoggedVector,
    Place,
)
from kp_middleware.sharing._rows import SELECTED, run_of

_AT_ONCE: Final = 5000
_HEAD: Final = """
    SELECT head, (SELECT id FROM kp.log WHERE seq = head), (SELECT id FROM kp.log WHERE seq = %s)
    FROM kp.heads WHERE stream = 'main'
"""
_VECTORS: Final = """
    SELECT seq, id, embedder, (extract(epoch FROM decided_at) * 1000)::bigint, vector FROM kp.log
    WHERE seq > %s AND seq <= %s AND pod <> %s AND kind = 'run' AND vector IS NOT NULL
      AND embedder IS NOT NULL
    ORDER BY seq
"""


_RUNS: Final = f"""
    SELECT l.seq, {SELECTED}, d.body, d.redactor FROM kp.log l
    LEFT JOIN kp.documents d ON d.id = l.id
    WHERE l.seq > %s AND l.seq <= %s AND l.kind = 'run' ORDER BY l.seq
"""
_FEW: Final = 500  # with their documents


def pull(
    link: Link, pod: str, place: Place | None, *, newest: int
) -> tuple[list[LoggedVector], Place]:
    """Return the vectors of other pods since a place, some at a time, and the place reached.

    Raises:
        LogChangedError: If the log has changed before the place.
    """

    def work(connection: Connection) -> tuple[list[LoggedVector], Place]:
        with bounded(connection):
            return vectors_since(connection, pod, place, newest=newest)

    return link.exchange(work)


def vectors_since(
    connection: Connection, pod: str, place: Place | None, *, newest: int
) -> tuple[list[LoggedVector], Place]:
    """Return the same, on a connection: in a transaction that has locked the log, all of them."""
    head, end = _head(connection, place)
    first = max(0 if place is None else place.seq, head - newest)
    until = min(head, first + _AT_ONCE)
    rows = connection.execute(_VECTORS, (first, until, pod)).fetchall()
    reached = Place(head, end) if until == head else _place_at(connection, until)
    return [LoggedVector(*row) for row in rows], reached


def pull_runs(link: Link, place: Place | None) -> tuple[Sequence[LoggedRun], Place, int]:
    """Return some runs of all pods since a place with their documents, the place reached, the head.

    Raises:
        LogChangedError: If the log has changed before the place.
    """

    def work(connection: Connection) -> tuple[list[Any], Place, int]:
        with bounded(connection):
            head, end = _head(connection, place)
            first = 0 if place is None else place.seq
            until = min(head, first + _FEW)
            rows = connection.execute(_RUNS, (first, until)).fetchall()
            reached = Place(head, end) if until == head else _place_at(connection, until)
            return rows, reached, head

    rows, reached, head = link.exchange(work)
    return [LoggedRun(row[0], run_of(row[1:])) for row in rows], reached, head


def _head(connection: Connection, place: Place | None) -> tuple[int, str | None]:
    known = Place() if place is None else place
    head, end, anchor = connection.execute(_HEAD, (known.seq,)).fetchall()[0]
    if known.anchor is not None and anchor != known.anchor:
        raise LogChangedError
    return head, end


def _place_at(connection: Connection, seq: int) -> Place:
    rows = connection.execute("SELECT id FROM kp.log WHERE seq = %s", (seq,)).fetchall()
    return Place(seq, rows[0][0] if rows else None)
