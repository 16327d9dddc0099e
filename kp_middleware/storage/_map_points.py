"""The newest traces with their vectors, for a map and for neighbours."""

from typing import Final, NamedTuple

from kp_middleware.database import Connection

MOST_POINTS: Final = 2000
"""How many traces are on a map, the newest first."""

_COLUMNS: Final = (
    "t.seq, t.id, t.domain, t.objective, t.score, coalesce(t.decision = 'forward', 0), v.vector"
)
_OF_THE_TRACE: Final = "WHERE trace_seq = :around"
_NEAREST: Final = """
    v.trace_seq = (SELECT nearest_seq FROM traces WHERE seq = :around)
    AND v.embedder = (
        SELECT embedder FROM vectors WHERE trace_seq = :around ORDER BY seq DESC LIMIT 1)
"""


class MapPoint(NamedTuple):
    """One trace with its vector: float32, little-endian, of length 1."""

    seq: int
    id: str
    domain: str
    objective: str
    score: float | None
    cleared: bool
    vector: bytes


def read_points(
    connection: Connection, *, first: int = 0, around: int | None = None
) -> tuple[MapPoint, ...]:
    """Traces whose vectors can be compared, the newest first.

    Args:
        connection: To the file.
        first: Only from this ``seq`` on.
        around: A trace whose embedder's vectors are wanted: it comes first, and then the trace that
            was nearest when it was scored, however old it is. None means the embedder of the
            newest vector.
    """
    chosen = _rows(connection, "v.trace_seq = :around", around)
    if around is not None and not chosen:
        return ()
    chosen += _rows(connection, _NEAREST, around)
    newest = connection.execute(
        f"""
        SELECT {_COLUMNS} FROM vectors v CROSS JOIN traces t ON t.seq = v.trace_seq
        WHERE (v.embedder, length(v.vector)) = (
            SELECT embedder, length(vector) FROM vectors {"" if around is None else _OF_THE_TRACE}
            ORDER BY seq DESC LIMIT 1)
          AND t.seq >= :first
        ORDER BY v.seq DESC LIMIT :limit
        """,  # noqa: S608 - ours
        {"around": around, "first": first, "limit": MOST_POINTS},
    )
    size = len(chosen[0].vector) if chosen else None
    comparable = [point for point in chosen if len(point.vector) == size]
    named = {point.seq for point in comparable}
    return (*comparable, *(point for point in map(_point, newest) if point.seq not in named))


def _rows(connection: Connection, where: str, around: int | None) -> list[MapPoint]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM vectors v JOIN traces t ON t.seq = v.trace_seq"  # noqa: S608 - ours
        f" WHERE {where} ORDER BY v.seq DESC LIMIT 1",
        {"around": around},
    )
    return [*map(_point, rows)]


def _point(row: tuple[int, str, str, str, float | None, int, bytes]) -> MapPoint:
    point = MapPoint._make(row)
    return point._replace(cleared=bool(point.cleared))
