"""The client-side rate limit. Three 429s within an hour would cost the user the key."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, Self, TypeAlias

from kp_middleware.errors import Problem, ProblemKind

BURST: Final = 20
"""The number of requests we make one after another; the free tier takes 30."""

INTERVAL_S: Final = 2.2
"""In how many seconds we make one more; the free tier takes one per 2."""

_SLOWER_MINUTE_S: Final = 66.0  # a tenth below what the registry allows in a minute
_MINUTE_S: Final = 60.0
_RESERVE: Final = 10
_SHORTEST_INTERVAL_S: Final = 0.01
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_LONGEST_BACKOFF_S: Final = 2400.0
_TICK_S: Final = 0.001  # epoch seconds added up are right to about a microsecond
_MARGIN_S: Final = 30.0  # clocks differ, and others may draw on the same agent's bucket
_REFILL_S: Final = BURST * INTERVAL_S  # of a whole burst, at any interval
_NEVER: Final = -math.inf
_OTHER: Final = Problem(ProblemKind.OTHER)
_DEAD_KEY: Final = Problem(ProblemKind.DEAD_KEY)
_PAST: Final = ("limited_at", "asked_at", "lost_at", "stopped_at", "problem_since")


def burst_at(interval_s: float) -> int:
    """Return the burst at an interval: a full one always takes equally long to refill."""
    return max(1, round(_REFILL_S / interval_s))


class Allowance(NamedTuple):
    """The rate limit as the registry reports it with each answer.

    Attributes:
        per_minute: How many requests of the agent it takes in a minute; None: it does not say.
        remaining: How many it would take at once now, whoever sends them; None: it does not say.
    """

    per_minute: int | None = None
    remaining: int | None = None


UNSAID: Final = Allowance()


@dataclass(frozen=True, slots=True)
class Pace:
    """The state of the rate limit for one agent, one row of the shared file, on one clock.

    Each method but ``wait_s`` returns the pace after an event; minus infinity is never.

    Attributes:
        interval_s: One more is allowed per so many seconds.
        full_at: When the whole burst is there again.
        limited_at: When the last 429 came.
        asked_at: When the request was made that has no answer yet.
        lost_at: When the last one was made whose answer nobody has seen, until another is answered.
        stopped_at: When the key turned out to be dead or not allowed to write.
        problem: The last request's, in the stored form of a `Problem`; empty if it was answered.
        problem_since, tries: Since when, and how many in a row have met one.
        held_until: Then another may send; without a holder, until when a program is at it.
    """

    interval_s: float = INTERVAL_S
    full_at: float = _NEVER
    paused_until: float = _NEVER
    limited_at: float = _NEVER
    asked_at: float = _NEVER
    lost_at: float = _NEVER
    stopped_at: float = _NEVER
    failures: int = 0
    answering: bool = False
    problem: str = ""
    problem_since: float = _NEVER
    tries: int = 0
    holder: str | None = None
    held_until: float = _NEVER
    noted_at: float = _NEVER

    @property
    def has_one_at(self) -> float:
        """The instant at which one request may be made, if nothing pauses."""
        return self.full_at - max(0.0, _REFILL_S - self.interval_s)

    def wait_s(self, now: float) -> float:
        """Return the seconds until a request may be made; infinity until the user acts."""
        if self.stopped_at > _NEVER:
            return math.inf
        wait_s = max(self.has_one_at, self.paused_until) - now
        return wait_s if wait_s > _TICK_S else 0.0

    def spent(self, now: float) -> Self:
        """Return the pace before a request is made, whatever its outcome."""
        return replace(self, full_at=max(self.full_at, now) + self.interval_s, asked_at=now)

    def answered(self) -> Self:
        """Return the pace after the registry took or refused a document."""
        over = ("asked_at", "lost_at", "stopped_at", "problem_since")
        instants: dict[str, Any] = dict.fromkeys(over, _NEVER)
        return replace(self, failures=0, answering=True, problem="", tries=0, **instants)

    def told(self, now: float, allowance: Allowance) -> Self:
        """Return the pace after the registry reported its rate limit and what is left of it."""
        pace = self
        if allowance.per_minute is not None:
            pace = pace.at_interval(now, _SLOWER_MINUTE_S / allowance.per_minute)
        return pace if allowance.remaining is None else pace.sparing(now, allowance.remaining)

    def at_interval(self, now: float, interval_s: float) -> Self:
        """Return the pace with another interval; the burst is refilled in the same time."""
        interval_s = max(interval_s, _SHORTEST_INTERVAL_S)
        left_s = max(0.0, self.full_at - now) * interval_s / self.interval_s
        full_at = now + left_s if left_s else self.full_at
        return replace(self, interval_s=interval_s, full_at=full_at)

    def sparing(self, now: float, remaining: int) -> Self:
        """Return the pace with a reserve for other senders of the same agent.

        Within the reserve each waits the longer the less is left, by its square: so two senders or
        eight settle where as much is refilled as they take, and none of them meets a 429.
        """
        reserve = min(_RESERVE, _SLOWER_MINUTE_S / self.interval_s / 3)
        spare, wait_s = remaining - reserve, 0.0
        if spare < 1:
            spare = 1
            wait_s = min(self.interval_s * (reserve / max(remaining, 1)) ** 2, _MINUTE_S)
        return self.with_burst(now + wait_s, spare)

    def failed(self, now: float, pause_s: float, problem: Problem = _OTHER) -> Self:
        """Return the pace after a failed request: all sending pauses."""
        paused = self.pausing_until(now + pause_s).met(problem, now)
        return replace(paused, failures=self.failures + 1, answering=False)

    def limited(self, now: float, retry_after_s: float) -> Self:
        """Return the pace after a 429: a pause, of an hour after the second within an hour.

        So no three can fall within an hour. The burst is gone: the registry's is too.
        """
        again = now - max(self.limited_at, self.lost_at) < _HOUR_S
        pause_s = max(_HOUR_S, retry_after_s) if again else retry_after_s
        paused = self.pausing_until(now + pause_s + _MARGIN_S).met(Problem(ProblemKind.LIMIT), now)
        return replace(paused.without_burst(paused.paused_until), limited_at=now)

    def lost(self) -> Self:
        """Return the pace after the last answer was lost: it may have been a 429.

        One costs no more than the burst. With another, or a 429, less than an hour before it, no
        third can fall within that hour: nothing is sent until it is over.
        """
        if self.asked_at == _NEVER:
            return self
        before_at, asked_at = max(self.limited_at, self.lost_at), self.asked_at
        pace = self.without_burst(asked_at)
        if asked_at - before_at < _HOUR_S:
            pace = pace.pausing_until(before_at + _HOUR_S + _MARGIN_S)
            pace = pace.met(Problem(ProblemKind.UNHEARD), asked_at)
        return replace(pace, asked_at=_NEVER, lost_at=asked_at)

    def unasked(self) -> Self:
        """Return the pace after a request was not made after all."""
        return replace(self, asked_at=_NEVER)

    def forbidden(self, now: float, problem: Problem = _DEAD_KEY) -> Self:
        """Return the pace after the key was refused: dead, or not allowed to write."""
        return replace(self.met(problem, now), stopped_at=now, answering=False)

    def without_burst(self, now: float) -> Self:
        """Return the pace without a burst, for when we cannot know what was sent just before."""
        return self.with_burst(now, 1)

    def with_burst(self, now: float, requests: float) -> Self:
        """Return the pace with a burst of so many requests at most."""
        full_at = now + max(0.0, _REFILL_S - requests * self.interval_s)
        return replace(self, full_at=max(self.full_at, full_at))

    def plausible(self, now: float) -> Self:
        """Return the pace without instants that are impossible unless the clock was set back.

        What is over cannot lie ahead, and nothing pauses for longer than a day and the margin.
        """
        paused_until = min(self.paused_until, now + _DAY_S + _MARGIN_S)
        refilled_s = max(_REFILL_S, self.interval_s)
        return replace(
            self,
            full_at=min(self.full_at, max(paused_until, now + _MINUTE_S) + refilled_s),
            paused_until=paused_until,
            **{name: min(getattr(self, name), now) for name in _PAST},
        )

    def stricter(self, other: Self) -> Self:
        """Return the stricter of two paces in each respect."""
        names = ("interval_s", "full_at", "paused_until", "failures", "tries", *_PAST)
        return replace(
            self,
            answering=self.answering and other.answering,
            problem=self.problem or other.problem,
            **{name: max(getattr(self, name), getattr(other, name)) for name in names},
        )

    def met(self, problem: Problem, now: float) -> Self:
        """Return the pace after a request that met a problem, which users are shown."""
        return replace(
            self,
            asked_at=_NEVER,
            problem=problem.kept,
            problem_since=self.problem_since if self.problem else now,
            tries=self.tries + 1,
        )

    def pausing_until(self, instant: float) -> Self:
        """Return the pace after a pause has begun, unless a longer one has."""
        return replace(self, paused_until=max(self.paused_until, instant))


_NEW: Final[Mapping[str, Any]] = asdict(Pace())


def unpacked(pace: str, stops: str, key_hash: str) -> Pace:
    """Return a stored pace as it is for the API key with this hash."""
    said = json.loads(pace)
    return Pace(**said | {"stopped_at": json.loads(stops).get(key_hash, _NEVER)})


def packed(pace: Pace, stops: str, key_hash: str) -> tuple[str, str]:
    """Return a pace as it is stored, for all keys: what differs from a new one, and their stops.

    Both are JSON; ``stops`` are those before: the hash of each refused API key and when it was.
    """
    said = {name: value for name, value in asdict(pace).items() if value != _NEW[name]}
    after = {key: at for key, at in json.loads(stops).items() if key != key_hash}
    if (stopped_at := said.pop("stopped_at", None)) is not None:
        after[key_hash] = stopped_at
    return json.dumps(said), json.dumps(after)


def backoff_s(failures: int, luck: float) -> float:
    """Return the seconds to wait after failures in a row: from 2 s, doubling, to an hour.

    So nobody waits much longer than the trouble has lasted. ``luck``, from 0 to 1, spreads the
    waits by half, so that not all clients return together.

    >>> [backoff_s(failures, 0.0) for failures in (1, 2, 11, 12, 100)], backoff_s(100, 1.0)
    ([2.0, 4.0, 2048.0, 2400.0, 2400.0], 3600.0)
    """
    return min(2.0 ** min(failures, 12), _LONGEST_BACKOFF_S) * (1 + luck / 2)


Change: TypeAlias = Callable[[Pace, float], Pace]
"""The pace after an event at an instant."""


class OwnPace:
    """A pace for one request at a time, forgotten with the object; a subclass shares it."""

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self.pace = pace
        self._clock = clock

    def take(self) -> float:
        """Return the seconds until the next attempt to take the turn; 0 if it is ours now."""
        return self.settle(Pace.plausible)

    def spend(self) -> Pace | None:
        """Note that a request is about to be made; return None if the turn is no longer ours."""
        self.settle(Pace.spent)
        return self.pace

    def settle(self, answer: Change, /) -> float:
        """Note what the answer means, keep the turn, and return the seconds to the next request."""
        now = self._clock()
        self.pace = answer(self.pace, now)
        return self.pace.wait_s(now)

    def settle_and_release(self, answer: Change, /) -> None:
        """Note what the last answer may have meant, and let others have their turn at once."""
        self.settle(answer)

    def release(self, *, ended: bool = False) -> None:
        """Let others have their turn; ``ended``: this program asks nothing more."""
