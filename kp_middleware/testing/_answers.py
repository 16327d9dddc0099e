"""The registry's answers, its rate limit, and the faults it can simulate."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, Self

from kp_middleware.testing._wire import Answer, Manner, Received

_HOUR_S: Final = 3600.0

TROUBLE: Final = Answer(500, b"Internal Server Error", {"Content-Type": "text/plain"})
TOO_LARGE: Final = Answer(413)
NO_SCOPE: Final = Answer.of(403, {"error": "Write scope required"})
NO_KEY: Final = Answer.of(401, {"error": "Authentication required"})
NOT_FOUND: Final = Answer.of(404, {"error": "Knowledge unit not found"})
NOT_YOURS: Final = Answer.of(403, {"error": "Forbidden: can only delete your own contributions"})
NOT_YOUR_DATA: Final = Answer.of(403, {"error": "Forbidden: can only export your own data"})
NO_REPUTATION: Final = Answer.of(403, {"error": "Minimum KP-REP score of 0.1 required"})


def canned(status: int) -> Answer:
    """Return the registry's own answer for a status; above 500, an error page of the proxy."""
    match status:
        case 400:
            return invalid({"path": "steps.0.type", "message": "Invalid enum value"})
        case 403:
            return NO_SCOPE
        case 413:
            return TOO_LARGE
        case 500:
            return TROUBLE
        case _ if status > 500:
            return page(status)
        case _:
            return Answer.of(status, {"error": HTTPStatus(status).phrase})


def invalid(*issues: dict[str, str]) -> Answer:
    """Return a 400 that lists the validation issues."""
    return Answer.of(400, {"error": "Invalid KnowledgeUnit", "issues": issues})


def page(status: int) -> Answer:
    """Return an HTML error page, as a proxy would send it."""
    heading = f"<html><h1>{status} {HTTPStatus(status).phrase}</h1></html>"
    return Answer(status, heading.encode(), {"Content-Type": "text/html"})


class WriteLimit:
    """A token bucket that revokes the key at the third refusal within an hour."""

    def __init__(self, burst: int, refill_s: float, clock: Callable[[], float]) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock()
        self.refused_at: list[float] = []
        self.revoked = False

    def allows(self) -> bool:
        """Return whether one more request is allowed, and take a token for it."""
        now = self._clock()
        refilled = self._tokens + (now - self._counted_at) / self._refill_s
        self._tokens, self._counted_at = min(float(self._burst), refilled), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def refusal(self) -> Answer:
        """Return a 429 and count it; the third within an hour revokes the key."""
        now = self._clock()
        self.refused_at.append(now)
        within_an_hour = [at for at in self.refused_at[-3:] if now - at < _HOUR_S]
        self.revoked = self.revoked or len(within_an_hour) == 3
        wait_s = max(1, math.ceil((1 - self._tokens) * self._refill_s))
        return over_limit(wait_s, **self.headers())

    def headers(self) -> dict[str, str]:
        """Return the rate limit headers of each answer, with underscores for hyphens."""
        return _headers(limit=round(60 / self._refill_s), remaining=int(self._tokens))


def dead_key() -> Answer:
    """Return the answer to a missing, unknown or revoked key."""
    return over_limit(60, **_headers(limit=0, remaining=0))


def over_limit(wait_s: int, **headers: str) -> Answer:
    """Return the registry's 429."""
    document = {"error": "Rate limit exceeded", "retry_after": wait_s}
    return Answer.of(429, document, Retry_After=str(wait_s), **headers)


def _headers(*, limit: int, remaining: int) -> dict[str, str]:
    return {"X_RateLimit_Limit": str(limit), "X_RateLimit_Remaining": str(remaining)}


@dataclass(frozen=True, slots=True)
class Treatment:
    """The handling of a request: whether it is taken, and the answer sent instead."""

    manner: Manner = Manner.WHOLE
    takes: bool = False
    says: Answer | None = None


class Fault(Enum):
    """A failure of the registry, or of a proxy in front of it, on one request.

    Faults named ``STORE…`` store the document without confirming it; the others, up to
    ``DEAD_KEY``, ignore it.

    Attributes:
        HANG: Says nothing, until the client hangs up.
        RESET: Resets the connection.
        HANG_UP: Closes the connection without a word.
        CUT: Begins a 201 and closes the connection halfway through.
        NONSENSE: Answers 201 with a proxy's page.
        NO_REPUTATION: Answers 403: the agent is not in good standing.
        DEAD_KEY: Answers 429 with a limit of 0.
        DRIP: Does what it should, and answers byte by byte.
        CRAWL: Does what it should, and answers so slowly, from its headers on, that an answer takes
            half a minute, and no byte of it long.
        CLOSE_IDLE: Does what it should, then closes the connection that the client keeps.
        STORE_AND_HANG: Takes the document, and says nothing.
        STORE_AND_RESET: Takes the document, and resets the connection.
        STORE_AND_CUT: Takes the document, and answers half.
        STORE_AND_FAIL: Takes the document, and answers 500.
        STORE_AND_BABBLE: Takes the document, and answers 201 with a proxy's page.
    """

    HANG = Treatment(Manner.SILENT)
    RESET = Treatment(Manner.RESET)
    HANG_UP = Treatment(Manner.CLOSED)
    CUT = Treatment(Manner.CUT, says=page(201))
    NONSENSE = Treatment(says=page(201))
    NO_REPUTATION = Treatment(says=NO_REPUTATION)
    DEAD_KEY = Treatment(says=dead_key())
    DRIP = Treatment(Manner.DRIPPING, takes=True)
    CRAWL = Treatment(Manner.CRAWLING, takes=True)
    CLOSE_IDLE = Treatment(Manner.LAST, takes=True)
    STORE_AND_HANG = Treatment(Manner.SILENT, takes=True)
    STORE_AND_RESET = Treatment(Manner.RESET, takes=True)
    STORE_AND_CUT = Treatment(Manner.CUT, takes=True)
    STORE_AND_FAIL = Treatment(takes=True, says=TROUBLE)
    STORE_AND_BABBLE = Treatment(takes=True, says=page(201))

    @classmethod
    def mixed(
        cls, weights: Mapping[int | Self | None, float], *, seed: int
    ) -> Callable[[Received], int | Self | None]:
        """Return a script for a `LocalRegistry` that picks a fault at random for each request.

        Args:
            weights: How often each comes, in any unit; None means no fault.
            seed: Of the choices.

        >>> script = Fault.mixed({None: 8, 503: 1, Fault.HANG: 1}, seed=7)
        """
        luck, choices = random.Random(seed), tuple(weights)  # noqa: S311 - guards nothing
        return lambda _: luck.choices(choices, tuple(weights.values()))[0]
