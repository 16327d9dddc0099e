"""The statistics of a pipeline: from its file, and from this process."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kp_middleware.database import TROUBLE, in_words
from kp_middleware.storage import Counts, Database, count_all


class Stats(NamedTuple):
    """Counts of traces; those of the file are of all processes that share it.

    Attributes:
        recorded: All in the file.
        unscored: In the file, waiting to be scored.
        paused: Waiting for a person, or for their thread's next turn.
        scored: Scored, whatever the score.
        incomplete: Cancelled, timed out or never resumed; kept, not scored.
        failed: Could not be scored; kept.
        pending: Waiting to be sent, or being sent.
        sent: Accepted by the registry.
        rejected: Never to be accepted by the registry.
        blocked: Not certainly clean, or given up after too many attempts.
        in_memory: Runs of this process that are not in the file yet.
        dropped: Runs of this process that are lost, because too many waited.
        swallowed: Failures of recording in this process, kept from the agent: counts by kind.
        trouble: Why the file cannot be used now, or nothing be sent because a setting is wrong, and
            what to do about it; None if all is well.
    """

    recorded: int
    unscored: int
    paused: int
    scored: int
    incomplete: int
    failed: int
    pending: int
    sent: int
    rejected: int
    blocked: int
    in_memory: int
    dropped: int
    swallowed: Mapping[str, int]
    trouble: str | None


def read_stats(
    path: Path,
    *,
    in_memory: int,
    dropped: int,
    swallowed: Mapping[str, int],
    trouble: str | None,
) -> Stats:
    """Return the statistics; the file's counts are 0 if it is missing or cannot be read.

    Args:
        path: Of the file.
        in_memory: As in `Stats`.
        dropped: As in `Stats`.
        swallowed: As in `Stats`.
        trouble: Why it could not be written when that was tried last; None if it could.
    """
    counts = Counts()
    try:
        with closing(Database(path, read_only=True)) as connection:
            counts = count_all(connection)
    except TROUBLE as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            trouble = trouble or str(in_words(path, error))
    return Stats(*counts, in_memory, dropped, dict(swallowed), trouble)
