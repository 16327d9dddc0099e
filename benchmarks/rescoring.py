"""The cost of scoring anew: runs a second, beside embedding alone, and how long others wait.

    python benchmarks/rescoring.py

A file of runs that were recorded without a model is scored anew with the real one, and then once
more with other weights, when all vectors are there. Meanwhile another thread writes to the file.
"""

import random
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from kp_middleware import KnowledgePulse, MiniLMEmbedder, ReasoningTrace, Step
from kp_middleware.database import connect, transaction
from kp_middleware.embedding import Embedder, embed_many
from kp_middleware.pipeline import Rescoring
from kp_middleware.settings import Settings
from kp_middleware.storage import SqliteStore

RUNS: Final = 300
ROUNDS: Final = 3
_PAUSE_S: Final = 0.002
ALIKE: Final = dict.fromkeys(
    ("complexity", "novelty", "tool_diversity", "outcome_confidence"), 0.25
)
numbers = count(10_000)


class Cost(NamedTuple):
    """Runs a second, and the longest that another writer had to wait meanwhile."""

    per_s: float
    wait_ms: float


def text() -> str:
    """Return a new text of 16 to 256 tokens."""
    words = random.Random(next(numbers)).randint(2, 42)
    return f"{next(numbers)} " + "the agent looks at the list " * words


def fill(path: Path) -> None:
    """Store runs without vectors."""
    with KnowledgePulse(db=path, embedder=None, sync=True, threshold=0) as kp:
        for _ in range(RUNS):
            kp.submit(ReasoningTrace.of("Look", [Step(step_id=0, type="thought", content=text())]))


@contextmanager
def another_writer(path: Path) -> Iterator[list[float]]:
    """Write to the file as long as the block lasts; give the waits in milliseconds."""
    waits_ms: list[float] = []
    over = threading.Event()
    thread = threading.Thread(target=write_until, args=(path, over, waits_ms))
    thread.start()
    try:
        yield waits_ms
    finally:
        over.set()
        thread.join()


def write_until(path: Path, over: threading.Event, waits_ms: list[float]) -> None:
    """Write one short transaction after another."""
    with closing(connect(path)) as connection:
        while not over.wait(_PAUSE_S):
            began = time.perf_counter()
            with transaction(connection):
                waits_ms.append((time.perf_counter() - began) * 1e3)


def rescored(path: Path, embedder: Embedder, **settings: object) -> Cost:
    """Rescore all runs of a file."""
    with closing(connect(path)) as connection, another_writer(path) as waits_ms:
        rescoring = Rescoring(SqliteStore(connection), Settings(threshold=0, **settings), embedder)
        began = time.perf_counter()
        done = sum(rescoring.steps())
        took_s = time.perf_counter() - began
    return Cost(done / took_s, max(waits_ms))


def embedded_per_s(embedder: Embedder) -> float:
    """Embed as many such texts, and nothing else."""
    texts = [text() for _ in range(RUNS)]
    began = time.perf_counter()
    return sum(1 for _ in embed_many(embedder.embed, texts, embedder)) / (
        time.perf_counter() - began
    )


def main() -> None:
    """Print the table: the best of some rounds."""
    embedder = MiniLMEmbedder()
    embedder.embed(text())
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    alone, with_model, with_weights = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            path = Path(folder) / f"{number}.db"
            fill(path)
            alone.append(embedded_per_s(embedder))
            with_model.append(rescored(path, embedder))
            with_weights.append(rescored(path, embedder, profiles={"general": ALIKE}))
    more_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    table = Table(
        "scored anew", "runs/s", "x embedding alone", "target", "others wait ms", box=None
    )
    model, weights = max(with_model), max(with_weights)
    ratio, target = f"{model.per_s / max(alone):.2f}", "≥ 60 on two quiet cores"
    table.add_row("another model", f"{model.per_s:.1f}", ratio, target, f"{model.wait_ms:.1f}")
    table.add_row("other weights", f"{weights.per_s:.1f}", "", "", f"{weights.wait_ms:.1f}")
    Console().print(table)
    print(f"embedding alone: {max(alone):.1f} texts/s; {more_mb:.0f} MB more at the peak")


if __name__ == "__main__":
    main()
