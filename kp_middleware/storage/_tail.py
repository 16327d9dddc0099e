"""New runs of a file, as they end."""

import json
from collections.abc import Callable
from typing import Final

from kp_middleware.database import Connection, Queries
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


class Tail(Queries):
    """A tail of the runs of one file: each is returned once, when it has ended."""

    def __init__(
        self,
        connection: Connection,
        runs_at: Callable[[list[int]], list[RunSummary]],
        *,
        first: int,
    ) -> None:
        super().__init__(connection)
        self._runs_at = runs_at
        self._last, still_open = self._row(_BEGIN, {"first": first})
        self._open: list[int] = json.loads(still_open)

    def new(self) -> list[RunSummary]:
        """Return the runs that ended since the last call, in the order in which they began."""
        newest = self._value("SELECT coalesce(max(seq), 0) FROM traces")
        self._last = min(self._last, newest)  # the seq of a removed run is reused
        states = self._run(_NEW, {"last": self._last, "open": json.dumps(self._open)}).fetchall()
        self._last = max([self._last, *(seq for seq, _ in states)])
        ended = [seq for seq, state in states if state in _ENDED]
        self._open = [seq for seq, state in states if state not in _ENDED]
        return self._runs_at(ended) if ended else []
