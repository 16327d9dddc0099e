"""Old traces go, with their steps, vectors and outbox rows: what nothing waits for any more."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kp_middleware.database import Connection, transaction

_AIM_S: Final = 0.015  # others wait for the lock so long; of the slowest batch, three times
_FIRST: Final = 8
_MOST: Final = 500
_NEVER: Final = "9999"  # later than any instant
_DOOMED: Final = """
    FROM traces t
    WHERE t.seq > :after AND t.seq < :newest AND t.started_at < :before
      AND (:domain IS NULL OR t.domain = :domain) AND (:below IS NULL OR t.score < :below)
      AND t.state IN ('scored', 'incomplete', 'failed')
      AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.trace_seq = t.seq
                      AND o.state IN ('pending', 'sending', iif(:keep_sent, 'sent', 'sending')))
"""


class Doomed(NamedTuple):
    """Which traces go: those that no rule keeps.

    Attributes:
        newest: The traces from this ``seq`` on are kept.
        before: What started at this instant or later is kept.
        domain: All others are kept; None means that it may be any.
        below: What scored so much or more is kept, and what has no score; None keeps nothing for
            its score.
        keep_sent: Whether what was sent is kept.
    """

    newest: int
    before: str
    domain: str | None
    below: float | None
    keep_sent: bool


class Pruning:
    """Removes traces of one file, in batches so small that nobody waits for them.

    What waits to be scored, to be sent, for a person or for its thread's next turn, stays.

    Args:
        connection: Of the file.
        timer: Seconds, of a clock that nobody sets.
    """

    def __init__(
        self, connection: Connection, *, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self._connection = connection
        self._timer = timer
        self._size = _FIRST

    def doomed(
        self,
        *,
        before: str | None = None,
        keep: int | None = None,
        domain: str | None = None,
        below: float | None = None,
        keep_sent: bool = False,
    ) -> Doomed:
        """What goes: what none of these keeps.

        Args:
            before: What started at this instant or later is kept; None keeps nothing for its age.
            keep: So many of the newest are kept; None keeps none for that.
            domain: Only traces of this domain go, and only they are counted.
            below: What scored so much or more is kept, and what has no score; None keeps nothing
                for its score.
            keep_sent: Whether what was sent is kept.
        """
        newest = self._newest(keep or 0, domain)
        return Doomed(newest, before or _NEVER, domain, below, keep_sent)

    def count(self, doomed: Doomed) -> int:
        """How many go."""
        (count,) = self._connection.execute(
            f"SELECT count(*) {_DOOMED}",
            {**doomed._asdict(), "after": 0},
        ).fetchone()
        return int(count)

    def batches(self, doomed: Doomed) -> Iterator[int]:
        """Remove them, the first recorded first; after each batch, how many have gone by it."""
        last = 0
        while seqs := self._next(doomed, last):
            last = seqs[-1]
            yield self._remove(seqs, doomed)

    def _newest(self, keep: int, domain: str | None) -> int:
        row = self._connection.execute(
            "SELECT seq FROM traces WHERE :domain IS NULL OR domain = :domain"
            " ORDER BY seq DESC LIMIT 1 OFFSET :kept",
            {"domain": domain, "kept": max(0, keep - 1)},
        ).fetchone()
        if row is None:
            return 0  # there are fewer
        return int(row[0]) + (keep == 0)

    def _next(self, doomed: Doomed, last: int) -> list[int]:
        rows = self._connection.execute(
            f"SELECT t.seq {_DOOMED} ORDER BY t.seq LIMIT :size",
            {**doomed._asdict(), "after": last, "size": self._size},
        )
        return [seq for (seq,) in rows]

    def _remove(self, seqs: list[int], doomed: Doomed) -> int:
        with transaction(self._connection):
            started = self._timer()
            removed = self._connection.execute(
                f"DELETE FROM traces WHERE seq IN (SELECT t.seq {_DOOMED}"  # noqa: S608
                " AND t.seq IN (SELECT value FROM json_each(:seqs))) RETURNING seq",
                {**doomed._asdict(), "after": 0, "seqs": json.dumps(seqs)},
            ).fetchall()
        took_s = max(self._timer() - started, 1e-6)
        self._size = min(_MOST, max(1, min(2 * len(seqs), int(len(seqs) * _AIM_S / took_s))))
        return len(removed)


def vacuum(connection: Connection) -> None:
    """Give unused room back to the disk. Others wait meanwhile: about a second per 100 MB.

    Raises:
        sqlite3.OperationalError: If another program writes for 5 s, or there is no room for a copy.
    """
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
