"""Recall: whether it finds the run of the same task, is silent without one, and how fast.

    python benchmarks/recall.py [--data ../shared/data] [--sizes 10000 100000]

A task is asked for by its first words, then by its second turn, too. The run itself, and then all
runs of its task, are taken out of the file before; only runs that succeeded may be found.
"""

import argparse
import gzip
import importlib.util
import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from _big_file import build, words_like
from _runs import KINDS, runs_of
from _templates import KINDS as TEMPLATES
from _templates import runs_of as runs_of_template
from rich.console import Console
from rich.table import Table

from kp_middleware import KnowledgePulse, MiniLMEmbedder, ReasoningTrace
from kp_middleware.database import connect, transaction
from kp_middleware.privacy import Policy
from kp_middleware.recall import Memory, question
from kp_middleware.settings import Settings
from kp_middleware.storage import History

RECORDED: Final = "tau_airline_gpt4o_open.jsonl.gz"
ANY: Final = question()


class Run(NamedTuple):
    """A run, the task that it did, and whether it succeeded."""

    task: str
    trace: ReasoningTrace
    success: bool

    def asked(self, turns: int) -> str:
        """Return the words of a person after so many turns: the objective is the first."""
        steps = self.trace.steps
        later = [one.content for one in steps if one.type == "observation" and not one.tool]
        said = dict.fromkeys([self.trace.task.objective, *filter(None, later)])
        return "\n".join([*said][:turns])


class Rates(NamedTuple):
    """Shares of questions: the right run first, among the first three, found, or wrongly recalled.

    A run is found, or recalled though none fits, at the operating point.
    """

    first: float
    among_three: float
    found: float
    wrong: float


def recorded(folder: Path) -> Iterator[Run]:
    """Return the recorded runs, where they are."""
    spec = importlib.util.spec_from_file_location("tau_to_traces", folder / "tau_to_traces.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with gzip.open(folder / RECORDED, "rt") as lines:
        for run in map(json.loads, lines):
            trace = ReasoningTrace.model_validate(module.trace(run))
            yield Run(str(run["task_id"]), trace, run["reward"] == 1.0)


def generated(kind: str) -> Iterator[Run]:
    """Return generated runs of a kind, two of three with success."""
    luck = random.Random(7)
    of_kind = TEMPLATES.get(kind)
    for run in runs_of(kind, "output_summary") if of_kind is None else runs_of_template(of_kind):
        yield Run(run.task, run.trace, luck.random() < 2 / 3)


def measure(path: Path, runs: Sequence[Run]) -> Iterator[tuple[int, Rates]]:
    """Keep the runs in a file; yield the rates after one turn, and after two."""
    with KnowledgePulse(db=path, embedder=MiniLMEmbedder(), sync=True, threshold=1.0) as kp:
        for run in runs:
            kp.submit(run.trace)
            kp.feedback(run.trace.id, success=run.success)
        memory = Memory(path, MiniLMEmbedder(), Policy.from_settings(kp.settings))
    with closing(connect(path)) as connection:
        history = History(connection)
        task_of = {history.find(run.trace.id): run.task for run in runs}
        done = {seq: run.success for seq, run in zip(task_of, runs, strict=True)}
        for turns in (1, 2):
            fitting, hits, threes, found, wrong = 0, 0, 0, 0, 0
            for seq, run in zip(task_of, runs, strict=True):
                task = run.asked(turns)
                same = {one for one, name in task_of.items() if name == run.task}
                if any(done[one] for one in same - {seq}):
                    fitting += 1
                    best = _look(connection, memory, task, {seq})
                    right = [task_of[one.seq] == run.task for one in best]
                    hits += right[:1] == [True]
                    threes += any(right)
                    found += right[:1] == [True] and best[0].fits
                none = _look(connection, memory, task, same)
                wrong += bool(none) and none[0].fits
            yield (
                turns,
                Rates(*(n / max(1, fitting) for n in (hits, threes, found)), wrong / len(runs)),
            )


class _UndoError(Exception):
    """An error that ends a transaction without a trace."""


def _look(connection: Any, memory: Memory, task: str, without: set[int]) -> list[Any]:
    found = []
    with suppress(_UndoError), transaction(connection):
        for seq in without:
            connection.execute("DELETE FROM traces WHERE seq = ?", (seq,))
        found = memory.matches(History(connection), task, ANY, k=3)
        raise _UndoError
    return found


def main(data: Path, sizes: Sequence[int]) -> None:
    """Print both tables."""
    console = Console()
    table = Table("runs", "turns", "first", "of three", "found", "wrong where none fits")
    kinds = {kind: [*generated(kind)] for kind in (*KINDS, *TEMPLATES)}
    if (data / RECORDED).exists():
        kinds = {"recorded": [*recorded(data)], **kinds}
    for name, runs in kinds.items():
        with TemporaryDirectory() as folder:
            for turns, rates in measure(Path(folder) / "kp.db", runs):
                table.add_row(name, str(turns), *(f"{rate:.3f}" for rate in rates))
    console.print(table)
    if not sizes:
        return
    times = Table("runs in the file", "of the 20", "median, ms", "longest, ms")
    for size in sizes:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "kp.db"
            build(path, size)
            took = [*_times(path)]
            times.add_row(f"{size:,}", "questions", f"{median(took):.1f}", f"{max(took):.1f}")
    console.print(times)


def _times(path: Path) -> Iterator[float]:
    """Ask a file twenty times; the embedding is made before."""
    embedder = MiniLMEmbedder()
    memory = Memory(path, embedder, Policy.from_settings(Settings()))
    luck = random.Random(3)
    for number in range(20):
        task = f"find the vendor of module {number * 37} {words_like(luck, 20)}"
        embedder.embed(task)
        started = time.perf_counter()
        memory.recall(task, ANY, k=3)
        yield (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    here = Path(__file__).parents[1]
    parser.add_argument("--data", type=Path, default=here.parent / "shared" / "data")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000])
    given = parser.parse_args()
    main(given.data, given.sizes)
