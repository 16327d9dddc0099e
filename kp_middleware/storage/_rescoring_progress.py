"""How far scoring anew has come, so that the next command goes on there."""

import json
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._past_runs import Selection

_KEY: Final = "rescoring"


class RescoringProgress(NamedTuple):
    """Where scoring anew has stopped.

    Attributes:
        settings: A digest of all that its results depend on.
        selection: Which runs it was to score.
        done: The place of the last run that is done.
        scored: How many of the selected are.
        last_vector: The place of the last vector that it has written, 0 for none.
    """

    settings: str
    selection: Selection
    done: int
    scored: int
    last_vector: int


def read_progress(connection: Connection) -> RescoringProgress | None:
    """What was begun and not finished; None if nothing was."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if row is None:
        return None
    stored = json.loads(row[0])
    return RescoringProgress(**{**stored, "selection": Selection(*stored["selection"])})


def save_progress(connection: Connection, progress: RescoringProgress) -> None:
    """Keep it; in the transaction that writes what it speaks of."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (_KEY, json.dumps(progress._asdict())),
    )


def forget_progress(connection: Connection) -> None:
    """It is finished."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
