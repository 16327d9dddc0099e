"""Pull what other hosts have appended."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.sharing._link import Connection, Link, bounded
from kp_middleware.sharing._records import (
    LogChangedError,
    LoggedRun,
    LoggedVector,
    Place,
    Pulled,
)
from kp_middleware.sharing._rows import SELECTED, run_of

_AT_ONCE: Final = 5000
_HEAD: Final = """
    SELECT head, (SELECT id FROM kp.log WHERE seq = head), (SELECT id FROM kp.log WHERE seq = %s),
      (SELECT coalesce(min(seq), head + 1) FROM kp.log)
    FROM kp.heads WHERE stream = 'main'
"""
VECTORS: Final = """
    SELECT seq, id, embedder, (extract(epoch FROM decided_at) * 1000)::bigint, vector FROM kp.log
    WHERE seq > %s AND seq <= %s AND pod <> %s AND kind = 'run' AND vector IS NOT NULL
      AND embedder IS NOT NULL
    ORDER BY seq
"""


_GONE: Final = "SELECT id FROM kp.log WHERE seq > %s AND seq <= %s AND kind = 'gone'"
_RUNS: Final = f"""
    SELECT x.seq, x.kind, {SELECTED}, d.body, d.redactor FROM kp.log x
    JOIN kp.log l ON l.id = x.id AND l.rev = 0
    LEFT JOIN kp.documents d ON d.id = l.id
    WHERE x.seq > %s AND x.seq <= %s AND x.kind <> 'gone'
      AND NOT EXISTS (SELECT 1 FROM kp.log g WHERE g.id = x.id AND g.kind = 'gone')
    ORDER BY x.seq
"""
_FEW: Final = 500  # with their documents


def pull(link: Link, pod: str, place: Place | None, *, newest: int) -> Pulled:
    """Return the vectors of other pods since a place, some at a time, and the place reached.

    Raises:
        LogChangedError: If the log has changed before the place.
    """

    def work(connection: Connection) -> Pulled:
        with bounded(connection):
            head, end, _ = _head(connection, place)
            first = max(0 if place is None else place.seq, head - newest)
            until = min(head, first + _AT_ONCE)
            rows = connection.execute(VECTORS, (first, until, pod), binary=True).fetchall()
            reached = Place(head, end) if until == head else _place_at(connection, until)
            told = first if place is None else place.seq  # of what is older, too
            gone = connection.execute(_GONE, (told, until)).fetchall()
        return Pulled([LoggedVector(*row) for row in rows], [id_ for (id_,) in gone], reached)

    return link.exchange(work)


def check(link: Link, place: Place) -> int:
    """Return the first place that is left in the log.

    Raises:
        LogChangedError: If another row stands at the place now.
    """
    return link.exchange(lambda connection: _head(connection, place)[2])


class PulledRuns(NamedTuple):
    """Some runs of all pods with their documents, the place reached, and the last there is."""

    runs: Sequence[LoggedRun]
    gone: Sequence[str]
    place: Place
    head: int


def pull_runs(link: Link, place: Place | None) -> PulledRuns:
    """Return some runs of all pods since a place, with their documents.

    Raises:
        LogChangedError: If the log has changed before the place.
    """

    def work(connection: Connection) -> PulledRuns:
        with bounded(connection):
            head, end, _ = _head(connection, place)
            first = 0 if place is None else place.seq
            until = min(head, first + _FEW)
            rows = connection.execute(_RUNS, (first, until)).fetchall()
            gone = connection.execute(_GONE, (first, until)).fetchall()
            reached = Place(head, end) if until == head else _place_at(connection, until)
        runs = [LoggedRun(seq, kind, run_of(values)) for seq, kind, *values in rows]
        return PulledRuns(runs, [id_ for (id_,) in gone], reached, head)

    return link.exchange(work)


def _head(connection: Connection, place: Place | None) -> tuple[int, str | None, int]:
    known = Place() if place is None else place
    head, end, anchor, first = connection.execute(_HEAD, (known.seq,)).fetchall()[0]
    was_removed = known.seq < first  # people delete old rows: that changes nothing
    if known.anchor is not None and anchor != known.anchor and not was_removed:
        raise LogChangedError
    return head, end, first


def _place_at(connection: Connection, seq: int) -> Place:
    rows = connection.execute("SELECT id FROM kp.log WHERE seq = %s", (seq,)).fetchall()
    return Place(seq, rows[0][0] if rows else None)
