"""The traces worth a look: the best, the newest, some of each score."""

import json
from collections.abc import Iterable, Iterator
from typing import Final

from kp_middleware.database import Connection
from kp_middleware.storage._history import Row

_BINS: Final = 20


def best(connection: Connection, limit: int, *, first: int = 0) -> list[int]:
    """Those that scored most."""
    rows = connection.execute(
        "SELECT seq FROM traces WHERE score IS NOT NULL AND seq >= ?"
        " ORDER BY score DESC, seq DESC LIMIT ?",
        (first, limit),
    )
    return [seq for (seq,) in rows]


def newest(connection: Connection, limit: int, *, first: int = 0) -> list[int]:
    """Those recorded last."""
    rows = connection.execute(
        "SELECT seq FROM traces WHERE seq >= ? ORDER BY seq DESC LIMIT ?", (first, limit)
    )
    return [seq for (seq,) in rows]


def some_of_each_score(connection: Connection, limit: int, *, first: int = 0) -> Iterator[int]:
    """For each twentieth of the scale so many, those that score most in it."""
    for place in range(_BINS):
        top = 2 if place == _BINS - 1 else (place + 1) / _BINS
        rows = connection.execute(
            "SELECT seq FROM traces WHERE score >= ? AND score < ? AND seq >= ?"
            " ORDER BY score DESC LIMIT ?",
            (place / _BINS, top, first, limit),
        )
        yield from (seq for (seq,) in rows)


def listed(connection: Connection, seqs: Iterable[int]) -> list[Row]:
    """These traces as a list shows them, the highest score first and those without one last."""
    cursor = connection.execute(
        """
        SELECT h.seq, h.id, h.started_at, h.domain, h.objective, h.score, h.state
        FROM json_each(?) wanted CROSS JOIN history h ON h.seq = wanted.value
        ORDER BY h.score DESC NULLS LAST, h.seq DESC
        """,
        (json.dumps([*seqs]),),
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
