"""Imports of runs that other tools have stored, and copies of the shared log."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from kp_middleware import shared_log
from kp_middleware.embedding import Embedder
from kp_middleware.errors import DatabaseError
from kp_middleware.imports import (
    FORMATS,
    ImportContext,
    RunDefaults,
    SourceRun,
    StagedRuns,
    default_folders,
    detect_format,
    find_files,
    read_runs,
)
from kp_middleware.instants import epoch_s
from kp_middleware.pipeline._stages import Stages
from kp_middleware.recording import bounded
from kp_middleware.runs import RecordedRun
from kp_middleware.settings import Settings
from kp_middleware.storage import SharedRuns, SqliteStore, Store
from kp_middleware.traces import ReasoningTrace, Step


class ImportRequest(NamedTuple):
    """The runs to import; those that began before ``since_s`` are left out."""

    format: str
    paths: tuple[Path, ...]
    since_s: float | None = None
    domain: str | None = None
    whole_sessions: bool = False
    shareable: bool = False

    @classmethod
    def from_paths(cls, format_: str, paths: Iterable[str | Path], **options: Any) -> Self:
        """Check the format and paths, by default where the tool stores its runs."""
        format_ = format_.replace("_", "-")
        if format_ not in {"auto", *FORMATS}:
            raise ValueError(f"unknown format {format_!r}: use {', '.join([*FORMATS, 'auto'])}")
        named, defaults = [*map(Path, paths)], default_folders(format_)
        if not (named or defaults):
            raise ValueError(f"name the files or folders: {format_} has no default location")
        existing = tuple(path for path in named or defaults if path.exists())
        if len(existing) < (len(named) or 1):
            missing = [str(path) for path in named or defaults if not path.exists()]
            raise ValueError(f"{', '.join(missing)} not found: name a file or a folder")
        return cls(format_, existing, **options)


class Imported(NamedTuple):
    """The result of an import.

    Attributes:
        runs, sessions: The numbers in the sources.
        first_at, last_at: The starts of the first and last run, ISO 8601; empty without runs.
        new: The number of runs added or extended.
        known: The number of runs imported before.
        files: Counts by format.
        skipped: Counts of unreadable items, by reason.
    """

    runs: int
    sessions: int
    first_at: str
    last_at: str
    new: int
    known: int
    files: dict[str, int]
    skipped: dict[str, int]


class Import:
    """One import; use it in a ``with`` statement.

    Runs that were read are staged in an unnamed file, then written and scored by start. Written
    runs stay if the import is stopped.
    """

    def __init__(
        self, store: Store, settings: Settings, embedder: Embedder | None, wanted: ImportRequest
    ) -> None:
        self._wanted = wanted
        self._store = store
        self._stages = Stages(store, settings, embedder)
        self._limits = settings.limits
        self._staged = StagedRuns()
        self._defaults = RunDefaults(
            wanted.domain or settings.domain,
            settings.visibility if wanted.shareable else "private",
            settings.privacy_level,
            settings.agent_id,
        )
        self._skipped: Counter[str] = Counter()
        self.formats: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._staged.close()

    @property
    def result(self) -> Imported:
        return Imported(*self._staged.totals, dict(self.formats), dict(self._skipped))

    @property
    def has_unscored(self) -> bool:
        """True if an interrupted import or another program left runs unscored."""
        return self._store.last_recorded() is not None

    def read(self) -> Iterator[int]:
        """Read the sources; yield the number of runs found so far."""
        for root in self._wanted.paths:
            beside = ImportContext(self._wanted.format)
            for path in find_files(self._wanted.format, root, beside):
                yield from self._read(path)
            self._skipped += beside.skipped

    def write(self) -> Iterator[int]:
        """Write and score the runs by start; yield the number done so far."""
        yield from self._stages.import_runs(self._staged.by_start())

    def score_left(self) -> Iterator[int]:
        """Score runs that an interrupted import left; yield the number done so far."""
        for done in count(1):
            if not self._stages.score_next(at_once=True):
                return
            yield done

    def _read(self, path: Path) -> Iterator[int]:
        wanted, written_s = self._wanted, path.stat().st_mtime
        if wanted.since_s is not None and written_s < wanted.since_s:
            return
        format_ = detect_format(path) if wanted.format == "auto" else wanted.format
        if format_ not in FORMATS:
            self._skipped[format_] += 1
            return
        self.formats[format_] += 1
        context = ImportContext(
            format_, self._limits, whole_sessions=wanted.whole_sessions, at_s=written_s, path=path
        )
        for done, run in enumerate(read_runs(path, context)):
            self._take(run, context)
            yield done
        self._staged.remove(context.retracted)
        self._skipped += context.skipped

    def _take(self, run: SourceRun | ReasoningTrace, context: ImportContext) -> None:
        wanted, recorded = self._wanted, None
        if isinstance(run, ReasoningTrace):
            updates = {"task_domain": wanted.domain or run.metadata.task_domain}
            if not wanted.shareable:
                updates["visibility"] = self._defaults.visibility
            metadata = run.metadata.model_copy(update=updates)
            recorded = bounded(run.model_copy(update={"metadata": metadata}), self._limits)
        elif (recorded := run.to_recorded(self._defaults)) is None:
            context.skip("no_answer")
            return
        began_s = epoch_s(recorded.trace.metadata.created_at)
        if wanted.since_s is not None and began_s < wanted.since_s:
            return
        stored = self._store.stored_version(recorded.trace.id)
        is_final = isinstance(run, ReasoningTrace) or not (
            stored and stored.is_outdated_by(recorded)
        )
        self._staged.add(recorded, is_known=stored is not None and is_final)


_AT_ONCE: Final = 500
_NO_TEXT: Final = "(its text is not shared)"
_COUNTS: Final = {"steps": "step_count", "tools": "tool_count", "recoveries": "recovery_count"}


def copy_log(link: shared_log.Link, db: Path, reach: Callable[[int, int], None]) -> int:
    """Update a copy of the log, and return the number of new runs.

    ``reach`` is called with the position reached, and the last one.
    """
    shared_log.load()
    store = SqliteStore.at(db)
    runs = store.shared_runs()
    if not runs.is_copy():
        raise DatabaseError(
            db, "contains runs that were not pulled", "name another file for the copy with --db"
        )
    copied = 0
    try:
        for batch in shared_log.batches(partial(shared_log.pull_runs, link), runs.place()):
            with store.transaction():
                copied += sum(_copy(store, runs, one) for one in batch.rows)
                runs.delete(batch.deleted)
                runs.save_pulled((), batch.position)
            reach(batch.position.seq, batch.head)
    except shared_log.LogChangedError:
        problem = "is a copy of a log that has changed since, by a restore or a failover"
        raise DatabaseError(db, problem, "remove it and pull again") from None
    waiting = runs.open_items(100_000)  # unsent when they were copied
    for first in range(0, len(waiting), _AT_ONCE):
        runs.update_items(shared_log.item_states(link, waiting[first : first + _AT_ONCE]))
    store.close()
    return copied


def _copy(store: SqliteStore, runs: SharedRuns, logged: shared_log.LoggedRun) -> bool:
    """Store one run of the log; return whether it is new here."""
    run = logged.run
    before = store.stored_version(run.id)
    if before is not None and logged.kind == "run":
        return False
    facts, trace = json.loads(run.facts), _trace(run)
    counts = {name: facts[key] for name, key in _COUNTS.items() if facts.get(key) is not None}
    recorded = RecordedRun(
        trace=trace,
        shape=replace(trace.shape, **counts),
        duration_ms=facts.get("duration_ms"),
        input_tokens=facts.get("input_tokens"),
        output_tokens=facts.get("output_tokens"),
        confidence_source=facts.get("confidence_source") or "assumed",
        success_source=run.success_source or "assumed",
    )
    evaluation = run.evaluation
    seq = store.record(recorded, seq=None if before is None else before.seq)
    store.save_evaluation(seq, evaluation, took_ms=0.0, p_success=facts.get("p_success"))
    is_forwarded = run.decision == "forward" and "delivery" not in evaluation.verdict.reason.args
    runs.mark_copied(seq, logged.seq, run, is_forwarded=is_forwarded)
    return before is None


def _trace(run: shared_log.SharedRun) -> ReasoningTrace:
    """Return the document of a run, or a placeholder if it is not shared."""
    if run.body is not None:
        trace = ReasoningTrace.model_validate_json(run.body)
        return trace.ended(success=run.success, confidence=run.confidence)
    facts, step = json.loads(run.facts), Step(step_id=0, type="thought", content=_NO_TEXT)
    trace = ReasoningTrace.of(
        _NO_TEXT, [step], domain=run.domain, success=run.success, confidence=run.confidence
    )
    updates = {
        "created_at": run.started_at,
        "visibility": facts.get("visibility") or "network",
        "privacy_level": facts.get("privacy_level") or "aggregated",
    }
    metadata = trace.metadata.model_copy(update=updates)
    return trace.model_copy(update={"id": run.id, "metadata": metadata})


def sync_shared_outbox(link: shared_log.Link, runs: SharedRuns) -> None:
    """Cancel shared items that may no longer be sent, and store the states of the others."""
    if withdrawn := runs.to_withdraw(100):
        shared_log.cancel_items(link, withdrawn)
    if waiting := runs.open_items(_AT_ONCE):
        runs.update_items(shared_log.item_states(link, waiting))
