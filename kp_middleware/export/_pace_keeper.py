"""Who keeps the pace: all who draw on one agent's bucket need to ask the same one."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from kp_middleware.export._pace import Pace

Change: TypeAlias = Callable[[Pace, float], Pace]
"""What an event at an instant makes of a pace."""


class PaceKeeper(Protocol):
    """Lets one request be made at a time. Several methods: the steps of each request."""

    def take(self) -> float:
        """Seconds until it is worth asking again; 0: the next request is ours to make, now."""

    def spend(self) -> Pace | None:
        """Note, before it is made, that a request is made; None: it is no longer ours to make."""

    def settle(self, answer: Change, /) -> float:
        """Note what the answer means, and keep our turn; seconds until the next request."""

    def give_back(self, answer: Change, /) -> None:
        """Note what the last answer may have meant, and let others have their turn, soon or never.

        For who ends, and cannot wait.
        """

    def release(self) -> None:
        """Let others have their turn."""


class OwnPace:
    """A pace that nobody shares and that is forgotten with the object.

    Args:
        pace: At the start.
        clock: Epoch seconds.
    """

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self.pace = pace
        self._clock = clock

    def take(self) -> float:
        """Seconds until the next request may be made; infinity: until the user acts."""
        now = self._clock()
        self.pace = self.pace.plausible(now)
        return self.pace.wait_s(now)

    def spend(self) -> Pace:
        """Note that a request is made."""
        self.pace = self.pace.spent(self._clock())
        return self.pace

    def settle(self, answer: Change, /) -> float:
        """Note what the answer means; seconds until the next request may be made."""
        now = self._clock()
        self.pace = answer(self.pace, now)
        return self.pace.wait_s(now)

    def give_back(self, answer: Change, /) -> None:
        """Note what the last answer may have meant."""
        self.settle(answer)

    def release(self) -> None:
        """Nobody else waits for a turn."""
