"""One pace for all processes of a user, also after a restart: no key is burnt by their sum."""

import logging
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from kp_middleware.errors import DatabaseError
from kp_middleware.export import Cause, Change, OwnPace, Pace
from kp_middleware.pipeline._uptime import Uptime, read_uptime
from kp_middleware.problems import Problem, ProblemKind
from kp_middleware.storage import Pacing, PacingTable, no_fork

logger = logging.getLogger("kp_middleware")

_LOOK_AGAIN_S: Final = 0.5
_LONG_S: Final = 600.0
_MARGIN_S: Final = 30.0
_CLOCKS_AGREE_S: Final = 1.0
_LAST_PATIENCE_S: Final = 0.3  # where a process ends
_REFUSED: Final = (
    "nothing is sent, the registry has refused this API key: set KP_API_KEY to another,"
    " or try this one again with kp-middleware outbox retry --failed"
)
_MET: Final = "no sending for %.0f s, an earlier request has failed: %s"
_PAUSED: Final = {
    Cause.NONE: "no sending for %.0f s, as an earlier process has noted: there is nothing to do",
    Cause.LIMIT: "the registry has asked for patience, no sending for %.0f s: there is nothing to"
    " do",
    Cause.SILENCE: "no sending for %.0f s, two processes ended while they waited for the registry:"
    " had it said 429, a third would cost the API key; give it longer with kp.close(timeout_s=…)",
    Cause.TROUBLE: "the registry was in trouble, no sending for %.0f s: if it lasts, check"
    " KP_REGISTRY_URL and your network",
}

_Move: TypeAlias = Callable[[Pacing, float], Pacing]


class SharedPace:
    """A ``PaceKeeper``: one process sends at a time, and all of them at one pace.

    What is going to be asked is in the file before it is asked. Where the file cannot be used,
    this process goes on by itself, without a burst. Nothing here raises.

    Args:
        table: What all processes know.
        beside: The same next to the file of traces, for where the first cannot be used: a process
            that sends can write there, so that all of one file still keep one pace.
        longest_request_s: Who is silent for this and half a minute has lost its turn.
        clock: Epoch seconds; may be set while we run.
        uptime: What nobody sets.
    """

    def __init__(
        self,
        table: PacingTable,
        *,
        longest_request_s: float,
        beside: PacingTable | None = None,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], Uptime] = read_uptime,
    ) -> None:
        self._table = table
        self._beside = beside
        self._lease_s = longest_request_s + _MARGIN_S
        self._clock = clock
        self._uptime = uptime
        self._us = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._known: Pacing | None = None
        self._unwritten: OwnPace | None = None
        self._kept_beside: Pace | None = None
        self._said: set[str] = set()

    @property
    def problem(self) -> Problem:
        """What the last request is known to have met."""
        kept = self._known.problem if self._known else ""
        return Problem.read(kept or ProblemKind.DEAD_KEY)

    def take(self) -> float:
        """Seconds until it is worth asking again; 0: the next request is ours to make, now."""
        try:
            pacing = self._change(self._taken)
        except TimeoutError as error:
            self._say("locked", "nothing is sent for now: %s", error)
            return _LOOK_AGAIN_S
        except DatabaseError as error:
            return self._by_ourselves(error).take()
        if pacing.holder == self._us:
            return 0.0
        now = self._clock()
        wait_s = _pace_of(pacing).wait_s(now)
        self._say_why(pacing, wait_s)
        return wait_s or min(max(pacing.held_until - now, 0.01), _LOOK_AGAIN_S)

    def spend(self) -> Pace | None:
        """Note that a request is made; None: it is no longer ours to make."""
        try:
            pacing = self._change(self._spent)
        except TimeoutError as error:
            self._say("locked", "nothing is sent for now: %s", error)
            return None
        except DatabaseError as error:
            return self._by_ourselves(error).spend()
        return _pace_of(pacing) if pacing.holder == self._us else None

    def settle(self, answer: Change, /) -> float:
        """Note what the answer means; seconds until the next request may be made."""
        try:
            pacing = self._change(partial(self._settled, answer))
        except (TimeoutError, DatabaseError) as error:
            return self._by_ourselves(error).settle(
                lambda pace, now: replace(answer(pace, now), burst=1)
            )
        wait_s = _pace_of(pacing).wait_s(self._clock())
        if wait_s > _LONG_S:
            self._said.add("long")  # the forwarder says it in the registry's words
        return wait_s

    def give_back(self, answer: Change, /) -> None:
        """Note what the last answer may have meant, and let others have their turn.

        Where the file is locked our turn ends by itself, and the request counts as one that nobody
        has seen the answer to.
        """

        def end(pacing: Pacing, now: float) -> Pacing:
            return self._released(self._settled(answer, pacing, now), now)

        with suppress(TimeoutError, DatabaseError):
            self._change(end, patience_s=_LAST_PATIENCE_S)

    def release(self) -> None:
        """Let others have their turn."""
        if self._known and self._known.holder == self._us:
            with suppress(TimeoutError, DatabaseError):  # the turn ends by itself
                self._change(self._released)

    def _change(self, move: _Move, *, patience_s: float | None = None) -> Pacing:
        try:
            with no_fork():
                self._known = self._table.change(
                    partial(self._after, partial(self._reunited, move)), patience_s=patience_s
                )
        except DatabaseError as error:
            if self._beside is None:
                raise
            self._known = self._known or self._look()
            with no_fork():
                self._known = self._beside.change(partial(self._after, move), patience_s=patience_s)
            self._say("beside", "the pace is kept next to the file of traces: %s", error)
            self._kept_beside = replace(_pace_of(self._known), asked_at=-math.inf)
        else:
            self._kept_beside = None
        self._unwritten = None
        return self._known

    def _reunited(self, move: _Move, pacing: Pacing, now: float) -> Pacing:
        """A move that minds what was kept beside while the file could not be used."""
        if self._kept_beside is not None:
            pacing = _with(pacing, _pace_of(pacing).stricter(self._kept_beside))
        return move(pacing, now)

    def _after(self, move: _Move, before: Pacing | None) -> Pacing:
        now, uptime = self._clock(), self._uptime()
        last = before or self._known  # where the file is gone, we know what was in it
        today = self._begun(now) if last is None else self._today(last, now, uptime)
        after = move(self._with_unwritten(today), now)
        if after == before:
            return after
        return after._replace(noted_at=now, boot=uptime.boot, uptime_s=uptime.seconds)

    def _begun(self, now: float) -> Pacing:
        """The first row of an agent."""
        pace = Pace().without_burst(now) if self._table.was_damaged() else Pace()
        return _with(Pacing(), pace)

    def _today(self, pacing: Pacing, now: float, uptime: Uptime) -> Pacing:
        """The same on a clock that may have been set since it was written."""
        set_by_s = 0.0
        if uptime.boot and uptime.boot == pacing.boot:
            set_by_s = (now - pacing.noted_at) - (uptime.seconds - pacing.uptime_s)
        if abs(set_by_s) < _CLOCKS_AGREE_S:
            set_by_s = 0.0
        held_until = min(pacing.held_until + set_by_s, now + self._lease_s)
        pace = _pace_of(pacing).moved(set_by_s).plausible(now)
        return _with(pacing, pace)._replace(held_until=held_until)

    def _with_unwritten(self, pacing: Pacing) -> Pacing:
        if self._unwritten is None:
            return pacing
        ours = self._unwritten.pace
        if pacing.holder == self._us:  # nobody else has changed it since
            return _with(pacing, ours)
        return _with(pacing, _pace_of(pacing).stricter(ours))

    def _taken(self, pacing: Pacing, now: float) -> Pacing:
        if pacing.holder not in {None, self._us} and pacing.held_until > now:
            return pacing
        pace = _pace_of(pacing)
        if pacing.holder != self._us:
            pace = pace.lost()
        if pace.wait_s(now) > 0:
            return _with(pacing, pace)._replace(holder=None, held_until=-math.inf)
        return _with(pacing, pace)._replace(holder=self._us, held_until=now + self._lease_s)

    def _spent(self, pacing: Pacing, now: float) -> Pacing:
        taken = self._taken(pacing, now)
        if taken.holder != self._us:
            return taken
        return _with(taken, _pace_of(taken).spent(now))

    def _settled(self, answer: Change, pacing: Pacing, now: float) -> Pacing:
        before = _pace_of(pacing)
        after = answer(before, now)
        if pacing.holder == self._us:
            return _with(pacing, after)._replace(held_until=now + self._lease_s)
        return _with(pacing, replace(after, asked_at=before.asked_at))  # that one is another's

    def _released(self, pacing: Pacing, _now: float) -> Pacing:
        if pacing.holder != self._us:
            return pacing
        return pacing._replace(holder=None, held_until=-math.inf)

    def _by_ourselves(self, error: Exception) -> OwnPace:
        """Sending goes on without the file, and slowly: others may do the same."""
        self._say("alone", "this process sends slowly, and by itself: %s", error)
        if self._unwritten is None:
            known = self._known or self._look() or Pacing()
            pace = _pace_of(self._today(known, self._clock(), self._uptime()))
            if known.holder != self._us:
                pace = pace.lost()
            self._unwritten = OwnPace(replace(pace, burst=1), self._clock)
        return self._unwritten

    def _look(self) -> Pacing | None:
        with suppress(TimeoutError), no_fork():
            return self._table.look()
        return None

    def _say_why(self, pacing: Pacing, wait_s: float) -> None:
        """What the processes before us have met, or nothing would be sent without a word."""
        problem = Problem.read(pacing.problem) if pacing.problem else None
        if wait_s == math.inf:
            self._say("long", "%s", f"nothing is sent: {problem}" if problem else _REFUSED)
        elif wait_s > _LONG_S and problem and pacing.paused_by == Cause.TROUBLE:
            self._say("long", _MET, wait_s, problem)
        elif wait_s > _LONG_S:
            self._say("long", _PAUSED[Cause(pacing.paused_by)], wait_s)

    def _say(self, kind: str, words: str, *facts: object) -> None:
        """Warn once for each kind of trouble."""
        logger.log(logging.DEBUG if kind in self._said else logging.WARNING, words, *facts)
        self._said.add(kind)


def _pace_of(pacing: Pacing) -> Pace:
    pace = Pace()
    if pacing.interval_s is not None:
        pace = pace.at_interval(pacing.noted_at, pacing.interval_s)
    return replace(
        pace,
        full_at=pacing.full_at,
        paused_until=pacing.paused_until,
        paused_by=Cause(pacing.paused_by),
        limited_at=pacing.limited_at,
        asked_at=pacing.asked_at,
        lost_at=pacing.lost_at,
        stopped_at=pacing.stopped_at,
        failures=pacing.failures,
        answering=pacing.answering,
        problem=pacing.problem,
        problem_since=pacing.problem_since,
        tries=pacing.tries,
    )


def _with(pacing: Pacing, pace: Pace) -> Pacing:
    return pacing._replace(
        interval_s=pace.interval_s,
        full_at=pace.full_at,
        paused_until=pace.paused_until,
        paused_by=pace.paused_by.value,
        limited_at=pace.limited_at,
        asked_at=pace.asked_at,
        lost_at=pace.lost_at,
        stopped_at=pace.stopped_at,
        failures=pace.failures,
        answering=pace.answering,
        problem=pace.problem,
        problem_since=pace.problem_since,
        tries=pace.tries,
    )
