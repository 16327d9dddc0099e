"""Novelty as a test for the first run of a task: how well it tells it, and at what price.

    python benchmarks/novelty.py [--data ../shared/data] [--seeds 2]

For recorded runs, where they are, and generated ones of several kinds: the probability that a first
run is more novel than a repeated one (AUC; 0.5 is chance), by what is embedded. It takes minutes.
"""

import argparse
import gzip
import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final, NamedTuple, get_args

import numpy as np
from _runs import KINDS, ResultsIn, Run, runs_of
from rich.console import Console
from rich.table import Table

from kp_middleware import MiniLMEmbedder, ReasoningTrace, Scorer, Step
from kp_middleware.embedding import Vector, embedded_text
from kp_middleware.embedding._model import Window, task_first_text

RECORDED: Final = "tau_airline_gpt4o_open.jsonl.gz"
TOP: Final = 0.2
ROUNDS: Final = 15


def whole_parts(trace: ReasoningTrace, window: Window) -> str:
    """Return people's words, then thoughts, then the rest, whole: a long part takes all room."""
    text = embedded_text(trace)
    if window.holds(text):
        return text
    steps = sorted((step for step in trace.steps if step.content), key=_rank)
    return " ".join([trace.task.objective, *(step.content for step in steps)])


def _rank(step: Step) -> int:
    if step.type == "observation" and step.tool is None:
        return 0
    return 1 if step.type == "thought" else 2


def any_part(trace: ReasoningTrace, window: Window) -> str:
    """Return the ends of each part, whoever said it, until the window is full."""
    text = embedded_text(trace)
    if window.holds(text):
        return text
    contents = [step.content for step in trace.steps if step.content]
    pieces = [window.shorten(content, 16, 16)[0] for content in contents]
    return " ".join([window.shorten(trace.task.objective, 32, 64)[0], *pieces])


METHODS: Final[Mapping[str, Callable[[ReasoningTrace, Window], str]]] = {
    "specified": lambda trace, _: embedded_text(trace),
    "task-first": task_first_text,
    "whole parts": whole_parts,
    "any part": any_part,
}


class Model:
    """The real model, which embeds no text twice."""

    def __init__(self) -> None:
        self._embedder = MiniLMEmbedder()
        self._known: dict[str, Vector] = {}
        self.name = self._embedder.name
        self.window = self._embedder._model().window

    def embed(self, text: str, /) -> Vector:
        beginning = self.window.beginning(text)
        if beginning not in self._known:
            self._known[beginning] = self._embedder.embed(beginning)
        return self._known[beginning]


class TextEmbedder:
    """The model, with a text of ours."""

    def __init__(self, model: Model, text_of: Callable[[ReasoningTrace], str]) -> None:
        self.name = model.name
        self.embed = model.embed
        self.text_of = text_of


class Scored(NamedTuple):
    """One run, scored after those before it."""

    is_first: bool
    novelty: float
    score: float


def scored(runs: Sequence[Run], embedder: TextEmbedder) -> list[Scored]:
    scorer, seen, all_scored = Scorer(embedder=embedder), set(), []
    for run in runs:
        score = scorer.score(run.trace)
        all_scored.append(Scored(run.task not in seen, score.signals.novelty, score.value))
        seen.add(run.task)
    return all_scored


def auc(all_scored: Sequence[Scored]) -> float:
    """Return how often a first run is more novel than a repeated one; a tie is half."""
    first = np.array([each.novelty for each in all_scored if each.is_first])[:, None]
    repeated = np.array([each.novelty for each in all_scored if not each.is_first])
    return float(np.mean((first > repeated) + 0.5 * (first == repeated)))


def auc_rows(model: Model, seeds: int) -> Iterator[list[str]]:
    for kind in KINDS:
        for results_in in get_args(ResultsIn):
            samples = [runs_of(kind, results_in, seed) for seed in range(seeds)]
            size = mean(tokens(run.trace) for run in samples[0])
            cells = [
                mean(auc(scored(runs, embedder_of(model, method))) for runs in samples)
                for method in METHODS
            ]
            best = mean(auc(scored(runs, task_alone(model, runs))) for runs in samples)
            yield [kind, results_in, f"{size:.0f}", *(f"{cell:.3f}" for cell in (*cells, best))]


def embedder_of(model: Model, method: str) -> TextEmbedder:
    return TextEmbedder(model, lambda trace: METHODS[method](trace, model.window))


def task_alone(model: Model, runs: Sequence[Run]) -> TextEmbedder:
    """Embed the words of the task alone: the most that can be asked of this model."""
    asked = {run.trace.id: run.asked for run in runs}
    return TextEmbedder(model, lambda trace: asked[trace.id])


def tokens(trace: ReasoningTrace) -> float:
    """Estimate the tokens of the specified text."""
    return len(embedded_text(trace).encode()) / 4


def recorded(folder: Path, results_in: ResultsIn) -> tuple[list[Run], list[bool]]:
    """Return the recorded runs, and which truly succeeded."""
    spec = importlib.util.spec_from_file_location("tau", folder / "tau_to_traces.py")
    tau = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tau)
    with gzip.open(folder / RECORDED, "rt") as lines:
        all_recorded = [json.loads(line) for line in lines]
    runs = [
        Run(str(each["task_id"]), "", _document(tau.trace(each), results_in))
        for each in all_recorded
    ]
    return runs, [each["reward"] == 1 for each in all_recorded]


def _document(document: dict[str, Any], results_in: ResultsIn) -> ReasoningTrace:
    for step in document["steps"]:
        if "output_summary" in step:
            step[results_in] = step.pop("output_summary")
    return ReasoningTrace.model_validate(document)


def recorded_rows(model: Model, folder: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield a row of the first table and one of the second, for each field of tool results."""
    for results_in in get_args(ResultsIn):
        runs, succeeded = recorded(folder, results_in)
        size = mean(tokens(run.trace) for run in runs)
        each = [scored(runs, embedder_of(model, method)) for method in METHODS]
        cells = [f"{auc(all_scored):.3f}" for all_scored in each]
        yield (
            ["recorded airline", results_in, f"{size:.0f}", *cells, ""],
            [results_in, *(best_fifth(runs, succeeded, all_scored) for all_scored in each)],
        )


def best_fifth(runs: Sequence[Run], succeeded: Sequence[bool], all_scored: list[Scored]) -> str:
    """Return the share of the best-scored fifth that truly succeeded, and its number of tasks."""
    order = sorted(range(len(runs)), key=lambda at: all_scored[at].score, reverse=True)
    top = order[: round(len(runs) * TOP)]
    return f"{mean(succeeded[at] for at in top):.2f}, {len({runs[at].task for at in top})} tasks"


def fastest_ms(read: Callable[[ReasoningTrace], str], embedder: MiniLMEmbedder) -> float:
    """Return CPU time for the vector of a new run of 3,000 tokens."""
    best = float("inf")
    for number in range(ROUNDS):
        trace = _long_trace(number)
        started = time.process_time()
        embedder.embed(read(trace))
        best = min(best, time.process_time() - started)
    return best * 1000


def _long_trace(number: int) -> ReasoningTrace:
    words = " ".join(f"the carrier said that item {number + at} is late" for at in range(10))
    steps = [Step(step_id=at, type="thought", content=f"{at}: {words}") for at in range(27)]
    return ReasoningTrace.of(f"Find item {number}.", steps)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="What novelty sees, by what is embedded.")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=2, help="how many samples of each kind")
    given = parser.parse_args()
    console, model = Console(width=120), Model()

    first = Table(
        "AUC by kind of run", "tool results in", "≈ tokens", *METHODS, "task alone", box=None
    )
    second = Table("best fifth, tool results in", *METHODS, box=None)
    if (given.data / RECORDED).exists():
        for row, top in recorded_rows(model, given.data):
            first.add_row(*row)
            second.add_row(*top)
    else:
        console.print(f"no recorded runs in {given.data}: generated ones alone (--data PATH)")
    for row in auc_rows(model, given.seeds):
        first.add_row(*row)
    console.print(first)
    if second.row_count:
        console.print(second)
    embedder = MiniLMEmbedder()
    embedder.embed("loads it")
    for name, read in (("specified", embedded_text), ("task-first", embedder.text_of)):
        took_ms = fastest_ms(read, embedder)
        console.print(f"{name}: {took_ms:.0f} ms of one core for a run of 3,000 tokens")


if __name__ == "__main__":
    main()
