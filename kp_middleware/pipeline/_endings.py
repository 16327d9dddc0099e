"""The endings of runs: what judges say, and estimates from what was told."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from inspect import isawaitable
from typing import Final, NamedTuple

import numpy as np

from kp_middleware.embedding import Embedder, Vector
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.estimate import (
    FEATURES,
    Features,
    Foretold,
    Known,
    Process,
    is_trusted,
)
from kp_middleware.outcomes import Judge, probability
from kp_middleware.pipeline._threads import start_daemon
from kp_middleware.recording import shield
from kp_middleware.storage import EstimateTable, Kind, KnownRun, StoredEstimate
from kp_middleware.traces import ReasoningTrace

_MOST: Final = 10_000
is_judging: Final[ContextVar[bool]] = ContextVar("kp_middleware_is_judging", default=False)
"""Whether a judge is asked here: what it does is not recorded, nor judged in turn."""


class JudgeNotReadyError(KnowledgePulseError):
    """The run's judge is asked: look again when it has answered."""


class _Question(NamedTuple):
    """A judge that is asked about one run, until an instant on the monotonic clock."""

    trace_id: str
    deadline: float
    answer: Future[float | None]


class Judging:
    """Asks each run's judge once, one at a time: one that hangs leaves one thread behind."""

    def __init__(self, on_answer: Callable[[], None]) -> None:
        self._on_answer = on_answer
        self.judges: dict[str, Judge] = {}
        """Those that have not been heard, by the id of their run's thread or trace."""
        self._question: _Question | None = None

    def expect(self, run: str, judge: Judge) -> None:
        """Remember the judge of a run; the oldest is dropped."""
        self.judges[run] = judge
        if len(self.judges) > _MOST:
            del self.judges[next(iter(self.judges))]

    def told(self, run: str, trace: ReasoningTrace) -> float | None:
        """Return the probability of success that the run's judge tells, or None if none does."""
        asked = self._question
        if asked is None or (asked.answer.done() and asked.trace_id != trace.id):
            asked = self._question = self._asked(self.judges[run], trace)
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
            is_judging.set(True)
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


_AGE: Final = 200  # runs after which what was told of one no longer counts
_SEEN: Final = 1000  # runs that tell what is usual


class _Solved(NamedTuple):
    """A process, what it has learned from, and the width of its vectors."""

    known: Sequence[KnownRun]
    process: Process
    width: int


class Estimating:
    """Estimates whether runs did their task. Each kind of run is solved once per told run."""

    def __init__(self, table: EstimateTable, embedder: Embedder | None) -> None:
        self._table = table
        self._embedder = embedder
        self._solved: dict[Kind, _Solved] = {}

    def of(
        self, seq: int, trace: ReasoningTrace, own: Features, vector: Vector | None
    ) -> tuple[float | None, StoredEstimate | None]:
        """Return the probability of success, None where nothing is known, and what to `save`."""
        kind = Kind(trace.metadata.task_domain, trace.metadata.framework)
        known = self._table.known(kind, before=seq, age=_AGE)
        if not known:
            return None, None
        solved = self._solved.get(kind)
        if (
            solved is None
            or solved.known != known
            or not solved.process.holds_at(1 + self._table.count(kind, before=seq, most=_SEEN))
        ):
            solved = self._solve(kind, seq, known, own)
        if solved is None:
            return None, None
        self._solved[kind] = solved
        said = solved.process.estimate(own, _of_width(solved.width, vector))
        return said.p, StoredEstimate(said.raw, said.base, len(known), said.reasons)

    def save(self, seq: int, own: Features, estimate: StoredEstimate | None) -> None:
        """Store an estimate, and what it was read from; in a transaction."""
        self._table.save(seq, own.astype("<f4").tobytes(), estimate)

    def _solve(
        self, kind: Kind, seq: int, known: Sequence[KnownRun], own: Features
    ) -> _Solved | None:
        """Solve all that is known before a run; None where none of it is of this version."""
        success = dict(known)
        embedder = None if self._embedder is None else self._embedder.name
        learned = [
            (run, read)
            for run in self._table.learned(success, embedder)
            if len(read := _read(run.features)) == len(FEATURES)
        ]
        if not learned:
            return None
        trusted = is_trusted(
            Foretold(run.p, run.base, success[run.seq])
            for run, _ in learned
            if run.p is not None and run.base is not None
        )
        vectors = [None if run.vector is None else _read(run.vector) for run, _ in learned]
        width = max((len(vector) for vector in vectors if vector is not None), default=0)
        of = Known(
            np.array([read for _, read in learned]),
            np.array([_of_width(width, vector) for vector in vectors]),
            np.array([success[run.seq] for run, _ in learned]),
        )
        seen = [_read(one) for one in self._table.seen(kind, before=seq, most=_SEEN)]
        usual = np.array([*(one for one in seen if len(one) == len(own)), own])
        return _Solved(known, Process(usual, of, is_trusted=trusted), width)


def _read(numbers: bytes) -> Features:
    return np.frombuffer(numbers, dtype="<f4")


def _of_width(width: int, vector: Vector | None) -> Vector:
    """Return a vector as it is compared: like no other where there is none."""
    return np.zeros(width, np.float32) if vector is None or len(vector) != width else vector
