"""Import of runs that other tools have kept: read, ordered by time, redacted, written, scored."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from kp_middleware.embedding import Embedder
from kp_middleware.imports import (
    FORMATS,
    Book,
    Filling,
    Skipped,
    SourceRun,
    Spool,
    files_of,
    format_in,
    runs_in,
)
from kp_middleware.instants import epoch_s
from kp_middleware.pipeline._steps import Stages
from kp_middleware.recording import Limits, bounded
from kp_middleware.runs import RecordedRun
from kp_middleware.settings import Settings
from kp_middleware.storage import Store
from kp_middleware.traces import ReasoningTrace


class Wanted(NamedTuple):
    """The runs to import; those that began before ``since_s`` are left out."""

    format: str
    paths: tuple[Path, ...]
    since_s: float | None = None
    domain: str | None = None
    whole_sessions: bool = False
    shareable: bool = False

    @classmethod
    def of(cls, format_: str, paths: Iterable[str | Path], **how: Any) -> Self:
        """Return what is wanted, by default from where the tool keeps its runs; else ValueError."""
        if format_ not in {"auto", *FORMATS}:
            raise ValueError(f"{format_!r} is no format: there are {', '.join([*FORMATS, 'auto'])}")
        named = tuple(map(Path, paths))
        for path in named:
            if not path.exists():
                raise ValueError(f"there is no {path}: name a file or a folder")
        return cls(format_, named or _usual_places(format_), **how)


def _usual_places(format_: str) -> tuple[Path, ...]:
    formats = FORMATS.values() if format_ == "auto" else [FORMATS[format_]]
    folders = [folder for one in formats for folder in one.folders()]
    if not folders:
        raise ValueError(f"name the files or folders: {format_} has no usual place")
    if there := tuple(folder for folder in folders if folder.is_dir()):
        return there
    raise ValueError(f"there is no {', '.join(map(str, folders))}: name a file or a folder")


class Imported(NamedTuple):
    """What an import found, and what it has added to the file.

    Attributes:
        runs, sessions: How many are in the sources.
        first_at, last_at: When the first and the last run began, ISO 8601; empty without any.
        new: How many were not in the file, or have gone on since.
        known: How many were imported before.
        files: Counts by format.
        skipped: Counts of what cannot be read, by reason.
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

    What is read waits in a file without a name, because runs are written and scored in the order
    of their times. What is written stays, also where the import is stopped.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        embedder: Embedder | None,
        wanted: Wanted,
    ) -> None:
        self._wanted = wanted
        self._limits = Limits.of(settings)
        self._store = store
        self._evaluation = Stages(store, settings, embedder)
        self._spool = Spool()
        self._filling = Filling(
            wanted.domain or settings.domain,
            settings.visibility if wanted.shareable else "private",
            settings.privacy_level,
            settings.agent_id,
        )
        self._skipped: Counter[Skipped] = Counter()
        self.formats: Counter[str] = Counter()
        self._known = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._spool.close()

    @property
    def found(self) -> Imported:
        """What is in the sources."""
        files, skipped = dict(self.formats), {str(key): n for key, n in self._skipped.items()}
        return Imported(*self._spool.found, len(self._spool), self._known, files, skipped)

    @property
    def has_unscored(self) -> bool:
        """Whether an import that was stopped, or another program, has left runs unscored."""
        return self._store.last_recorded() is not None

    def read(self) -> Iterator[int]:
        """Read the sources; yield how many runs were found so far."""
        for root in self._wanted.paths:
            beside = Book(self._wanted.format)
            for path in files_of(self._wanted.format, root, beside):
                yield from self._read(path)
            self._skipped += beside.skipped

    def write(self) -> Iterator[int]:
        """Write and score what was read, in the order of its times; yield how many are done."""
        yield from self._evaluation.bring_in(self._spool.ordered())

    def score_left(self) -> Iterator[int]:
        """Score what an import that was stopped has left unscored; yield how many are done."""
        for done in count(1):
            if not self._evaluation.score_next(at_once=True):
                return
            yield done

    def _read(self, path: Path) -> Iterator[int]:
        wanted, written_s = self._wanted, path.stat().st_mtime
        if wanted.since_s is not None and written_s < wanted.since_s:
            return
        format_ = format_in(path) if wanted.format == "auto" else wanted.format
        if format_ is None:
            self._skipped["unknown_format"] += 1
            return
        self.formats[format_] += 1
        book = Book(
            format_, self._limits, whole_sessions=wanted.whole_sessions, at_s=written_s, path=path
        )
        for done, run in enumerate(runs_in(path, book)):
            self._take(run, book)
            yield done
        self._spool.remove(book.retracted)
        self._skipped += book.skipped

    def _take(self, run: SourceRun | ReasoningTrace, book: Book) -> None:
        recorded = self._recorded(run)
        if recorded is None:
            book.skip("no_answer")
            return
        began_s = epoch_s(recorded.trace.metadata.created_at)
        if self._wanted.since_s is not None and began_s < self._wanted.since_s:
            return
        is_new = self._spool.note(recorded)
        stored = self._store.reading(recorded.trace.id)
        is_final = isinstance(run, ReasoningTrace)
        if stored is None or (not is_final and stored.says_less_than(recorded)):
            self._spool.put(recorded)
        elif is_new:
            self._known += 1

    def _recorded(self, run: SourceRun | ReasoningTrace) -> RecordedRun | None:
        if isinstance(run, SourceRun):
            return run.recorded(self._filling)
        changes: dict[str, object] = (
            {} if self._wanted.shareable else {"visibility": self._filling.visibility}
        )
        if self._wanted.domain is not None:
            changes["task_domain"] = self._wanted.domain
        metadata = run.metadata.model_copy(update=changes)
        return bounded(run.model_copy(update={"metadata": metadata}), self._limits)


def import_runs(
    store: Store, settings: Settings, embedder: Embedder | None, wanted: Wanted
) -> Imported:
    """Import what is wanted through a connection of its own."""
    apart = store.apart()
    try:
        with Import(apart, settings, embedder, wanted) as importing:
            for _ in chain(importing.read(), importing.write()):
                pass
            return importing.found
    finally:
        apart.close()
