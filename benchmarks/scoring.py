"""What scoring costs: each figure beside its floor, measured in turns in one run.

    make bench

The figures of a shared machine differ from run to run; the ratios hardly do. The fastest of many
rounds is reported: what is slower than that is the neighbours.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from kp_middleware import MiniLMEmbedder, ReasoningTrace, Scorer, Step, VectorCache
from kp_middleware.scoring import embedded_text

ROUNDS = 30


class Row(NamedTuple):
    """One line of the table, in microseconds."""

    what: str
    ours_us: float
    floor_us: float
    floor: str
    target: str


def fastest_us(*candidates: Callable[[], object], repeat: int = 1) -> list[float]:
    """Each candidate's fastest round, in microseconds a call; they take turns."""
    best = [float("inf")] * len(candidates)
    for _ in range(ROUNDS):
        for number, candidate in enumerate(candidates):
            started = time.perf_counter()
            for _ in range(repeat):
                candidate()
            best[number] = min(best[number], (time.perf_counter() - started) / repeat * 1e6)
    return best


def scan_row() -> Row:
    """Find the nearest of 1,000 vectors, beside reading them once."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((1000, 384)).astype(np.float32)
    cache = VectorCache()
    for vector in vectors:
        cache.add(vector)
    flat, query = vectors.ravel(), vectors[7]
    read, nearest = fastest_us(lambda: np.dot(flat, flat), lambda: cache.nearest(query), repeat=50)
    return Row("nearest of 1,000 x 384", nearest, read, "reading them", "≤ 30 µs")


def scoring_rows() -> Iterator[Row]:
    """Score a trace of 40 steps without a model; and a long one with it, beside the bare model."""
    trace = _trace()
    scorer = Scorer()
    (alone,) = fastest_us(lambda: scorer.score(trace), repeat=20)
    yield Row("score without embedder", alone, 0, "", "")
    embedder = MiniLMEmbedder()
    with_model = Scorer(embedder=embedder, cache=VectorCache())
    text = embedded_text(trace)
    bare, whole = fastest_us(lambda: embedder.embed(text), lambda: with_model.score(trace))
    yield Row("whole evaluation, 256 tokens", whole, bare, "the bare model", "≤ 1.10 x")


def _trace() -> ReasoningTrace:
    steps = [
        Step(step_id=number, type="thought", content="I look at the next item of the list.")
        for number in range(40)
    ]
    return ReasoningTrace.of("Find the cheapest flight and book it for me, please.", steps)


def main() -> None:
    """Print the table."""
    table = Table("what", "ours µs", "floor µs", "ratio", "floor", "target", box=None)
    for row in (scan_row(), *scoring_rows()):
        ratio = f"{row.ours_us / row.floor_us:.2f}" if row.floor_us else ""
        floor_us = f"{row.floor_us:.1f}" if row.floor_us else ""
        table.add_row(row.what, f"{row.ours_us:.1f}", floor_us, ratio, row.floor, row.target)
    Console().print(table)


if __name__ == "__main__":
    main()
