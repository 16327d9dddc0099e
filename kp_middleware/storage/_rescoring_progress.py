"""Progress of rescoring, from which the next command resumes."""

import json
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._past_runs import Selection

_KEY: Final = "rescoring"


class RescoringProgress(NamedTuple):
    """The progress of an unfinished rescoring.

    Attributes:
        settings: A digest of all settings that affect the results.
        selection: The runs to rescore.
        done: The ``seq`` of the last finished run.
        scored: The number of selected runs that are finished.
        last_vector: The ``seq`` of the last vector written, 0 for none.
    """

    settings: str
    selection: Selection
    done: int
    scored: int
    last_vector: int


def read_progress(connection: Connection) -> RescoringProgress | None:
    """Read the progress of an unfinished rescoring; return None if there is none."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if row is None:
        return None
    stored = json.loads(row[0])
    return RescoringProgress(**{**stored, "selection": Selection(*stored["selection"])})


def save_progress(connection: Connection, progress: RescoringProgress) -> None:
    """Store the progress; call it in the transaction that writes the results."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (_KEY, json.dumps(progress._asdict())),
    )


def forget_progress(connection: Connection) -> None:
    """Delete the progress when rescoring is finished."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
