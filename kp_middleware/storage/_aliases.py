"""Ids that were told of parts of a run, before they were joined with the part that waited."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kp_middleware.database import Connection


class Aliases:
    """The further ids of the traces of one file. Use it inside a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, seq: int, ids: Iterable[str]) -> None:
        """From now on these lead to this trace, too."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO aliases (id, trace_seq) SELECT ?, ?"
            " WHERE EXISTS (SELECT 1 FROM traces WHERE seq = ?)",
            ((one, seq, seq) for one in ids),
        )

    @contextmanager
    def outliving(self, seq: int) -> Iterator[None]:
        """Keep those of a trace while its row is written anew in the same place."""
        rows = self._connection.execute("SELECT id FROM aliases WHERE trace_seq = ?", (seq,))
        kept = [str(one) for (one,) in rows]
        yield
        self.add(seq, kept)
