"""Traces as they come to their end, for whoever watches."""

import json
from typing import Final

from kp_middleware.database import Connection
from kp_middleware.storage._history import Row
from kp_middleware.storage._listing import Listing

_ENDED: Final = frozenset(("scored", "incomplete", "failed"))
_BEGIN: Final = """
    SELECT CASE :first WHEN 0 THEN (SELECT coalesce(max(seq), 0) FROM traces) ELSE
             coalesce((SELECT seq - 1 FROM traces WHERE state NOT IN ('recorded', 'paused')
                       ORDER BY seq DESC LIMIT 1 OFFSET max(:first - 1, 0)), 0) END,
           (SELECT json_group_array(seq) FROM traces WHERE state IN ('recorded', 'paused'))
"""  # one statement: no trace slips between its halves
_NEW: Final = """
    SELECT seq, state FROM traces
    WHERE seq > :last OR seq IN (SELECT value FROM json_each(:open)) ORDER BY seq
"""


class Arrivals:
    """The traces of one file that end from now on: each once, whenever it was begun.

    Args:
        connection: Of the file; other programs write to it.
        first: So many of the newest that have ended already come first.
    """

    def __init__(self, connection: Connection, *, first: int = 0) -> None:
        self._connection = connection
        self._listing = Listing(connection)
        self._last, still_open = connection.execute(_BEGIN, {"first": first}).fetchone()
        self._open: list[int] = json.loads(still_open)

    def new(self) -> list[Row]:
        """Those that have ended since it was asked last, in the order in which they began."""
        (newest,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM traces").fetchone()
        self._last = min(self._last, newest)  # places of removed traces are given again
        states = self._connection.execute(
            _NEW, {"last": self._last, "open": json.dumps(self._open)}
        ).fetchall()
        self._last = max([self._last, *(seq for seq, _ in states)])
        ended = [seq for seq, state in states if state in _ENDED]
        self._open = [seq for seq, state in states if state not in _ENDED]
        return self._listing.rows(ended) if ended else []
