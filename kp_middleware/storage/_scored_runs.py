"""All scored runs of a file, for replaying the gate's decisions."""

from typing import Final

from kp_middleware.core.replay import ScoredRun
from kp_middleware.database import Connection
from kp_middleware.instants import epoch_ms

_RUNS: Final = """
    SELECT domain, score, started_at, coalesce(decided_at, started_at),
           visibility = 'private', success
    FROM traces NOT INDEXED WHERE score IS NOT NULL ORDER BY seq
"""


def read_scored_runs(connection: Connection) -> list[ScoredRun]:
    """Return all scored runs in the order of recording."""
    return [
        ScoredRun(
            domain, score, epoch_ms(started_at), epoch_ms(decided_at), bool(private), bool(success)
        )
        for domain, score, started_at, decided_at, private, success in connection.execute(_RUNS)
    ]
