"""When the next request may be made. Three 429s within an hour would cost the user the key."""

import math
from dataclasses import dataclass, replace
from typing import Final, Self

_HOUR_S: Final = 3600.0
_TICK_S: Final = 0.001  # epoch seconds added up are right to about a microsecond
_MARGIN_S: Final = 30.0  # clocks differ, and others may draw on the same agent's bucket


@dataclass(frozen=True, slots=True)
class Pace:
    """What we may ask of the registry, and what it has asked of us; all instants on one clock.

    Each method but ``wait_s`` returns the pace after an event. A clock that is set back only makes
    the wait longer.

    Attributes:
        burst: How many requests may follow one another at once; the free tier takes 30.
        interval_s: One more is allowed per so many seconds; the free tier takes one per 2.
        full_at: When the whole burst is there again.
        paused_until: No request before this instant.
        limited_at: When the last 429 came.
        failures: How many requests in a row went wrong because the registry was in trouble.
        answering: Whether the last request was answered sensibly; False before the first.
        stopped: Whether nothing is to be sent until the user acts.
    """

    burst: int = 20
    interval_s: float = 2.2
    full_at: float = -math.inf
    paused_until: float = -math.inf
    limited_at: float = -math.inf
    failures: int = 0
    answering: bool = False
    stopped: bool = False

    def wait_s(self, now: float) -> float:
        """Seconds until a request may be made: 0 means now, infinity not until the user acts."""
        if self.stopped:
            return math.inf
        has_one_at = self.full_at - (self.burst - 1) * self.interval_s
        wait_s = max(has_one_at, self.paused_until) - now
        return wait_s if wait_s > _TICK_S else 0.0

    def spent(self, now: float) -> Self:
        """After a request was made, whatever became of it."""
        return replace(self, full_at=max(self.full_at, now) + self.interval_s)

    def answered(self) -> Self:
        """After the registry took or refused a document."""
        return replace(self, failures=0, answering=True)

    def failed(self, now: float, pause_s: float) -> Self:
        """After a request met trouble: all sending pauses."""
        return replace(
            self,
            failures=self.failures + 1,
            answering=False,
            paused_until=max(self.paused_until, now + pause_s),
        )

    def limited(self, now: float, retry_after_s: float) -> Self:
        """After a 429: nothing is sent for a while, after the second within an hour for an hour.

        So no three can fall within an hour. The burst is gone: the registry's is too.
        """
        again = now - self.limited_at < _HOUR_S
        pause_s = (max(_HOUR_S, retry_after_s) if again else retry_after_s) + _MARGIN_S
        resumes_at = max(self.paused_until, now + pause_s)
        return replace(
            self,
            full_at=resumes_at + (self.burst - 1) * self.interval_s,
            paused_until=resumes_at,
            limited_at=now,
        )

    def forbidden(self) -> Self:
        """After the key turned out to be dead, or not allowed to write."""
        return replace(self, stopped=True)


def backoff_s(failures: int, luck: float) -> float:
    """How long to wait after so many failures in a row: from 2 s, doubling, to 5 minutes.

    Args:
        failures: At least 1.
        luck: From 0 to 1; spreads the waits by half, so that not all clients return together.

    >>> [backoff_s(failures, 0.0) for failures in (1, 2, 7, 8, 100)], backoff_s(100, 1.0)
    ([2.0, 4.0, 128.0, 200.0, 200.0], 300.0)
    """
    return min(2.0 ** min(failures, 8), 200.0) * (1 + luck / 2)
