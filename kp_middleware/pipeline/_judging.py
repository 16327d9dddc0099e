"""Asking of a program's own judges how its runs ended."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from inspect import isawaitable
from typing import Final

from kp_middleware.errors import KnowledgePulseError
from kp_middleware.outcomes import Judge, Told, probability
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


class _Question:
    """A judge that is asked about one run, on a thread of its own that may be left behind."""

    def __init__(self, judge: Judge, trace: ReasoningTrace, on_answer: Callable[[], None]) -> None:
        self.trace_id = trace.id
        self.told: float | None = None
        self.is_answered = threading.Event()
        self._judge, self._trace, self._on_answer = judge, trace, on_answer
        self._deadline = time.monotonic() + judge.timeout_s
        start_daemon("kp-judge", self._ask)

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _ask(self) -> None:
        _is_judging.set(True)
        try:
            self.told = self._answer()
        except Exception as error:  # noqa: BLE001 - the user's own may raise anything
            shield.swallow("judge", error, "a judge failed, and is ignored")
        self.is_answered.set()
        self._on_answer()

    def _answer(self) -> float | None:
        told = self._judge.judge(self._trace)
        return probability(asyncio.run(self._awaited(told)) if isawaitable(told) else told)

    async def _awaited(self, answer: Awaitable[Told]) -> Told:
        return await asyncio.wait_for(answer, self._judge.timeout_s)


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
        question = self._question
        if question is None or (question.is_answered.is_set() and question.trace_id != trace.id):
            question = _Question(self._judges[run], trace, self._on_answer)
            self._question = question
        if question.trace_id != trace.id or not question.is_answered.is_set():
            if question.trace_id == trace.id and question.left_s:
                raise JudgeNotReadyError("the run's judge is asked")
            shield.count("judge: no answer in time")
            return None
        return question.told

    def close(self, run: str) -> None:
        """Forget a run's judge: its answer is in the file."""
        self._judges.pop(run, None)
