"""New runs of a file, as they end."""

import json
from typing import Final

from kp_middleware.database import Connection
from kp_middleware.storage._listing import Listing
from kp_middleware.storage._records import RunSummary

_ENDED: Final = frozenset(("scored", "incomplete", "failed"))
_BEGIN: Final = """
    SELECT CASE :first WHEN 0 THEN (SELECT coalesce(max(seq), 0) FROM traces) ELSE
             coalesce((SELECT seq - 1 FROM traces WHERE state NOT IN ('recorded', 'paused')
                       ORDER BY seq DESC LIMIT 1 OFFSET max(:first - 1, 0)), 0) END,
           (SELECT json_group_array(seq) FROM traces
            WHERE score IS NULL AND state IN ('recorded', 'paused'))
"""  # one statement, so that both halves see the same traces
_NEW: Final = """
    SELECT seq, state FROM traces
    WHERE seq > :last OR seq IN (SELECT value FROM json_each(:open)) ORDER BY seq
"""


class Tail:
    """A tail of the traces of one file: each is returned once, when it has ended.

    Args:
        connection: The connection to the file; other programs write to it.
        listing: Returns the summaries of traces.
        first: The number of already ended traces to start with.
    """

    def __init__(self, connection: Connection, listing: Listing, first: int) -> None:
        self._connection = connection
        self._listing = listing
        self._last, still_open = connection.execute(_BEGIN, {"first": first}).fetchone()
        self._open: list[int] = json.loads(still_open)

    def new(self) -> list[RunSummary]:
        """Return the traces that ended since the last call, in the order in which they began."""
        (newest,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM traces").fetchone()
        self._last = min(self._last, newest)  # the seq of a removed trace is reused
        states = self._connection.execute(
            _NEW, {"last": self._last, "open": json.dumps(self._open)}
        ).fetchall()
        self._last = max([self._last, *(seq for seq, _ in states)])
        ended = [seq for seq, state in states if state in _ENDED]
        self._open = [seq for seq, state in states if state not in _ENDED]
        return self._listing.at(ended) if ended else []
