"""Background threads, and what scoring waits for: a judge's answer, the embedding model."""

import asyncio
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from threading import Thread
from typing import Final, NamedTuple

from kp_middleware import storage
from kp_middleware.embedding import MiniLMEmbedder
from kp_middleware.errors import EmbedderNotReadyError, KnowledgePulseError
from kp_middleware.outcomes import LIKELY, Judge, probability
from kp_middleware.pipeline._dispatch import ended_trace
from kp_middleware.recording import shield
from kp_middleware.traces import ReasoningTrace

is_judging: Final[ContextVar[bool]] = ContextVar("kp_middleware_is_judging", default=False)
"""True in a judge: its own runs are not recorded."""


_joined: Final[weakref.WeakKeyDictionary[Thread, float]] = weakref.WeakKeyDictionary()


def start_daemon(name: str, work: Callable[[], None], *, join_s: float | None = None) -> Thread:
    """Start a daemon thread; the exit waits up to ``join_s`` for it."""
    thread = Thread(target=work, name=name, daemon=True)
    if join_s is not None:
        _joined[thread] = join_s
    thread.start()
    return thread


def join_at_exit() -> None:
    """Wait for the threads that were started with ``join_s``.

    A daemon thread that Python stops inside the embedding model's library aborts the program.
    """
    started = time.monotonic()
    for thread, join_s in list(_joined.items()):
        thread.join(max(0.0, started + join_s - time.monotonic()))


class ScoringDelayedError(KnowledgePulseError):
    """The run's judge has not answered, or the model is being loaded; ``on_ready`` will follow."""


class _PendingJudgement(NamedTuple):
    """A call of a judge; the deadline is on the monotonic clock."""

    trace_id: str
    deadline: float
    answer: Future[float | None]


@dataclass
class JudgeRunner:
    """Asks the judge of each run once, one at a time: if it hangs, one thread is lost."""

    on_ready: Callable[[], None]
    judges: dict[str, Judge] = field(default_factory=dict)  # of each thread or trace
    pending: _PendingJudgement | None = None

    def expect(self, run: str, judge: Judge) -> None:
        """Add the judge of a run; drop the oldest if there are too many."""
        self.judges[run] = judge
        if len(self.judges) > 10_000:  # that have not been asked
            del self.judges[next(iter(self.judges))]

    def ask_judge(self, store: storage.Store, seq: int, trace: ReasoningTrace) -> None:
        """Store the judge's answer, unless the outcome of the run is known."""
        run, ending = store.stored(seq).thread, store.ending(seq)
        if run not in self.judges or ending.success_source != "assumed":
            return
        p = self._answer(self.judges[run], ended_trace(trace, ending))
        if p is not None:
            with store.transaction():
                store.save_ending(seq, store.ending(seq).with_extracted(p >= LIKELY, p))
        del self.judges[run]

    def _answer(self, judge: Judge, trace: ReasoningTrace) -> float | None:
        """Return the judge's probability of success, or None without an answer in time."""
        pending = self.pending
        if pending is None or (pending.answer.done() and pending.trace_id != trace.id):
            args = judge, trace, Future[float | None]()
            Thread(target=self._run_judge, args=args, name="kp-judge", daemon=True).start()
            pending = _PendingJudgement(trace.id, time.monotonic() + judge.timeout_s, args[-1])
            self.pending = pending
        if pending.trace_id == trace.id:
            if pending.answer.done():
                return pending.answer.result()
            if time.monotonic() < pending.deadline:
                raise ScoringDelayedError("the run's judge has not answered yet")
        shield.count("judge: no answer in time")
        return None

    def _run_judge(self, judge: Judge, trace: ReasoningTrace, answer: Future[float | None]) -> None:
        is_judging.set(True)
        p = None
        try:
            given = judge.judge(trace)
            if isawaitable(given):
                given = asyncio.run(asyncio.wait_for(given, judge.timeout_s))
            p = probability(given)
        except BaseException as error:  # noqa: BLE001 - such as SystemExit of a test suite
            shield.swallow("judge", error, "a judge failed, and is ignored")
        answer.set_result(p)
        self.on_ready()


LOADING_S: Final = 60.0
"""The time that the exit allows for loading the model: usually two seconds."""


class ModelLoader:
    """Loads the embedding model on a thread of its own: meanwhile, finished runs are stored."""

    def __init__(self, embedder: MiniLMEmbedder, on_ready: Callable[[], None]) -> None:
        self._embedder = embedder
        self._on_ready = on_ready
        self._attempt: Future[str] | None = None

    def check(self) -> None:
        """Start to load the model; raise `ScoringDelayedError` until that has ended.

        Raises:
            EmbedderNotReadyError: If the model is being downloaded; the next call tries again.
        """
        if self._embedder.is_loaded:
            return
        if self._attempt is None:
            self._attempt = Future()
            try:
                start_daemon("kp-loading", partial(self._load, self._attempt), join_s=LOADING_S)
            except RuntimeError as no_thread:  # scoring loads it
                self._attempt.set_exception(no_thread)
        if not self._attempt.done():
            raise ScoringDelayedError("the embedding model is being loaded")
        error = self._attempt.exception()  # scoring meets any other again
        if isinstance(error, EmbedderNotReadyError):
            self._attempt = None
            raise error

    def _load(self, attempt: Future[str]) -> None:
        try:
            with storage.fork_lock:
                attempt.set_result(self._embedder.name)  # reading its name loads it
        except BaseException as error:  # noqa: BLE001 - even a panic of a library
            attempt.set_exception(error)
        self._on_ready()
