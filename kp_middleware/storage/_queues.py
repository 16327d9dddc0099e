"""How many wait for each registry, and when the first of them is due."""

from typing import NamedTuple

from kp_middleware.database import Connection
from kp_middleware.instants import epoch_s


class Queue(NamedTuple):
    """What waits for one registry.

    Attributes:
        registry: Its URL.
        waiting: How many traces.
        due_at: When the first may be tried, in epoch seconds; 0 means at once.
        claimed_until: Until when one of them is a program's to send, or None.
    """

    registry: str
    waiting: int
    due_at: float
    claimed_until: str | None = None


def read_queues(connection: Connection) -> list[Queue]:
    """One for each registry that something waits for."""
    cursor = connection.execute(
        """
        SELECT rtrim(registry, '/'), count(*), min(coalesce(
                 CASE state WHEN 'sending' THEN claimed_until ELSE next_attempt_at END, '')),
               max(claimed_until)
        FROM outbox WHERE state IN ('pending', 'sending') GROUP BY 1 ORDER BY 1
        """
    )
    return [
        Queue(registry, waiting, epoch_s(due_at) if due_at else 0.0, claimed_until)
        for registry, waiting, due_at, claimed_until in cursor
    ]
