"""The backlog of a pipeline: runs to score and traces to send."""

from typing import NamedTuple


class Backlog(NamedTuple):
    """Work that is not done yet; falsy when there is none.

    Attributes:
        unscored: Runs that are not scored yet, in memory or in the file.
        unsent: Traces in the outbox that are not sent.
    """

    unscored: int
    unsent: int

    def __bool__(self) -> bool:
        return any(self)
