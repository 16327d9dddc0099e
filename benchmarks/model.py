"""The embedding model's cost: us beside the bare model, and the host beside itself, in one run.

    python benchmarks/model.py

All take turns. Costs are processor time: what neighbors of a shared machine take is not in them.
The fastest of many rounds is reported.
"""

import logging
import random
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, cast

import numpy as np
from _runs import KINDS, runs_of
from rich.console import Console
from rich.table import Table

from kp_middleware import KnowledgePulse, MiniLMEmbedder, ReasoningTrace
from kp_middleware.embedding import Embedder, Vector, embed_many
from kp_middleware.embedding._model import task_first_text

ROUNDS: Final = 20
LENGTHS: Final = (30, 128, 256, 20_000)  # tokens
MANY: Final = 300  # texts
TRACES: Final = 16
HOST_ROUNDS: Final = 8
numbers = count(10_000)


class BareModel:
    """The model's session alone, with tokens that are ready."""

    def __init__(self, embedder: MiniLMEmbedder) -> None:
        model: Any = embedder._model().session
        self._run, self._tokenizer = model.model.run, model.tokenizer
        self.session = model.model

    def tokens(self, text: str) -> dict[str, Any]:
        (encoding,) = self._tokenizer.encode_batch([text])
        ids = np.array([encoding.ids])
        return {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }

    def run(self, tokens: dict[str, Any]) -> None:
        self._run(None, tokens)


class FastembedAlone:
    """fastembed as it comes: a thread for each processor, and they spin."""

    name = "fastembed"

    def __init__(self, folder: Path) -> None:
        from fastembed import TextEmbedding

        self._embedding = TextEmbedding(
            "sentence-transformers/all-MiniLM-L6-v2", specific_model_path=str(folder)
        )
        cast("Any", self._embedding.model).tokenizer.enable_truncation(256)

    def embed(self, text: str, /) -> Vector:
        return next(iter(self._embedding.embed([text[:4000]])))


def text_of(tokens: int) -> str:
    """Return a new text of so many tokens."""
    return f"{next(numbers)} " + "the agent looks at the list " * (tokens // 6)


def fastest_ms(*candidates: Callable[[], object], clock: Callable[[], float]) -> list[float]:
    """Return each one's fastest round, in milliseconds; they take turns."""
    best = [float("inf")] * len(candidates)
    for _ in range(ROUNDS):
        for number, candidate in enumerate(candidates):
            started = clock()
            candidate()
            best[number] = min(best[number], (clock() - started) * 1e3)
    return best


def evaluation_table(ours: MiniLMEmbedder, rough: MiniLMEmbedder) -> Table:
    """Time a text of each length: its tokens alone, the bare model, and all that we do."""
    bare, bare_rough = BareModel(ours), BareModel(rough)
    columns = ("tokenise", "model", "ours", "ratio", "target", "repeat", "int8", "ratio")
    table = Table("tokens: CPU ms", *columns, box=None)
    for length in LENGTHS:
        tokens, repeated = bare.tokens(text_of(length)), text_of(length)
        tokenise, model, whole, repeat, int8 = fastest_ms(
            lambda n=length: bare.tokens(text_of(min(n, 256))),
            lambda t=tokens: bare.run(t),
            lambda n=length: ours.embed(text_of(n)),
            lambda t=repeated: ours.embed(t),
            lambda t=tokens: bare_rough.run(t),
            clock=time.process_time,
        )
        cells = (f"{ms:.2f}" for ms in (tokenise, model, whole))
        target = "≤ 1.10" if length >= 256 else ""
        ratios = (f"{whole / model:.3f}", target, f"{repeat:.3f}", f"{int8:.2f}")
        table.add_row(f"{length:,}", *cells, *ratios, f"{int8 / model:.2f}")
    return table


def threads_table(ours: MiniLMEmbedder) -> Table:
    """Time 256 tokens with more threads, and their price in the 0.1 s after it as well."""
    table = Table("256 tokens", "ms", "CPU ms", "target", box=None)
    folder = Path(cast("Any", ours._model().session)._model_dir)
    embedders = {
        "1 thread: ours": ours,
        "2 threads": MiniLMEmbedder(threads=2),
        "fastembed's default": FastembedAlone(folder),
    }

    def spent(embedder: Embedder) -> tuple[float, float]:
        spent_before, began = time.process_time(), time.perf_counter()
        embedder.embed(text_of(256))
        took = time.perf_counter() - began
        time.sleep(0.1)
        return took, time.process_time() - spent_before

    rounds = [[spent(embedder) for embedder in embedders.values()] for _ in range(ROUNDS)]
    best = np.array(rounds).min(axis=0) * 1e3
    for name, (took_ms, cpu_ms), target in zip(
        embedders, best, ("", f"≤ {best[0][1] * 1.5:.0f}: no spinning", ""), strict=True
    ):
        table.add_row(name, f"{took_ms:.1f}", f"{cpu_ms:.1f}", target)
    return table


def int8_table(ours: MiniLMEmbedder, rough: MiniLMEmbedder) -> Table:
    """Measure how far similarities to the nearest run are off with 8-bit integers."""
    table = Table("int8, generated runs", "runs", "largest error", "mean", "least cosine", box=None)
    window = ours._model().window
    exact_of: list[np.ndarray] = []
    rough_of: list[np.ndarray] = []
    for kind in KINDS:
        texts = [task_first_text(run.trace, window) for run in runs_of(kind, "content")[:24]]
        exact_of.append(np.array([*embed_many(ours.embed, texts, ours)]))
        rough_of.append(np.array([*embed_many(rough.embed, texts, rough)]))
        table.add_row(kind, str(len(texts)), *_errors(exact_of[-1], rough_of[-1]))
    exact, integers = np.concatenate(exact_of), np.concatenate(rough_of)
    table.add_row("all, each beside all", str(len(exact)), *_errors(exact, integers))
    return table


def _errors(exact: np.ndarray, rough: np.ndarray) -> Iterator[str]:
    error = np.abs(_nearest(exact) - _nearest(rough))
    return (f"{value:.4f}" for value in (error.max(), error.mean(), (exact * rough).sum(1).min()))


def _nearest(vectors: np.ndarray) -> np.ndarray:
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1)
    return similarity.max(axis=1)


def backfill_table(ours: MiniLMEmbedder, rough: MiniLMEmbedder) -> Table:
    """Time many texts of 16 to 256 tokens, two at a time; first, so that the peak is its own."""
    table = Table("backfill", "texts/s", "target", "texts a CPU second", "peak MB more", box=None)
    for name, embedder, target in (("fp32", ours, "≥ 60"), ("int8", rough, "")):
        best = cpu = 0.0
        embedder.embed(text_of(256))
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for seed in range(3):
            chooser = random.Random(f"{name} {seed}")
            texts = [text_of(chooser.randint(16, 256)) for _ in range(MANY)]
            began, spent = time.perf_counter(), time.process_time()
            done = sum(1 for _ in embed_many(embedder.embed, texts, embedder))
            best = max(best, done / (time.perf_counter() - began))
            cpu = max(cpu, done / (time.process_time() - spent))
        more_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
        table.add_row(name, f"{best:.1f}", target, f"{cpu:.1f}", f"{more_mb:.0f}")
    return table


class Share(NamedTuple):
    """Loops of a host, alone and beside scoring; and the time of scoring."""

    alone_per_s: float
    beside_per_s: float
    cpu_ms: float


def host_table(ours: MiniLMEmbedder) -> Table:
    """Count a host's Python loops while the pipeline scores as fast as it can."""
    folder = Path(cast("Any", ours._model().session)._model_dir)
    runs = [run.trace for kind in ("coding", "research") for run in runs_of(kind, "content")]
    embedders: dict[str, Embedder | None] = {
        "no embedder": None,
        "1 thread: ours": ours,
        "2 threads": MiniLMEmbedder(threads=2),
        "fastembed's default": FastembedAlone(folder),
    }
    with tempfile.TemporaryDirectory() as home:
        pipelines = {
            name: KnowledgePulse(db=Path(home) / f"{number}.db", embedder=embedder)
            for number, (name, embedder) in enumerate(embedders.items())
        }
        shares: dict[str, list[Share]] = {name: [] for name in pipelines}
        for _ in range(HOST_ROUNDS):
            for name, kp in pipelines.items():
                shares[name].append(_while_scoring(kp, runs))
        for kp in pipelines.values():
            kp.close()
    columns = ("host keeps", "target", "median round", "CPU ms a trace")
    table = Table("scoring with", *columns, box=None)
    alone = max(share.alone_per_s for measured in shares.values() for share in measured)
    for name, measured in shares.items():
        kept = max(share.beside_per_s for share in measured) / alone
        usual = median(share.beside_per_s / share.alone_per_s for share in measured)
        cpu_ms = min(share.cpu_ms for share in measured)
        target = "≥ 0.66" if "ours" in name else ""
        table.add_row(name, f"{kept:.2f}", target, f"{usual:.2f}", f"{cpu_ms:.1f}")
    return table


def _while_scoring(kp: KnowledgePulse, runs: Sequence[ReasoningTrace]) -> Share:
    chosen = random.Random(next(numbers)).sample(runs, TRACES)
    alone_per_s = _compute(threading.Event(), 0.4)
    done = threading.Event()
    spent = time.process_time() - time.thread_time()
    for trace in chosen:
        task = trace.task.model_copy(update={"objective": text_of(24)})
        kp.submit(trace.model_copy(update={"id": f"kp:trace:{next(numbers)}", "task": task}))
    threading.Thread(target=lambda: (kp.flush(60), done.set())).start()
    beside_per_s = _compute(done, 60)
    spent = time.process_time() - time.thread_time() - spent
    return Share(alone_per_s, beside_per_s, spent / TRACES * 1e3)


def _compute(done: threading.Event, limit_s: float) -> float:
    """Return loops a second of plain Python."""
    began, loops = time.perf_counter(), 0
    while not done.is_set() and time.perf_counter() - began < limit_s:
        sum(number * number for number in range(5_000))
        loops += 1
    return loops / (time.perf_counter() - began)


def main() -> None:
    """Print the tables."""
    logging.disable(logging.CRITICAL)
    console = Console()
    ours, rough = MiniLMEmbedder(), MiniLMEmbedder(precision="int8")
    console.print(backfill_table(ours, rough))
    console.print(evaluation_table(ours, rough))
    console.print(threads_table(ours))
    console.print(int8_table(ours, rough))
    console.print(host_table(ours))


if __name__ == "__main__":
    main()
