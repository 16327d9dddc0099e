"""A run's cost beside the model: on the agent's thread, on ours, in the file; and imports.

    make bench

All take turns, and the fastest of many rounds is reported. Where it says CPU, it is processor time:
what neighbors of a shared machine take is not in it. Needs the embedding model.
"""

import logging
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, cast

import numpy as np
from _bare_sql import kept_and_bare_us
from rich.console import Console
from rich.table import Table

from kp_middleware import KnowledgePulse, MiniLMEmbedder, ReasoningTrace, Settings, Step, privacy
from kp_middleware.embedding import Embedder

ROUNDS: Final = 20
IN_CACHE: Final = 1_000
ENDS: Final = 200  # in a round
PAUSE_S: Final = 0.005  # the worker comes to rest, as it does between two runs of an agent
EVICTING_BYTES: Final = 64_000_000  # more than the processor's caches hold
IMPORT_ROUNDS: Final = 10
IMPORTS: Final = {
    "import kp_middleware": "≤ 400",
    "from kp_middleware import *": "",
    "import kp_langchain": "",
}
TEXT: Final = "I look at the module that leaks, and then at the one that calls it. " * 4
numbers = count(10_000)


class Row(NamedTuple):
    """One line of the table."""

    what: str
    ours: float
    floor: float
    floor_is: str
    target: str


class CachedSession:
    """The model's session, which runs once and gives the same answer from then on."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._answer: Any = None

    def run(self, *given: Any, **options: Any) -> Any:
        if self._answer is None:
            self._answer = self._session.run(*given, **options)
        return self._answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def end_rows(embedder: Embedder) -> Iterator[Row]:
    """Measure the agent's thread at a run's end, in microseconds, beside waking another thread."""
    queue: SimpleQueue[object] = SimpleQueue()
    Thread(target=partial(deque, iter(queue.get, queue), maxlen=0), daemon=True).start()
    with pipeline(None) as kp:
        wakes = _best_ranks(
            _end_costs(lambda: partial(queue.put, None), kp.flush) for _ in range(5)
        )
        ends = _best_ranks(_end_costs(partial(record, kp), kp.flush) for _ in range(5))
    with pipeline(embedder) as kp:
        busy = _end_costs(partial(record, kp), lambda: None)
    floor_is = "wake a thread"
    for what, of, target in (
        ("end of a run, CPU µs, p50", lambda took: took.cpu_us[ENDS // 2], ""),
        ("end of a run, CPU µs, p99", lambda took: took.cpu_us[ENDS * 99 // 100], "< 50"),
        ("  by the clock, neighbours and all, p50", lambda took: took.wall_us[ENDS // 2], ""),
        ("  by the clock, p99", lambda took: took.wall_us[ENDS * 99 // 100], ""),
    ):
        yield Row(what, of(ends), of(wakes), floor_is, target)
    yield Row("  CPU while others are scored, p99", busy.cpu_us[ENDS * 99 // 100], 0, "", "< 50")


class EndCosts(NamedTuple):
    """Microseconds of many ends, sorted: processor time of the agent's thread, and by the clock."""

    cpu_us: list[float]
    wall_us: list[float]


def _best_ranks(rounds: Iterable[EndCosts]) -> EndCosts:
    """Return each rank at its best round."""
    cpu_us, wall_us = zip(*rounds, strict=True)
    return EndCosts(*([*map(min, zip(*some, strict=True))] for some in (cpu_us, wall_us)))


def _end_costs(
    record_one: Callable[[], Callable[[], None]], rest: Callable[[], object]
) -> EndCosts:
    cpu_us, wall_us = [], []
    for _ in range(ENDS):
        finish = record_one()
        started, spent = time.perf_counter(), time.thread_time()
        finish()
        cpu_us.append((time.thread_time() - spent) * 1e6)
        wall_us.append((time.perf_counter() - started) * 1e6)
        rest()
        time.sleep(PAUSE_S)
    return EndCosts(sorted(cpu_us), sorted(wall_us))


def file_rows() -> Iterator[Row]:
    """Measure CPU microseconds for the rows of one evaluation, and its search words."""
    with tempfile.TemporaryDirectory() as folder:
        ours_us, bare_us = kept_and_bare_us(Path(folder))
    yield Row("keep an evaluation of 8 steps, CPU µs", ours_us, bare_us, "its SQL alone", "≤ 1.5 x")


def evaluation_rows(embedder: MiniLMEmbedder) -> Iterator[Row]:
    """Measure CPU milliseconds from the end of a run until it is scored, after 1,000 vectors."""
    model = _model_of(embedder)
    session, tokens = model.model, _tokens(model)
    answering, others = CachedSession(session), np.ones(EVICTING_BYTES // 4, dtype=np.float32)
    rounds = []
    with pipeline(embedder, sync=True) as kp:
        model.model = answering
        for _ in range(IN_CACHE):
            record(kp)()
        for _ in range(ROUNDS):
            model.model = answering
            beside = _cpu_ms(record(kp))
            finish, _ = record(kp), others.sum()
            cold = _cpu_ms(finish)
            parts = _parts_ms(embedder)
            model.model = session
            whole, bare = _cpu_ms(record(kp)), _cpu_ms(lambda: session.run(None, tokens))
            rounds.append((beside, cold, *parts, whole, bare))
    beside, cold, secrets, reading, whole, bare = np.array(rounds).min(axis=0)
    yield Row("all but the model, N = 1,000, CPU ms", beside, 0, "", "≤ 1.5")
    yield Row("  after 64 MB of other memory", cold, 0, "", "")
    yield Row("  of it, taking secrets out", secrets, 0, "", "")
    yield Row("  of it, what the model reads, in tokens", reading, 0, "", "")
    yield Row("whole evaluation, 256 tokens, CPU ms", whole, bare, "the bare model", "≤ 1.10 x")


def _parts_ms(embedder: MiniLMEmbedder) -> tuple[float, float]:
    """Return the milliseconds of the longest stages."""
    steps = [Step(step_id=at, type="thought", content=f"{next(numbers)} {TEXT}") for at in range(8)]
    trace = ReasoningTrace.of(f"{next(numbers)}: find the module that leaks", steps)
    policy = privacy.Policy.from_settings(Settings())
    return (
        _cpu_ms(lambda: privacy.redact_trace(trace, level="private", policy=policy)),
        _cpu_ms(lambda: embedder.embed(embedder.text_of(trace))),
    )


def _model_of(embedder: MiniLMEmbedder) -> Any:
    return cast("Any", embedder._model().session)


def _tokens(model: Any) -> dict[str, Any]:
    (encoding,) = model.tokenizer.encode_batch([TEXT * 5])
    ids = np.array([encoding.ids])
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": 0 * ids}


def import_rows() -> Iterator[Row]:
    """Measure imports in a new process, beside those that anybody with documents needs."""
    floor_ms = min(_import_ms("import pydantic") for _ in range(IMPORT_ROUNDS))
    for statement, target in IMPORTS.items():
        took_ms = min(_import_ms(statement) for _ in range(IMPORT_ROUNDS))
        yield Row(f"{statement}, ms", took_ms, floor_ms, "import pydantic", target)


def _import_ms(statement: str) -> float:
    timed = (
        f"import time; t = time.perf_counter(); exec({statement!r}); print(time.perf_counter() - t)"
    )
    done = subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True)
    return float(done.stdout) * 1e3


def record(kp: KnowledgePulse) -> Callable[[], None]:
    """Record a run of eight steps, unlike all before it; return what ends it."""
    recorder: Any = kp.start_recording("python")
    recorder.set_objective(f"{next(numbers)}: find the module that leaks")
    for _ in range(8):
        recorder.thought(f"{next(numbers)} {TEXT}")
    recorder.outcome("the cache of the worker", confidence=0.9)
    return cast("Callable[[], None]", recorder.finish)


@contextmanager
def pipeline(embedder: Embedder | None, *, sync: bool = False) -> Iterator[KnowledgePulse]:
    """Open a pipeline on a new file, which sends nothing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        KnowledgePulse(db=Path(folder) / "kp.db", embedder=embedder, sync=sync, api_key=None) as kp,
    ):
        yield kp


def _cpu_ms(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1e3


def main() -> None:
    """Print the table."""
    logging.disable(logging.CRITICAL)
    embedder = MiniLMEmbedder()
    embedder.embed(TEXT)
    table = Table("what", "ours", "floor", "ratio", "floor is", "target", box=None)
    for row in (*import_rows(), *end_rows(embedder), *file_rows(), *evaluation_rows(embedder)):
        floor, ratio = f"{row.floor:.2f}", f"{row.ours / row.floor:.2f}" if row.floor else ""
        table.add_row(row.what, f"{row.ours:.2f}", floor, ratio, row.floor_is, row.target)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
