"""A dataset: selected runs, redacted, in one format, and their manifest."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from kp_middleware import privacy
from kp_middleware.datasets._formats import FORMATS, Example, pair
from kp_middleware.errors import RedactionError
from kp_middleware.instants import instant
from kp_middleware.privacy import Policy
from kp_middleware.recording import holds_cuts, is_marker
from kp_middleware.storage import Embedding, Filters, History, RunDocument, RunSummary
from kp_middleware.traces import ReasoningTrace

_BATCH_SIZE: Final = 500
_CONFIRMED_SOURCES: Final = frozenset({"feedback", "verdict"})
_LOSSES: Final = (
    "system prompts",
    "tool schemas",
    "which words of one answer were thoughts: all but the last text of a turn count as such",
    "ids of tool calls: they are numbered",
    "the MCP servers of tools",
    "steps inside of tool calls, errors outside of them, and steps left out when recorded",
    "results without a call got one, and calls without a result an empty one",
)


class Selection(NamedTuple):
    """The runs to export; of two as similar as ``unlike`` (0 to 1), only the newer one."""

    filters: Filters = Filters()
    success: bool = False
    unlike: float | None = None
    limit: int | None = None
    with_cut: bool = False


class Dataset:
    """The selected runs, oldest first, each redacted at its own privacy level.

    A policy of None keeps texts as recorded. ``left_out`` counts skipped runs by reason, and
    ``unclean`` those that could not be read or redacted.
    """

    def __init__(
        self,
        history: History,
        format_: str,
        selection: Selection,
        policy: Policy | None,
        *,
        arguments: Literal["text", "object"] = "text",
    ) -> None:
        self.left_out: Counter[str] = Counter()
        self.unclean: Counter[str] = Counter()
        self._history, self._selection, self._policy = history, selection, policy
        self._format, self._arguments = format_, arguments
        self._ids: list[str] = []
        self._pairs: list[dict[str, Any]] = []
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._rejected: dict[int, tuple[int, float]] = {}
        self.seqs = self._select_pairs() if format_ == "pairs" else self._select()

    @property
    def count(self) -> int:
        return len(self._ids) + len(self._pairs)

    def entries(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the id of each run or pair and its lines of JSON, without those skipped."""
        for example in self.examples(self.seqs):
            if self._format != "pairs":
                self._count(example)
                is_traces = self._format == "traces"
                lines = [] if is_traces else [*map(_json, FORMATS[self._format](example))]
                yield example.trace.id, lines or [example.document]
                continue
            seq, similarity = self._rejected[example.run.seq]
            for rejected in self.examples([seq]):
                self._count(example)
                self._count(rejected)
                ids = {"chosen": self._ids.pop(-2), "rejected": self._ids.pop()}
                self._pairs.append({**ids, "similarity": round(similarity, 4)})
                yield example.trace.id, [_json(pair(example, rejected))]

    def examples(self, seqs: list[int]) -> Iterator[Example]:
        """Yield these runs, redacted, without those skipped, which are counted by reason."""
        for batch in _batches(seqs):
            yield from filter(None, map(self._example, self._history.documents(batch)))

    def _example(self, run: RunDocument) -> Example | None:
        document = run.document or ""
        try:
            trace = ReasoningTrace.model_validate_json(document)
        except ValueError:
            self.unclean["unreadable"] += 1
            return None
        is_cut = holds_cuts(document) or any(map(is_marker, trace.steps))
        if is_cut and not self._selection.with_cut:
            self.left_out["cut"] += 1
            return None
        model, redacted = run.model, Counter[str]()
        if self._policy is not None:
            if run.score is not None:
                scored = trace.metadata.model_copy(update={"quality_score": run.score})
                trace = trace.model_copy(update={"metadata": scored})
            level = trace.metadata.privacy_level
            try:
                clean = privacy.redact_trace(trace, level=level, policy=self._policy)
                trace, document = clean.trace, clean.trace.model_dump_json()
                privacy.check_clean(document.encode(), level=level, policy=self._policy)
            except RedactionError as error:
                self.unclean[error.reason] += 1
                return None
            redacted.update(clean.counts)
            model = model and privacy.redact_text(model, policy=self._policy).text
        steps = () if self._format == "traces" else self._history.run(run.seq).steps
        return Example(run, trace, document, steps, model, redacted, self._arguments)

    def manifest(self) -> dict[str, Any]:
        selection, is_traces = self._selection, self._format == "traces"
        filters = {
            name: value
            for name, value in {**selection.filters._asdict(), **selection._asdict()}.items()
            if value not in {None, False} and name != "filters"
        }
        return {
            "made_by": f"kp-middleware {version('kp-middleware')}",
            "made_at": instant(time.time()),
            "format": self._format,
            "filters": filters,
            "redactor": None if self._policy is None else self._policy.redactor,
            "count": self.count,
            **{name: dict(counts) for name, counts in self._counts.items()},
            "left_out": dict(self.left_out + self.unclean),
            "cannot_be_made_again": [] if is_traces else [*_LOSSES],
            **({"pairs": self._pairs} if self._format == "pairs" else {"ids": self._ids}),
        }

    def _select(self) -> list[int]:
        filters, success, unlike, limit, _ = self._selection
        seqs = self._history.seqs(filters._replace(outcome="succeeded") if success else filters)
        if unlike is None:
            return seqs if limit is None else seqs[-limit:]
        index = _VectorIndex(len(seqs))
        selected: list[int] = []
        for batch in _batches(seqs[::-1]):
            embeddings = self._history.embeddings(batch)
            for seq in batch:
                if len(selected) == limit:
                    return selected[::-1]
                if (embedding := embeddings.get(seq)) is not None:
                    if index.nearest(embedding)[1] >= unlike:
                        self.left_out["near_copy"] += 1
                        continue
                    index.add(seq, embedding)
                selected.append(seq)
        return selected[::-1]

    def _select_pairs(self) -> list[int]:
        """Return successful runs with a failed run of a similar task, each used once."""
        seqs = self._history.seqs(self._selection.filters)
        failed = _VectorIndex(len(seqs))
        succeeded: list[tuple[RunSummary, Embedding]] = []
        for batch in _batches(seqs):
            embeddings = self._history.embeddings(batch)
            for run in self._history.runs_at(batch):
                if run.success_source in _CONFIRMED_SOURCES and run.seq in embeddings:
                    if run.success:
                        succeeded.append((run, embeddings[run.seq]))
                    else:
                        failed.add(run.seq, embeddings[run.seq])
        for run, embedding in reversed(succeeded):
            nearest, similarity = failed.nearest(embedding)
            if similarity >= 0.9 and len(self._rejected) != self._selection.limit:
                self._rejected[run.seq] = nearest, similarity
                failed.remove(nearest, embedding)
        return [*reversed(self._rejected)]

    def _count(self, example: Example) -> None:
        self._ids.append(example.trace.id)
        outcomes = {True: "succeeded", False: "failed", None: "not_known"}
        self._counts["success"][outcomes[example.run.known_success]] += 1
        self._counts["redacted"].update(example.redacted)
        self._counts["redacted_when_recorded"].update(example.run.redactions)


class _VectorIndex:
    """An index of runs by embedding, apart for each embedder."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._vectors: dict[tuple[str, int], tuple[Any, list[int]]] = {}

    def add(self, seq: int, embedding: Embedding) -> None:
        vector, matrix, seqs = self._bucket(embedding)
        matrix[len(seqs)] = vector
        seqs.append(seq)

    def remove(self, seq: int, embedding: Embedding) -> None:
        _, matrix, seqs = self._bucket(embedding)
        matrix[seqs.index(seq)] = 0

    def nearest(self, embedding: Embedding) -> tuple[int, float]:
        """Return the nearest run and its cosine, or 0 and -1 without any."""
        vector, matrix, seqs = self._bucket(embedding)
        if not seqs:
            return 0, -1.0
        cosines = matrix[: len(seqs)] @ vector
        nearest = int(cosines.argmax())
        return seqs[nearest], float(cosines[nearest])

    def _bucket(self, embedding: Embedding) -> tuple[Any, Any, list[int]]:
        vector = np.frombuffer(embedding.vector, "<f4")
        key = embedding.embedder, len(vector)
        if key not in self._vectors:
            self._vectors[key] = np.empty((self._capacity, len(vector)), np.float32), []
        return vector, *self._vectors[key]


def _batches(seqs: list[int]) -> Iterator[list[int]]:
    return (seqs[start : start + _BATCH_SIZE] for start in range(0, len(seqs), _BATCH_SIZE))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
