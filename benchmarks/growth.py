"""The costs of a growing file: the real pipeline on files of 1,000 to a million traces.

    make bench-growth
    python benchmarks/growth.py 1000 1000000

A process of its own measures each file twice: with the default cache of 1,000 vectors, and with one
that holds all. Only the embedder is a stand-in. A million traces take 6 GB and some minutes.
"""

import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from _big_file import EMBEDDER, build
from rich.console import Console
from rich.table import Table

from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

SIZES: Final = (1_000, 10_000, 100_000)
DEFAULT_CACHE: Final = 1_000
ROUNDS: Final = 5
RUNS: Final = 100  # in a round
MEASURE: Final = "--measure"
_PAUSE_S: Final = 0.005  # the worker comes to rest, as it does between two runs of an agent


class KnownEmbedder(StandInEmbedder):
    """An embedder named as that of the file's vectors, so that they are compared."""

    name = EMBEDDER


def main(sizes: list[int]) -> None:
    """Print the table."""
    progress, table = Console(stderr=True), Table(box=None)
    for heading in (
        *("traces", "file MB", "built s", "cache"),
        *("start-up ms", "evaluation CPU ms", "x", "end p50 µs", "x", "end p99 µs", "x", "RSS MB"),
    ):
        table.add_column(heading, justify="right")
    first: dict[str, float] = {}
    for size in sizes:
        progress.print(f"{size:,} traces …")
        for facts in measured(size):
            first = first or facts
            table.add_row(*row_cells(facts, first))
    Console(width=140).print(table)


def measured(size: int) -> Iterator[dict[str, float]]:
    """Yield one line for each size of the cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kp.db"
        started = time.perf_counter()
        build(path, size)
        built_s = time.perf_counter() - started
        for cache_size in sorted({DEFAULT_CACHE, size}):
            command = [sys.executable, __file__, MEASURE, str(path), str(cache_size)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            file_mb = path.stat().st_size / 1e6
            facts = {"traces": size, "file_mb": file_mb, "built_s": built_s, "cache": cache_size}
            yield {**facts, **json.loads(done.stdout)}


def row_cells(facts: dict[str, float], first: dict[str, float]) -> list[str]:
    """Return one row: each cost, and how many times that of the first row it is."""
    row = [f"{facts[name]:,.0f}" for name in ("traces", "file_mb", "built_s", "cache", "start_ms")]
    for name, digits in (("evaluation_ms", 2), ("p50_us", 1), ("p99_us", 1)):
        row += [f"{facts[name]:.{digits}f}", f"{facts[name] / first[name]:.2f}"]
    return [*row, f"{facts['rss_mb']:,.0f}"]


def measure(path: str, cache_size: int) -> dict[str, float]:
    """Measure what this process needs with this file, which grows by a thousand traces."""
    logging.disable(logging.CRITICAL)
    kp = KnowledgePulse(db=path, embedder=KnownEmbedder(), cache_size=cache_size, api_key=None)
    started = time.perf_counter()
    end_one_run(kp)
    kp.flush(timeout_s=600)
    start_ms = (time.perf_counter() - started) * 1e3
    rounds = [paced_ends(kp) for _ in range(ROUNDS)]
    evaluation_ms = min(batch_ms(kp) for _ in range(ROUNDS))
    memory_mb = rss_mb()  # before the vectors go
    kp.close()
    return {
        "start_ms": start_ms,
        "evaluation_ms": evaluation_ms,
        "p50_us": min(ends[RUNS // 2] for ends in rounds),
        "p99_us": min(ends[RUNS * 99 // 100 - 1] for ends in rounds),
        "rss_mb": memory_mb,
    }


def paced_ends(kp: KnowledgePulse) -> list[float]:
    """Return the agent thread's microseconds at the end of each run, sorted."""
    ends = []
    for _ in range(RUNS):
        ends.append(end_one_run(kp))
        kp.flush()
        time.sleep(_PAUSE_S)
    return sorted(ends)


def batch_ms(kp: KnowledgePulse) -> float:
    """Return CPU milliseconds for a run until it is kept, scored and decided on."""
    started = time.process_time()
    for _ in range(RUNS):
        end_one_run(kp)
    kp.flush(timeout_s=600)
    return (time.process_time() - started) * 1e3 / RUNS


def end_one_run(kp: KnowledgePulse) -> float:
    """Record a run of eight steps; return how many microseconds its end took."""
    recorder: Any = kp.start_recording("python")
    recorder.set_objective(f"find the module that leaks, number {time.perf_counter_ns()}")
    for number in range(4):
        recorder.tool_call("read", {"page": number})
        recorder.observation("a page of results " * 8, tool="read")
    recorder.outcome("the cache of the worker", confidence=0.9)
    started = time.perf_counter()
    recorder.finish()
    return (time.perf_counter() - started) * 1e6


def rss_mb() -> float:
    """Return the memory of this process now, without the pages of the file that it reads."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))
    return int(kilobytes) / 1e3


if __name__ == "__main__":
    if sys.argv[1:2] == [MEASURE]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        main([int(size) for size in sys.argv[1:]] or [*SIZES])
