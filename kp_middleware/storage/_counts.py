"""How much there is, in a few numbers. Each comes from an index: the file may be large."""

from typing import NamedTuple

from kp_middleware.database import Connection


class Counts(NamedTuple):
    """What the file says of its traces.

    Attributes:
        recorded: All.
        unscored: Those that wait to be scored.
        paused: Those that wait for a person, or for their thread's next turn.
        incomplete: Cancelled, timed out or never resumed; they are not scored.
        failed: Those that could not be scored.
        pending: Those that wait to be sent, or are being sent.
        blocked: Not certainly clean, or given up after too many attempts.
    """

    recorded: int = 0
    unscored: int = 0
    paused: int = 0
    scored: int = 0
    incomplete: int = 0
    failed: int = 0
    pending: int = 0
    sent: int = 0
    rejected: int = 0
    blocked: int = 0


def count_backlog(connection: Connection) -> tuple[int, int]:
    """How many runs wait to be scored, and how many traces wait to be sent."""
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM traces WHERE state = 'recorded'),
               (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending'))
        """
    ).fetchone()
    return int(row[0]), int(row[1])


def count_without_tokens(connection: Connection) -> tuple[int, int]:
    """Of the runs that asked a model, how many have no token counts, and how many there are."""
    row = connection.execute(
        """
        SELECT coalesce(sum(input_tokens IS NULL AND output_tokens IS NULL), 0), count(*)
        FROM traces WHERE model IS NOT NULL
        """
    ).fetchone()
    return int(row[0]), int(row[1])


def count_all(connection: Connection) -> Counts:
    """All of them, at one moment."""
    return Counts._make(
        connection.execute(
            """
            SELECT (SELECT count(*) FROM traces),
                   (SELECT count(*) FROM traces WHERE state = 'recorded'),
                   (SELECT count(*) FROM traces WHERE state = 'paused'),
                   (SELECT count(*) FROM traces WHERE score IS NOT NULL),
                   (SELECT count(*) FROM traces WHERE score IS NULL AND state = 'incomplete'),
                   (SELECT count(*) FROM traces WHERE score IS NULL AND state = 'failed'),
                   (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')),
                   (SELECT count(*) FROM outbox WHERE state = 'sent'),
                   (SELECT count(*) FROM outbox WHERE state = 'rejected'),
                   (SELECT count(*) FROM outbox WHERE state = 'blocked')
            """
        ).fetchone()
    )
