"""One pace for all processes of a user, kept across restarts, so that no key is revoked."""

import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from kp_middleware.errors import DatabaseError
from kp_middleware.problems import Problem
from kp_middleware.rate_limit import Change, Pace
from kp_middleware.sharing import PaceOfAll
from kp_middleware.storage._pacing import PacingTable

logger = logging.getLogger("kp_middleware")

_LOOK_AGAIN_S: Final = 0.5
_LONG_S: Final = 600.0
_MARGIN_S: Final = 30.0
_AT_IT_S: Final = 30.0  # a program that has sent will send more, unless it says that it ends
_LAST_PATIENCE_S: Final = 0.3  # where a process ends


class SharedPace:
    """Lets one process send at a time, and all of them at one pace. Nothing here raises.

    What is going to be asked is in the file before it is asked: where no file can be used, nothing
    is sent. Where ``table`` cannot be used, ``beside``, next to the file of traces, is: who sends
    can write there. Who is silent for ``longest_request_s`` and half a minute has lost its turn.
    """

    def __init__(
        self,
        table: PacingTable | PaceOfAll,
        *,
        longest_request_s: float,
        beside: PacingTable | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._beside = beside
        self._lease_s = longest_request_s + _MARGIN_S
        self._clock = clock
        self._us = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._known: Pace | None = None
        self._left: Pace | None = None
        self._unwritten: Change | None = None
        self._said: set[str] = set()

    @property
    def problem(self) -> Problem:
        """The last known problem of a request."""
        return Problem.read(self._known.problem if self._known else "")

    def take(self) -> float:
        """Return the seconds until the next attempt to take the turn; 0 if it is ours now."""
        pace = self._change(self._taken)
        if pace is None:
            return _LOOK_AGAIN_S
        if pace.holder == self._us:
            return 0.0
        now = self._clock()
        wait_s = pace.wait_s(now)
        if wait_s > _LONG_S:
            problem = Problem.read(pace.problem)
            if wait_s == math.inf:
                self._say("long", "nothing is sent: %s", problem)
            else:
                self._say("long", "no sending for %.0f s: %s", wait_s, problem)
        return wait_s or min(max(pace.held_until - now, 0.01), _LOOK_AGAIN_S)

    def spend(self) -> Pace | None:
        """Note that a request is made; return None if the turn is no longer ours."""
        pace = self._change(self._spent)
        return pace if pace and pace.holder == self._us else None

    def settle(self, answer: Change, /) -> float:
        """Note what the answer means, later if need be; return the seconds to the next request."""
        settled = partial(self._settled, answer)
        pace, now = self._change(settled), self._clock()
        if pace is None:
            earlier = self._unwritten or _unchanged
            self._unwritten = lambda before, then: settled(earlier(before, then), then)
            pace = answer(self._known or Pace(), now)
        wait_s = pace.wait_s(now)
        if wait_s > _LONG_S:
            self._said.add("long")  # the sender says it in the registry's words
        return wait_s

    def settle_and_release(self, answer: Change, /) -> None:
        """Note what the last answer may have meant, and let others have their turn.

        Where the file is locked, our turn ends by itself, and the request counts as unanswered.
        """

        def end(pace: Pace, now: float) -> Pace:
            return self._released(self._settled(answer, pace, now), now, ended=True)

        self._change(end, patience_s=_LAST_PATIENCE_S)

    def release(self, *, ended: bool = False) -> None:
        """Let others have their turn; ``ended``: this program asks nothing more."""
        if self._known and (ended or self._known.holder == self._us):
            self._change(partial(self._released, ended=ended))  # or the turn ends by itself

    def _change(self, change: Change, *, patience_s: float | None = None) -> Pace | None:
        """Change the shared state; return None if no file can be used now."""
        whole = partial(self._after, change)
        try:
            pace = self._table.change(whole, patience_s=patience_s)
        except TimeoutError as error:
            self._say("locked", "nothing is sent for now: %s", error)
            return None
        except DatabaseError as error:
            if self._beside is None:
                self._say("unusable", "nothing is sent for now: %s", error)
                return None
            self._say("beside", "the pace is kept next to the file of traces: %s", error)
            self._left = self._known or self._table.look()
            self._table, self._beside = self._beside, None
            return self._change(change, patience_s=patience_s)
        self._known, self._left, self._unwritten = pace, None, None
        return pace

    def _after(self, change: Change, before: Pace | None) -> Pace:
        now = self._clock()
        pace = self._begun(now) if before is None else before
        if self._left is not None:
            pace = self._left if before is None else before.stricter(self._left)
        pace = pace.plausible(now)
        pace = replace(pace, held_until=min(pace.held_until, now + self._lease_s))
        if self._unwritten is not None:
            pace = self._unwritten(pace, now)
        after = change(pace, now)
        return after if after == before else replace(after, noted_at=now)

    def _begun(self, now: float) -> Pace:
        """Begin the row of an agent; where its file is gone, we know what was in it."""
        if self._known is not None:
            return self._known
        return Pace().without_burst(now) if self._table.was_damaged() else Pace()

    def _taken(self, pace: Pace, now: float) -> Pace:
        if pace.holder not in {None, self._us} and pace.held_until > now:
            return pace
        if pace.holder != self._us:
            pace = pace.lost()
        if pace.wait_s(now) > 0:
            return self._free(pace, now)
        return replace(pace, holder=self._us, held_until=now + self._lease_s)

    def _spent(self, pace: Pace, now: float) -> Pace:
        taken = self._taken(pace, now)
        return taken.spent(now) if taken.holder == self._us else taken

    def _settled(self, answer: Change, before: Pace, now: float) -> Pace:
        after = answer(before, now)
        if before.holder == self._us:
            return replace(after, held_until=now + self._lease_s)
        return replace(after, asked_at=before.asked_at)  # that one is another's

    def _released(self, pace: Pace, now: float, *, ended: bool = False) -> Pace:
        if pace.holder not in {None, self._us}:
            return pace
        if ended:
            return replace(pace, holder=None, held_until=-math.inf)
        return self._free(pace, now) if pace.holder else pace

    def _free(self, pace: Pace, now: float) -> Pace:
        return replace(pace, holder=None, held_until=min(pace.held_until, now + _AT_IT_S))

    def _say(self, kind: str, words: str, *facts: object) -> None:
        """Warn once for each kind of trouble."""
        logger.log(logging.DEBUG if kind in self._said else logging.WARNING, words, *facts)
        self._said.add(kind)


def _unchanged(pace: Pace, _: float) -> Pace:
    return pace
