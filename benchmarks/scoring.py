"""The cost of scoring: each figure beside its floor, measured in turns in one run.

    make bench

The figures of a shared machine differ from run to run; the ratios hardly do. The fastest of many
rounds is reported: what is slower than that is the neighbors. Needs 2 GB for a million vectors.
"""

from collections.abc import Iterator

from _cache_rows import Row, cache_rows, fastest_us
from rich.console import Console
from rich.table import Table

from kp_middleware import MiniLMEmbedder, ReasoningTrace, Scorer, Step, VectorCache


def scoring_rows() -> Iterator[Row]:
    """Score a trace of 40 steps: without a model, and a repeat, which needs no model run."""
    trace = _trace()
    scorer = Scorer()
    with_model = Scorer(embedder=MiniLMEmbedder(), cache=VectorCache())
    with_model.score(trace)
    alone, whole = fastest_us(lambda: scorer.score(trace), lambda: with_model.score(trace))
    yield Row("score without embedder", alone, 0, "", "")
    yield Row("score, all but the model", whole, alone, "without embedder", "≤ 1,500 µs")


def _trace() -> ReasoningTrace:
    steps = [
        Step(step_id=number, type="thought", content="I look at the next item of the list.")
        for number in range(40)
    ]
    return ReasoningTrace.of("Find the cheapest flight and book it for me, please.", steps)


def main() -> None:
    """Print the table."""
    table = Table("what", "ours µs", "floor µs", "ratio", "floor", "target", box=None)
    for row in (*cache_rows(), *scoring_rows()):
        ratio = f"{row.ours_us / row.floor_us:.2f}" if row.floor_us else ""
        floor_us = f"{row.floor_us:.1f}" if row.floor_us else ""
        table.add_row(row.what, f"{row.ours_us:.1f}", floor_us, ratio, row.floor, row.target)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
