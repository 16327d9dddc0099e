"""How many POSTs one agent may make, and what it costs to make more."""

import math
from collections.abc import Callable
from typing import Final

from kp_middleware.testing._wire import Answer

_HOUR_S: Final = 3600.0


class WriteLimit:
    """A token bucket that revokes the key at the third refusal within an hour.

    Args:
        burst: How many POSTs may follow one another at once.
        refill_s: One more is allowed per so many seconds.
        clock: Seconds.

    Attributes:
        refused_at: When, in order.
        revoked: Whether the key is dead.
    """

    def __init__(self, burst: int, refill_s: float, clock: Callable[[], float]) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock()
        self.refused_at: list[float] = []
        self.revoked = False

    def allows(self) -> bool:
        """Whether one more may be made; it is then counted."""
        now = self._clock()
        refilled = self._tokens + (now - self._counted_at) / self._refill_s
        self._tokens, self._counted_at = min(float(self._burst), refilled), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def refusal(self) -> Answer:
        """A 429, which is counted."""
        now = self._clock()
        self.refused_at.append(now)
        within_an_hour = [at for at in self.refused_at[-3:] if now - at < _HOUR_S]
        self.revoked = self.revoked or len(within_an_hour) == 3
        wait_s = max(1, math.ceil((1 - self._tokens) * self._refill_s))
        return over_limit(wait_s, **self.headers())

    def headers(self) -> dict[str, str]:
        """What each answer says of the limit, hyphens as underscores."""
        return _headers(limit=round(60 / self._refill_s), remaining=int(self._tokens))


def dead_key() -> Answer:
    """What a missing, unknown or revoked key gets."""
    return over_limit(60, **_headers(limit=0, remaining=0))


def over_limit(wait_s: int, **headers: str) -> Answer:
    """The registry's 429."""
    document = {"error": "Rate limit exceeded", "retry_after": wait_s}
    return Answer.of(429, document, Retry_After=str(wait_s), **headers)


def _headers(*, limit: int, remaining: int) -> dict[str, str]:
    return {"X_RateLimit_Limit": str(limit), "X_RateLimit_Remaining": str(remaining)}
