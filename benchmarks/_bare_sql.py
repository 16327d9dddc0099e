"""One evaluation kept in the file, beside the same statements alone, in processor time."""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kp_middleware import ReasoningTrace, Scorer, Step, VectorCache
from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.formula import Score
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.database import VectorTable, connect, transaction
from kp_middleware.runs import RecordedRun
from kp_middleware.storage import SqliteStore

ROUNDS: Final = 20
EVALUATIONS: Final = 50  # in a round
STORED: Final = 1_000
EMBEDDER: Final = "benchmark"
REASON: Final = Reason(ReasonCode.BELOW_THRESHOLD, {"score": 0.1, "threshold": 0.6})
VERDICT: Final = Verdict("fixed(0.6)", 0.6, "withhold", REASON)
STEPS: Final = tuple(
    Step(step_id=number, type="thought", content="The module that leaks is the next one. " * 5)
    for number in range(8)
)


class Statement(NamedTuple):
    """An executed statement, with its values."""

    run: Callable[..., sqlite3.Cursor]
    sql: str
    given: Any


class LoggedConnection(sqlite3.Connection):
    """A connection that keeps a list of what it executes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.noted: list[Statement] = []

    def execute(self, sql: str, given: Any = (), /) -> sqlite3.Cursor:
        self.noted.append(Statement(sqlite3.Connection.execute, sql, given))
        return super().execute(sql, given)

    def executemany(self, sql: str, given: Iterable[Any], /) -> sqlite3.Cursor:
        self.noted.append(Statement(sqlite3.Connection.executemany, sql, [*given]))
        return super().executemany(sql, self.noted[-1].given)

    def commit(self) -> None:
        self.noted.append(Statement(sqlite3.Connection.execute, "COMMIT", ()))
        super().commit()


class EvaluationWriter:
    """A writer of evaluations: runs of eight steps, no two alike, with a vector each."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._store = SqliteStore(connection)
        self._cache = VectorCache(STORED, table=VectorTable(connection))
        self._numbers = count()
        self._units = np.random.default_rng(0).standard_normal((97, 384), dtype=np.float32)

    def ready(self) -> tuple[RecordedRun, np.ndarray]:
        """Return the next run and its vector; nothing is written yet."""
        number = next(self._numbers)
        trace = ReasoningTrace.of(f"Find the module that leaks, number {number}", STEPS)
        trace = trace.model_copy(update={"id": f"kp:trace:{number:036}"})
        return RecordedRun(trace=trace, shape=trace.shape), self._units[number % 97]

    def keep(self, run: RecordedRun, vector: np.ndarray, score: Score) -> None:
        """Write a run in its two transactions."""
        seq = self._store.record(run)
        with transaction(self._connection):
            if self._store.is_recorded(seq):
                self._cache.add(vector, run.trace.id, embedder=EMBEDDER)
                self._store.save_evaluation(seq, Evaluation(score, VERDICT), took_ms=1.0)


def kept_and_bare_us(folder: Path) -> tuple[float, float]:
    """Measure one evaluation in microseconds: ours, and its statements alone, in turns."""
    score = Scorer().score(ReasoningTrace.of("Find it", STEPS))
    statements = [*_statements(folder / "noted.db", score)]
    with closing(connect(folder / "ours.db")) as ours, closing(connect(folder / "bare.db")) as bare:
        keeping = EvaluationWriter(ours)
        best_us, best_bare_us = float("inf"), float("inf")
        for first in range(0, len(statements), EVALUATIONS):
            chosen = statements[first : first + EVALUATIONS]
            best_us = min(best_us, _ours_us(keeping, score))
            best_bare_us = min(best_bare_us, _bare_us(bare, chosen))
            if first < STORED:  # the file is small yet
                best_us = best_bare_us = float("inf")
    return best_us, best_bare_us


def _statements(path: Path, score: Score) -> Iterator[list[Statement]]:
    """Yield the statements of one evaluation after another."""
    connect(path).close()
    with closing(
        sqlite3.connect(path, isolation_level=None, factory=LoggedConnection)
    ) as connection:
        writer = EvaluationWriter(connection)
        for _ in range(STORED + ROUNDS * EVALUATIONS):
            connection.noted = []
            writer.keep(*writer.ready(), score)
            yield connection.noted


def _ours_us(keeping: EvaluationWriter, score: Score) -> float:
    ready = [keeping.ready() for _ in range(EVALUATIONS)]
    started = time.thread_time()
    for run, vector in ready:
        keeping.keep(run, vector, score)
    return (time.thread_time() - started) / EVALUATIONS * 1e6


def _bare_us(connection: sqlite3.Connection, evaluations: list[list[Statement]]) -> float:
    started = time.thread_time()
    for evaluation in evaluations:
        for run, sql, given in evaluation:
            run(connection, sql, given).fetchall()
    return (time.thread_time() - started) / len(evaluations) * 1e6
