"""Asking of a program's own judges how its runs ended."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from inspect import isawaitable
from typing import Final, NamedTuple

from kp_middleware.errors import KnowledgePulseError
from kp_middleware.outcomes import Judge, probability
from kp_middleware.pipeline._lifecycle import start_daemon
from kp_middleware.recording import shield
from kp_middleware.traces import ReasoningTrace

_MOST: Final = 10_000
_is_judging: ContextVar[bool] = ContextVar("kp_middleware_is_judging", default=False)


class JudgeNotReadyError(KnowledgePulseError):
    """The run's judge is asked: look again when it has answered."""


def is_judging() -> bool:
    """Return whether a judge is asked here: what it does is not recorded, nor judged in turn."""
    return _is_judging.get()


class _Question(NamedTuple):
    """A judge that is asked about one run, until an instant on the monotonic clock."""

    trace_id: str
    deadline: float
    answer: Future[float | None]


class Judging:
    """Asks each run's judge once, one at a time: one that hangs leaves one thread behind."""

    def __init__(self, on_answer: Callable[[], None]) -> None:
        self._on_answer = on_answer
        self._judges: dict[str, Judge] = {}
        self._question: _Question | None = None

    def __bool__(self) -> bool:
        return bool(self._judges)

    def expect(self, run: str, judge: Judge) -> None:
        """Remember the judge of a run, by the id of its thread or trace; the oldest is dropped."""
        self._judges[run] = judge
        if len(self._judges) > _MOST:
            del self._judges[next(iter(self._judges))]

    def is_expected(self, run: str) -> bool:
        """Return whether a run has a judge that has not been heard."""
        return run in self._judges

    def told(self, run: str, trace: ReasoningTrace) -> float | None:
        """Return the probability of success that the run's judge tells, or None if none does."""
        asked = self._question
        if asked is None or (asked.answer.done() and asked.trace_id != trace.id):
            asked = self._question = self._asked(self._judges[run], trace)
        if asked.trace_id == trace.id:
            if asked.answer.done():
                return asked.answer.result()
            if time.monotonic() < asked.deadline:
                raise JudgeNotReadyError("the run's judge is asked")
        shield.count("judge: no answer in time")
        return None

    def _asked(self, judge: Judge, trace: ReasoningTrace) -> _Question:
        """Ask on a thread of its own, which may be left behind."""
        answer: Future[float | None] = Future()

        def ask() -> None:
            _is_judging.set(True)
            told = None
            try:
                said = judge.judge(trace)
                if isawaitable(said):
                    said = asyncio.run(asyncio.wait_for(said, judge.timeout_s))
                told = probability(said)
            except Exception as error:  # noqa: BLE001 - the user's own may raise anything
                shield.swallow("judge", error, "a judge failed, and is ignored")
            answer.set_result(told)
            self._on_answer()

        start_daemon("kp-judge", ask)
        return _Question(trace.id, time.monotonic() + judge.timeout_s, answer)

    def close(self, run: str) -> None:
        """Forget a run's judge: its answer is in the file."""
        self._judges.pop(run, None)
