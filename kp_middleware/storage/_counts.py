"""How much there is, in a few numbers."""

import sqlite3


def count_backlog(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many runs wait to be scored, and how many traces wait to be sent."""
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM traces WHERE state = 'recorded'),
               (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending'))
        """
    ).fetchone()
    return int(row[0]), int(row[1])
