"""What a pipeline has not done yet."""

from typing import NamedTuple


class Backlog(NamedTuple):
    """What is not done yet; falsy when all is.

    Attributes:
        unscored: Runs that are not scored: they wait in memory, or in the file for the model.
        unsent: Traces in the outbox that are not sent.
    """

    unscored: int
    unsent: int

    def __bool__(self) -> bool:
        return any(self)
