"""The client-side rate limit. Three 429s within an hour would cost the user the key."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, Self, TypeAlias

from kp_middleware.errors import Problem, ProblemKind

__all__ = ["NO_ALLOWANCE", "Allowance", "LocalPace", "Pace", "PaceChange", "backoff_s", "burst_at",
           "pack_pace", "unpack_pace"]  # fmt: skip

BURST: Final = 20
"""The number of requests sent in one burst; the free tier allows 30."""

INTERVAL_S: Final = 2.2
"""The seconds per further request; the free tier allows one every 2."""

_SLOWER_MINUTE_S: Final = 66.0  # a tenth below what the registry allows in a minute
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_TICK_S: Final = 0.001  # epoch seconds added up are right to about a microsecond
_MARGIN_S: Final = 30.0  # clocks differ, and others may use the same agent's bucket
_REFILL_S: Final = BURST * INTERVAL_S  # of a whole burst, at any interval
_NEVER: Final = -math.inf
_UNKNOWN_PROBLEM: Final = Problem(ProblemKind.OTHER)
_DEAD_KEY: Final = Problem(ProblemKind.DEAD_KEY)
_PAST_INSTANTS: Final = ("limited_at", "asked_at", "lost_at", "stopped_at", "problem_since")


def burst_at(interval_s: float) -> int:
    """Return the burst at an interval: a full one always takes equally long to refill."""
    return max(1, round(_REFILL_S / interval_s))


class Allowance(NamedTuple):
    """The rate limit as the registry reports it with each answer; None if not reported."""

    per_minute: int | None = None  # of the agent
    remaining: int | None = None  # that all senders together have left now


NO_ALLOWANCE: Final = Allowance()


@dataclass(frozen=True, slots=True)
class Pace:
    """The state of the rate limit for one agent, one row of the shared file, on one clock.

    Each method but ``wait_s`` returns the pace after an event; minus infinity means never.
    """

    interval_s: float = INTERVAL_S  # per further request
    full_at: float = _NEVER  # when the burst is completely refilled
    paused_until: float = _NEVER
    limited_at: float = _NEVER  # when the last 429 arrived
    asked_at: float = _NEVER  # when the pending request was sent
    lost_at: float = _NEVER  # when a request without a known answer was sent, until the next answer
    stopped_at: float = _NEVER  # when the key was refused: dead or read-only
    failures: int = 0
    answering: bool = False
    problem: str = ""  # the last request's, as a stored `Problem`; empty if it was answered
    problem_since: float = _NEVER
    tries: int = 0  # failed requests since then
    holder: str | None = None
    held_until: float = _NEVER  # without a holder: until when the last one may send more
    noted_at: float = _NEVER

    @property
    def ready_at(self) -> float:
        """The instant at which the next request may be sent, unless sending pauses."""
        return self.full_at - max(0.0, _REFILL_S - self.interval_s)

    def wait_s(self, now: float) -> float:
        """Return the seconds until a request may be sent; infinity until the user fixes it."""
        if self.stopped_at > _NEVER:
            return math.inf
        wait_s = max(self.ready_at, self.paused_until) - now
        return wait_s if wait_s > _TICK_S else 0.0

    def spent(self, now: float) -> Self:
        """Return the pace with one request spent, which is recorded before it is sent."""
        return replace(self, full_at=max(self.full_at, now) + self.interval_s, asked_at=now)

    def answered(self) -> Self:
        """Return the pace after the registry accepted or rejected a document."""
        cleared = ("asked_at", "lost_at", "stopped_at", "problem_since")
        instants: dict[str, Any] = dict.fromkeys(cleared, _NEVER)
        return replace(self, failures=0, answering=True, problem="", tries=0, **instants)

    def with_allowance(self, now: float, allowance: Allowance) -> Self:
        """Return the pace after the registry reported its rate limit."""
        pace = self
        if allowance.per_minute is not None:
            pace = pace.at_interval(now, _SLOWER_MINUTE_S / allowance.per_minute)
        return pace if allowance.remaining is None else pace.with_reserve(now, allowance.remaining)

    def at_interval(self, now: float, interval_s: float) -> Self:
        """Return the pace with another interval; a burst takes as long to refill as before."""
        interval_s = max(interval_s, 0.01)
        left_s = max(0.0, self.full_at - now) * interval_s / self.interval_s
        full_at = now + left_s if left_s else self.full_at
        return replace(self, interval_s=interval_s, full_at=full_at)

    def with_reserve(self, now: float, remaining: int) -> Self:
        """Return the pace with a reserve for other senders of the same agent.

        Within the reserve, the wait grows with the square of what is missing: any number of
        senders settle at the refill rate, and none of them gets a 429.
        """
        reserve = min(10, _SLOWER_MINUTE_S / self.interval_s / 3)
        spare, wait_s = remaining - reserve, 0.0
        if spare < 1:
            spare = 1
            wait_s = min(self.interval_s * (reserve / max(remaining, 1)) ** 2, _MINUTE_S)
        return self.with_burst(now + wait_s, spare)

    def failed(self, now: float, pause_s: float, problem: Problem = _UNKNOWN_PROBLEM) -> Self:
        """Return the pace after a failed request: all sending pauses."""
        paused = self.pause_until(now + pause_s).with_problem(problem, now)
        return replace(paused, failures=self.failures + 1, answering=False)

    def limited(self, now: float, retry_after_s: float) -> Self:
        """Return the pace after a 429: a pause, of an hour after the second within an hour.

        No hour can have three, then. The burst is empty, as the registry's is.
        """
        repeated = now - max(self.limited_at, self.lost_at) < _HOUR_S
        pause_s = max(_HOUR_S, retry_after_s) if repeated else retry_after_s
        paused = self.pause_until(now + pause_s + _MARGIN_S).with_problem(
            Problem(ProblemKind.LIMIT), now
        )
        return replace(paused.without_burst(paused.paused_until), limited_at=now)

    def answer_lost(self) -> Self:
        """Return the pace after the last answer was lost: it may have been a 429.

        One lost answer costs only the burst. If another one, or a 429, came less than an hour
        before it, nothing is sent for the rest of that hour.
        """
        if self.asked_at == _NEVER:
            return self
        before_at, asked_at = max(self.limited_at, self.lost_at), self.asked_at
        pace = self.without_burst(asked_at)
        if asked_at - before_at < _HOUR_S:
            pace = pace.pause_until(before_at + _HOUR_S + _MARGIN_S)
            pace = pace.with_problem(Problem(ProblemKind.UNHEARD), asked_at)
        return replace(pace, asked_at=_NEVER, lost_at=asked_at)

    def cancelled(self) -> Self:
        """Return the pace after a request was not sent after all."""
        return replace(self, asked_at=_NEVER)

    def forbidden(self, now: float, problem: Problem = _DEAD_KEY) -> Self:
        """Return the pace after the key was refused: dead or read-only."""
        return replace(self.with_problem(problem, now), stopped_at=now, answering=False)

    def without_burst(self, now: float) -> Self:
        """Return the pace without a burst, when earlier requests are unknown."""
        return self.with_burst(now, 1)

    def with_burst(self, now: float, requests: float) -> Self:
        """Return the pace with a burst of at most this many requests."""
        full_at = now + max(0.0, _REFILL_S - requests * self.interval_s)
        return replace(self, full_at=max(self.full_at, full_at))

    def plausible(self, now: float) -> Self:
        """Return the pace without instants that are possible only if the clock was set back.

        Past events are not in the future, and no pause exceeds a day and the margin.
        """
        paused_until = min(self.paused_until, now + _DAY_S + _MARGIN_S)
        refilled_s = max(_REFILL_S, self.interval_s)
        return replace(
            self,
            full_at=min(self.full_at, max(paused_until, now + _MINUTE_S) + refilled_s),
            paused_until=paused_until,
            **{name: min(getattr(self, name), now) for name in _PAST_INSTANTS},
        )

    def stricter(self, other: Self) -> Self:
        """Return the stricter of two paces in each respect."""
        names = ("interval_s", "full_at", "paused_until", "failures", "tries", *_PAST_INSTANTS)
        return replace(
            self,
            answering=self.answering and other.answering,
            problem=self.problem or other.problem,
            **{name: max(getattr(self, name), getattr(other, name)) for name in names},
        )

    def with_problem(self, problem: Problem, now: float) -> Self:
        """Return the pace after a request failed with a problem, which is shown to users."""
        return replace(
            self,
            asked_at=_NEVER,
            problem=problem.stored,
            problem_since=self.problem_since if self.problem else now,
            tries=self.tries + 1,
        )

    def pause_until(self, instant: float) -> Self:
        """Return the pace with a pause until an instant, or until later if it was longer."""
        return replace(self, paused_until=max(self.paused_until, instant))


_DEFAULTS: Final[Mapping[str, Any]] = asdict(Pace())


def unpack_pace(pace: str, stops: str, key_hash: str) -> Pace:
    """Return a stored pace for the API key with this hash, without fields of newer releases."""
    values = json.loads(pace or "{}") | {"stopped_at": json.loads(stops).get(key_hash, _NEVER)}
    return Pace(**{name: values[name] for name in values.keys() & _DEFAULTS.keys()})


def pack_pace(pace: Pace, stops: str, key_hash: str) -> tuple[str, str]:
    """Return the stored form of a pace: its differences from a new pace, and the stops of all keys.

    Both are JSON; ``stops`` is the previous value: when each refused API key was, by its hash.
    """
    values = {name: value for name, value in asdict(pace).items() if value != _DEFAULTS[name]}
    after = {key: at for key, at in json.loads(stops).items() if key != key_hash}
    if (stopped_at := values.pop("stopped_at", None)) is not None:
        after[key_hash] = stopped_at
    return json.dumps(values), json.dumps(after)


def backoff_s(failures: int, jitter: float) -> float:
    """Return the seconds to wait after consecutive failures: from 2 s, doubling, to an hour.

    ``jitter``, from 0 to 1, adds up to half, so that clients do not retry in step.

    >>> [backoff_s(failures, 0.0) for failures in (1, 2, 11, 12, 100)], backoff_s(100, 1.0)
    ([2.0, 4.0, 2048.0, 2400.0, 2400.0], 3600.0)
    """
    return min(2.0 ** min(failures, 12), 2400.0) * (1 + jitter / 2)


PaceChange: TypeAlias = Callable[[Pace, float], Pace]
"""A function that returns the pace after an event at an instant."""


class LocalPace:
    """A pace of this process alone, for one request at a time; a subclass shares it."""

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self.pace = pace
        self._clock = clock

    def take(self) -> float:
        """Return the seconds until the next attempt to take the turn; 0 if it is ours now."""
        return self.settle(Pace.plausible)

    def spend(self) -> Pace | None:
        """Record that a request is about to be sent; return None if the turn was lost."""
        self.settle(Pace.spent)
        return self.pace

    def settle(self, answer: PaceChange, /) -> float:
        """Record an outcome, keep the turn, and return the seconds until the next request."""
        now = self._clock()
        self.pace = answer(self.pace, now)
        return self.pace.wait_s(now)

    def settle_and_release(self, answer: PaceChange, /) -> None:
        """Record the last outcome, and pass the turn on at once."""
        self.settle(answer)

    def release(self, *, ended: bool = False) -> None:
        """Pass the turn on; with ``ended``, this program will send nothing more."""
