"""Queries for the runs in the file: lists, one run, what to review, what to recall."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property

from kp_middleware.embedding import Embedder
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import instant
from kp_middleware.pipeline._threads import start_daemon
from kp_middleware.privacy import Policy
from kp_middleware.recall import Memory, Recalled, question
from kp_middleware.recording import current_recorder, shield
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    Database,
    Filters,
    History,
    ReviewItem,
    Run,
    RunSummary,
    SqliteStore,
    Store,
)


def since_text(since: datetime | None) -> str | None:
    """Write an instant as the file has it; without a time zone it is local time."""
    return None if since is None else instant(since.astimezone(UTC).timestamp())


class Reading:
    """The part of `KnowledgePulse` that reads."""

    settings: Settings
    _embedder: Embedder | None
    _store: Store

    @cached_property
    def _memory(self) -> Memory:
        return Memory(self.settings.db, self._embedder, Policy.of(self.settings))

    @contextmanager
    def _history(self) -> Iterator[History | None]:
        """Open the file to read; None if there is none yet."""
        if not isinstance(self._store, SqliteStore):
            raise TypeError("only the file can be read: ask your own store itself")
        if not self.settings.db.exists():
            yield None
            return
        with History(Database(self.settings.db, read_only=True)) as history:
            yield history

    def runs(
        self,
        *,
        limit: int = 20,
        domain: str | None = None,
        state: str | None = None,
        above: bool | None = None,
        tool: str | None = None,
        failed: bool = False,
        since: datetime | None = None,
        text: str | None = None,
    ) -> tuple[RunSummary, ...]:
        """Return the newest runs of the file that fit all that is asked, the last one first.

        What is still in memory is not among them: `flush` first.

        Args:
            limit: At most so many.
            domain: Of this domain.
            state: What has become of them: ``withheld``, ``sent``, ``blocked`` …
            above: True: that reached the threshold; False: that did not.
            tool: That used this tool.
            failed: Whose task was not done.
            since: That began then or later; without a time zone it is local time.
            text: In whose objective, result or steps these words are; the best match comes first.

        Raises:
            DatabaseError: If the file cannot be read.
            TypeError: If the pipeline has a store of its own.
        """
        filters = Filters(
            domain=domain,
            above=above,
            state=state,
            tool=tool,
            failed=failed,
            since=since_text(since),
            text=text,
        )
        with self._history() as history:
            return () if history is None else tuple(history.runs(filters, limit=limit))

    def run(self, trace_id: str) -> Run:
        """Return one run with its steps, its score and where it was sent.

        Args:
            trace_id: The beginning of its id, ``@last`` or ``@best``.

        Raises:
            TraceNotFoundError: If there is none, or more than one.
            DatabaseError: If the file cannot be read.

        >>> from tempfile import TemporaryDirectory
        >>> from kp_middleware import KnowledgePulse
        >>> with TemporaryDirectory() as folder:
        ...     with KnowledgePulse(db=f"{folder}/kp.db", embedder=None, sync=True) as kp:
        ...         answer = kp.capture(lambda question: "42")
        ...         answer("What is six times seven?")
        ...         run = kp.run("@last")
        ...         run.objective, run.result_summary, [step.type for step in run.steps]
        '42'
        ('What is six times seven?', '42', ['thought', 'observation'])
        """
        with self._history() as history:
            if history is None:
                path = self.settings.db
                raise TraceNotFoundError(f"there is no run yet in {path}: record a run")
            return history.run(history.find(trace_id))

    def review_queue(self, limit: int = 10) -> tuple[ReviewItem, ...]:
        """Return the runs that are worth a person's judgement, the first one first.

        Recent ones that nobody has judged: first those that the gate lets leave, then those that
        the estimate is least sure of. If the first would be all, they get half of the places.
        Answer with `feedback`.

        Args:
            limit: At most so many.

        Raises:
            ValueError: If the limit is below 1.
            DatabaseError: If the file cannot be read.

        >>> from tempfile import TemporaryDirectory
        >>> from kp_middleware import KnowledgePulse
        >>> with TemporaryDirectory() as folder:
        ...     with KnowledgePulse(db=f"{folder}/kp.db", embedder=None, sync=True) as kp:
        ...         answer = kp.capture(lambda question: "42")
        ...         answer("What is six times seven?")
        ...         (item,) = kp.review_queue()
        ...         kp.feedback(item.trace_id, success=True)
        ...         item.why, item.way, kp.review_queue()
        '42'
        ('uncertain', ('<lambda>({"question": "What is six times seven?"})', '42'), ())
        """
        if limit < 1:
            raise ValueError(f"limit is at least 1, this is {limit!r}")
        with self._history() as history:
            return () if history is None else tuple(history.to_review(limit=limit))

    def recall(
        self,
        task: str,
        *,
        k: int = 1,
        domain: str | None = None,
        owner: str | None = None,
        max_age_days: float | None = None,
    ) -> list[Recalled]:
        """Return runs of the file that succeeded at a task like this one, the best first.

        It says nothing where nothing fits. Only runs whose success is known, or well estimated,
        are found. It reads the file alone, asks no model but the embedder, and raises nothing.
        Inside a run, what is found is noted in it.

        Args:
            task: What the agent is asked, in the words of the person who asks. Ask again when more
                of it is known: that finds more.
            k: At most so many; more than one helps rarely.
            domain: Only runs of this domain.
            owner: Only runs of this owner, such as a customer. Where any run of the file has an
                owner, nothing is found without one.
            max_age_days: Only runs that began so many days ago or later.

        >>> from tempfile import TemporaryDirectory
        >>> from kp_middleware import KnowledgePulse
        >>> with TemporaryDirectory() as folder:
        ...     with KnowledgePulse(db=f"{folder}/kp.db", embedder=None, sync=True) as kp:
        ...         kp.recall("Refund order A1, please.")
        []
        """
        recalls = self.settings.enabled and self.settings.recall
        if not (recalls and isinstance(self._store, SqliteStore)):
            return []
        try:
            allowed = question(domain=domain, owner=owner, max_age_days=max_age_days)
            found = self._memory.recall(task, allowed, k=k)
        except Exception as error:  # noqa: BLE001 - the agent never pays for its memory
            shield.swallow("recall", error, "nothing was recalled")
            return []
        recorder = current_recorder()
        if recorder is not None:
            recorder.recalled.update((one.trace_id, None) for one in found)
        return found

    def warm_up_recall(self) -> None:
        """Load what `recall` and a digest need, in the background: a second or two of work.

        `KPRecallMiddleware` does it when it is made. Without it, the first recall waits.
        """
        if self.settings.enabled and self.settings.recall:
            start_daemon("kp-recall", self._warm_up, ends=True)

    def _warm_up(self) -> None:
        try:
            self._memory.warm_up()
        except Exception as error:  # noqa: BLE001 - recall itself will say what is wrong
            shield.swallow("recall", error, "nothing was loaded")

    async def arecall(
        self,
        task: str,
        *,
        k: int = 1,
        domain: str | None = None,
        owner: str | None = None,
        max_age_days: float | None = None,
    ) -> list[Recalled]:
        """Return what `recall` does, without holding the event loop up."""
        return await asyncio.to_thread(
            self.recall, task, k=k, domain=domain, owner=owner, max_age_days=max_age_days
        )
